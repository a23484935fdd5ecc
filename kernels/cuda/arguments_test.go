//go:build gpu

package cuda

import (
	"embed"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

//go:embed src/arguments.cuh src/attention_delta.cu
var sources embed.FS

// The structs that kernels take have the fields of their twins in src, in the same order and of the same sizes.
func TestArgumentsMirrorTheSources(t *testing.T) {
	sizes := map[string]uintptr{"Rows": 32, "void*": 8, "float*": 8, "int32_t*": 8, "int64_t": 8, "int32_t": 4, "uint32_t": 4, "float": 4}
	for _, twin := range []struct {
		file, name string
		mirror     reflect.Type
	}{
		{"arguments.cuh", "AttentionArguments", reflect.TypeFor[arguments]()},
		{"attention_delta.cu", "DeltaArguments", reflect.TypeFor[deltaArguments]()},
		{"attention_delta.cu", "SinksArguments", reflect.TypeFor[sinksArguments]()},
	} {
		text, err := sources.ReadFile("src/" + twin.file)
		if err != nil {
			t.Fatal(err)
		}
		body := regexp.MustCompile(`(?s)struct ` + twin.name + ` \{(.*?)\n\};`).FindSubmatch(text)
		if body == nil {
			t.Fatalf("%s has no struct %s", twin.file, twin.name)
		}
		var names []string
		var bytes []uintptr
		field := regexp.MustCompile(`(?m)^ *(?:const )?([A-Za-z0-9_]+ ?\*?) *([^;/]+);`)
		for _, m := range field.FindAllStringSubmatch(string(body[1]), -1) {
			for name := range strings.SplitSeq(m[2], ",") {
				name = strings.TrimSpace(name)
				kind := strings.ReplaceAll(m[1], " ", "")
				if strings.HasPrefix(name, "*") {
					name, kind = strings.TrimLeft(name, "*"), kind+"*"
				}
				names, bytes = append(names, name), append(bytes, sizes[strings.ReplaceAll(kind, "**", "*")])
			}
		}
		var mirrorNames []string
		var mirrorBytes []uintptr
		for i := range twin.mirror.NumField() {
			mirrorNames = append(mirrorNames, twin.mirror.Field(i).Name)
			mirrorBytes = append(mirrorBytes, twin.mirror.Field(i).Type.Size())
		}
		for i, name := range mirrorNames {
			if name == "zero" {
				mirrorNames[i] = "reserved" // whatever fills up the size
			}
		}
		if !slices.Equal(names, mirrorNames) || !slices.Equal(bytes, mirrorBytes) {
			t.Errorf("%s in %s has the fields\n%v\n%v\nits mirror has\n%v\n%v", twin.name, twin.file, names, bytes, mirrorNames, mirrorBytes)
		}
	}
}
