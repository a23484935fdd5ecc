//go:build gpu

package cuda

import (
	"embed"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

//go:embed src/*.cuh src/*.cu
var sources embed.FS

// The structs that kernels take have the fields of their twins in src, in the same order and of the
// same sizes.
func TestArgumentsMirrorTheSources(t *testing.T) {
	sizes := map[string]uintptr{
		"void*": 8, "float*": 8, "double*": 8, "int32_t*": 8, "uint32_t*": 8, "FaultNote*": 8, "int64_t": 8, "uint64_t": 8, "int32_t": 4, "uint32_t": 4, "float": 4, "double": 8, "Chunk*": 8,
		"Rows": 32, "Lines": reflect.TypeFor[lines]().Size(), "Packed": reflect.TypeFor[packedMatrix]().Size(), "Parameter": 16, "Indices": 16, "Fault": 24, "uint16_t*": 8, "uint4*": 8,
		"Update": reflect.TypeFor[update]().Size(), "ThinPart": reflect.TypeFor[thinPart]().Size(),
		"uint64_t*": 8, "ChainLink*": 8, "RowsLink*": 8, "CUtensorMap*": 8, "ChainState*": 8, "Weight": reflect.TypeFor[rowsWeight]().Size(),
		"AttentionArguments": reflect.TypeFor[arguments]().Size(), "EmbeddingArguments": reflect.TypeFor[embeddingArguments]().Size(),
	}
	for _, twin := range []struct {
		file, name string
		mirror     reflect.Type
	}{
		{"arguments.cuh", "AttentionArguments", reflect.TypeFor[arguments]()},
		{"attention_delta.cu", "DeltaArguments", reflect.TypeFor[deltaArguments]()},
		{"attention_delta.cu", "SinksArguments", reflect.TypeFor[sinksArguments]()},
		{"elements.cuh", "Lines", reflect.TypeFor[lines]()},
		{"elements.cuh", "Parameter", reflect.TypeFor[parameter]()},
		{"elements.cuh", "Indices", reflect.TypeFor[indexList]()},
		{"elements.cuh", "Fault", reflect.TypeFor[fault]()},
		{"elements.cuh", "FaultNote", reflect.TypeFor[driver.Note]()},
		{"elementwise.cuh", "Elementwise", reflect.TypeFor[elementwise]()},
		{"elementwise.cu", "KeyMaskArguments", reflect.TypeFor[keyMaskArguments]()},
		{"reduce.cu", "SumRowsArguments", reflect.TypeFor[sumRowsArguments]()},
		{"reduce.cu", "SumPartsArguments", reflect.TypeFor[sumPartsArguments]()},
		{"norm.cu", "NormArguments", reflect.TypeFor[normArguments]()},
		{"dropout.cu", "DropoutArguments", reflect.TypeFor[dropoutArguments]()},
		{"rope.cu", "RoPEArguments", reflect.TypeFor[ropeArguments]()},
		{"embedding.cu", "EmbeddingArguments", reflect.TypeFor[embeddingArguments]()},
		{"packed_embedding.cu", "PackedLookup", reflect.TypeFor[packedLookup]()},
		{"embedding.cu", "EmbeddingBackward", reflect.TypeFor[embeddingBackward]()},
		{"crossentropy.cu", "CrossEntropyArguments", reflect.TypeFor[crossEntropyArguments]()},
		{"logsoftmax.cu", "LogSoftmaxArguments", reflect.TypeFor[softmaxArguments]()},
		{"softmax.cu", "SoftmaxArguments", reflect.TypeFor[softmaxArguments]()},
		{"indexed.cu", "IndexedArguments", reflect.TypeFor[indexedArguments]()},
		{"listedkeys.cuh", "ListedArguments", reflect.TypeFor[listedArguments]()},
		{"listedkeys_backward.cu", "ListedBounds", reflect.TypeFor[listedBounds]()},
		{"listedkeys_backward.cu", "ListedSums", reflect.TypeFor[listedSums]()},
		{"listedkeys_backward.cu", "ListedClear", reflect.TypeFor[listedClear]()},
		{"listedkeys_planes.cu", "ListedPlanes", reflect.TypeFor[listedPlanes]()},
		{"listedkeys_planes.cu", "ListedNumbers", reflect.TypeFor[listedNumbers]()},
		{"listedkeys_planes.cu", "ListedCompact", reflect.TypeFor[listedCompact]()},
		{"listedkeys_forward_sm90.cu", "ListedRows", reflect.TypeFor[listedRows]()},
		{"attention_second.cu", "SecondArguments", reflect.TypeFor[secondArguments]()},
		{"attention_second.cu", "SecondSinks", reflect.TypeFor[secondSinks]()},
		{"thinproducts.cu", "ThinArguments", reflect.TypeFor[thinArguments]()},
		{"thinproducts.cu", "ThinPart", reflect.TypeFor[thinPart]()},
		{"thinproducts.cu", "ThinSums", reflect.TypeFor[thinSums]()},
		{"weight.cuh", "Weight", reflect.TypeFor[rowsWeight]()},
		{"decode_chain.cuh", "ChainLink", reflect.TypeFor[linkArguments]()},
		{"decode_chain.cuh", "ChainArguments", reflect.TypeFor[chainArguments]()},
		{"decode_chain_rows.cu", "RowsLink", reflect.TypeFor[rowsOfLink]()},
		{"decode_chain_rows.cu", "RowsChain", reflect.TypeFor[rowsChainArguments]()},
		{"optimizer.cu", "Update", reflect.TypeFor[update]()},
		{"optimizer.cu", "MomentumStep", reflect.TypeFor[momentumStep]()},
		{"optimizer.cu", "Normalizing", reflect.TypeFor[normalizing]()},
		{"matmul_sm80.cu", "Schedule", reflect.TypeFor[matmul80Schedule]()},
	} {
		text, err := sources.ReadFile("src/" + twin.file)
		if err != nil {
			t.Fatal(err)
		}
		body := regexp.MustCompile(`(?s)struct ` + twin.name + `(?: : \w+)? \{(.*?)\n\};`).FindSubmatch(text)
		if body == nil {
			t.Fatalf("%s has no struct %s", twin.file, twin.name)
		}
		fields, _, _ := strings.Cut(string(body[1]), "__device__") // functions come behind the fields
		var names []string
		var bytes []uintptr
		field := regexp.MustCompile(`(?m)^ *(?:const )?([A-Za-z0-9_]+ ?\*?) *([^;/]+);`)
		for _, m := range field.FindAllStringSubmatch(fields, -1) {
			for name := range strings.SplitSeq(m[2], ",") {
				name = strings.TrimSpace(name)
				kind := strings.ReplaceAll(m[1], " ", "")
				if strings.HasPrefix(name, "*") {
					name, kind = strings.TrimLeft(name, "*"), kind+"*"
				}
				size := sizes[strings.ReplaceAll(kind, "**", "*")]
				name, lengths, _ := strings.Cut(name, "[")
				for length := range strings.SplitSeq(lengths, "]") {
					if n, err := strconv.Atoi(strings.Trim(length, "[")); err == nil {
						size *= uintptr(n)
					}
				}
				names, bytes = append(names, name), append(bytes, size)
			}
		}
		var mirrorNames []string
		var mirrorBytes []uintptr
		for i := range twin.mirror.NumField() {
			name := twin.mirror.Field(i).Name
			mirrorNames = append(mirrorNames, strings.ToLower(name[:1])+name[1:])
			mirrorBytes = append(mirrorBytes, twin.mirror.Field(i).Type.Size())
		}
		for i, name := range mirrorNames {
			if name == "zero" || name == "_" {
				mirrorNames[i] = "reserved" // whatever fills up the size
			}
		}
		if !slices.Equal(names, mirrorNames) || !slices.Equal(bytes, mirrorBytes) {
			t.Errorf("%s in %s has the fields\n%v\n%v\nits mirror has\n%v\n%v", twin.name, twin.file, names, bytes, mirrorNames, mirrorBytes)
		}
	}
}
