//go:build gpu

package cuda

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// compiledModule is a module as the generator compiles it.
type compiledModule struct {
	Name, Source, Arch string
	Defines            []string
	Digest             string // of everything that is compiled
	Cubin              bool   // there is one too, for Hopper: the driver would take up to ten seconds
}

// smallModules are those of kernels that are not cut to sizes. All run on any device since Ampere.
// What would take the driver long to compile is a module for each type of elements, so that a
// program loads what it uses.
func smallModules() []compiledModule {
	const arch = "compute_80"
	var list []compiledModule
	for _, name := range []string{"copy", "dropout", "reduce", "rope", "attention_delta", "attention_merge", "matmul_any", "matmul_split", "gate", "grouped_sums", "route", "optimizer", "packed", "packed_embedding", "positions", "choice", "blocks", "listedkeys_planes"} {
		list = append(list, compiledModule{Name: name, Source: name + ".cu", Arch: arch})
	}
	list = append(list, compiledModule{Name: "choice_sm90", Source: "choice.cu", Arch: "compute_90a", Defines: []string{"CLUSTERS"}})
	list = append(list, compiledModule{Name: "cache_append", Source: "cache_append.cu", Arch: arch},
		compiledModule{Name: "cache_append_sm90", Source: "cache_append.cu", Arch: "compute_90a"})
	list = append(list, compiledModule{Name: "copy_f64", Source: "copy.cu", Arch: arch, Defines: []string{"FLOAT64"}})
	for _, element := range []string{"F32", "BF16", "F16"} {
		suffix, defines := "_"+strings.ToLower(element), []string{"ELEMENT_" + element}
		list = append(list,
			compiledModule{Name: "activation" + suffix, Source: "activation.cu", Arch: arch, Defines: defines},
			compiledModule{Name: "elementwise" + suffix, Source: "elementwise.cu", Arch: arch, Defines: defines},
			compiledModule{Name: "crossentropy" + suffix, Source: "crossentropy.cu", Arch: arch, Defines: defines},
			compiledModule{Name: "logsoftmax" + suffix, Source: "logsoftmax.cu", Arch: arch, Defines: defines},
			compiledModule{Name: "softmax" + suffix, Source: "softmax.cu", Arch: arch, Defines: defines},
			compiledModule{Name: "function" + suffix, Source: "function.cu", Arch: arch, Defines: defines},
			compiledModule{Name: "indexed" + suffix, Source: "indexed.cu", Arch: arch, Defines: defines},
			compiledModule{Name: "layer_norm" + suffix, Source: "norm.cu", Arch: arch, Defines: defines},
			compiledModule{Name: "rms_norm" + suffix, Source: "norm.cu", Arch: arch, Defines: append(defines, "RMS_NORM")},
		)
	}
	for _, element := range []string{"BF16", "F16"} {
		list = append(list, compiledModule{
			Name: "packed_rows_" + strings.ToLower(element), Source: "packed_rows.cu", Arch: arch, Defines: []string{"ELEMENT=" + element},
		})
	}
	for _, element := range []string{"BF16", "F16"} {
		name := "thinproducts_" + strings.ToLower(element)
		list = append(list, compiledModule{Name: name, Source: "thinproducts.cu", Arch: "compute_90a", Defines: []string{"KERNEL=" + name, "ELEMENT_" + element}})
	}
	types := map[string]string{"_f32": "float", "_bf16": "__nv_bfloat16", "_f16": "__half"}
	for _, name := range []string{"_f32", "_bf16", "_f16"} {
		list = append(list, compiledModule{Name: "float8" + name, Source: "float8.cu", Arch: "compute_90a", Defines: []string{"ELEMENT=" + types[name]}})
	}
	list = append(list, compiledModule{Name: "float8_turn", Source: "float8_turn.cu", Arch: "compute_90a"})
	for _, e := range [][2]string{{"_f32", "_f32"}, {"_bf16", "_bf16"}, {"_f16", "_f16"}, {"_f32", "_bf16"}, {"_f32", "_f16"}} {
		list = append(list, compiledModule{Name: "embedding" + e[0] + e[1], Source: "embedding.cu", Arch: arch,
			Defines: []string{"TABLE=" + types[e[0]], "ROWS=" + types[e[1]]}})
	}
	return list
}

// The kernels to choose from, those with tensor maps first.
var (
	forwardVariants  = sync.OnceValue(func() [][]variant { return [][]variant{forward90Variants(), forward80Variants()} })
	backwardVariants = sync.OnceValue(func() [][]variant { return [][]variant{backward90Variants(), backward80Variants()} })
	dBiasVariants    = sync.OnceValue(func() [][]variant { return [][]variant{dBias80Variants()} })
)

// compiledModules lists what the generator compiles. It reads the sources, in the package's folder.
func compiledModules() ([]compiledModule, error) {
	list := smallModules()
	for _, table := range slices.Concat(forwardVariants(), backwardVariants(), dBiasVariants()) {
		for _, v := range table {
			list = append(list, v.module())
		}
	}
	for _, v := range slices.Concat(matmul90Variants(), grouped90Variants()) {
		list = append(list, v.module())
	}
	for _, v := range matmul80Variants() {
		list = append(list, v.module())
	}
	for _, v := range grouped80Variants() {
		list = append(list, v.module())
	}
	for _, v := range decoderVariants() {
		list = append(list, v.module())
	}
	for _, v := range matmulRowsVariants() {
		list = append(list, v.module())
	}
	for _, v := range slices.Concat(listedForwardVariants(), listedBackwardVariants(false), listedBackwardVariants(true)) {
		list = append(list, v.compiled())
	}
	for _, v := range confineVariants() {
		list = append(list, v.module())
	}
	for _, v := range listedRowsVariants() {
		list = append(list, v.module())
	}
	for _, v := range secondVariants() {
		list = append(list, v.compiled())
	}
	list = append(list, chainModules()...)
	for i, m := range list {
		list[i].Cubin = m.hasCubin()
		var err error
		if list[i].Digest, err = m.digest(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// hasCubin reports whether a Hopper GPU runs a module as a matter of course: what is for any device
// alone, it runs for a few problems.
func (m compiledModule) hasCubin() bool { return !strings.Contains(m.Source, "_sm80") }

// include finds the files of ours that a source includes.
var include = regexp.MustCompile(`(?m)^#include "(.*)"`)

// comment finds a comment and the space before it, emptyLine a line without anything.
var (
	comment   = regexp.MustCompile(`(?m)[ \t]*//.*$`)
	emptyLine = regexp.MustCompile(`(?m)^\n`)
)

// digest is the SHA-256, shortened to half, of the module's source, all that this includes, and how
// it is compiled. Comments do not count. It is kept beside the compiled module, so that one can
// tell without a compiler whether the module is that of the sources.
func (m compiledModule) digest() (string, error) {
	files := []string{m.Source}
	hash := sha256.New()
	fmt.Fprintln(hash, m.Name, m.Arch, m.Defines)
	for i := 0; i < len(files); i++ {
		text, err := os.ReadFile("src/" + files[i])
		if err != nil {
			return "", err
		}
		code := emptyLine.ReplaceAll(comment.ReplaceAll(text, nil), nil)
		fmt.Fprintf(hash, "%s %d\n%s", files[i], len(code), code)
		for _, found := range include.FindAllSubmatch(text, -1) {
			if name := string(found[1]); !slices.Contains(files, name) {
				files = append(files, name)
			}
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:16]), nil
}

// module says how a variant is compiled: those with tensor maps for Hopper, others for any device
// since Ampere.
func (v variant) module() compiledModule {
	m := compiledModule{Name: v.name, Source: v.source + ".cu", Arch: "compute_80"}
	if v.boxCols > 0 {
		m.Arch = "compute_90a"
	}
	m.Defines = []string{
		"KERNEL=" + v.name, fmt.Sprintf("HEAD_DIM=%d", v.columns()), fmt.Sprintf("HEAD_DIM_V=%d", v.dv),
		fmt.Sprintf("TILE_Q=%d", v.tileQ), fmt.Sprintf("TILE_K=%d", v.tileK), fmt.Sprintf("BLOCK_THREADS=%d", v.threads),
		fmt.Sprintf("SHARED_BYTES=%d", v.sharedBytes),
		"ELEMENT_" + [...]string{elementF32: "F32", elementBF16: "BF16", elementF16: "F16", elementTF32: "TF32"}[v.element],
	}
	m.Defines = append(m.Defines, v.defines...)
	switch {
	case v.mod:
		m.Defines = append(m.Defines, "SCORE=OptionScore", "MOD")
	case v.drops:
		m.Defines = append(m.Defines, "SCORE=DroppedScore")
	case v.unbiased:
		m.Defines = append(m.Defines, "SCORE=UnbiasedScore")
	case v.slopes:
		m.Defines = append(m.Defines, "SCORE=SlopesScore")
	case v.bias:
		m.Defines = append(m.Defines, "SCORE=BiasScore", "BIAS")
	case strings.HasPrefix(v.name, "attention"):
		m.Defines = append(m.Defines, "SCORE=PlainScore")
	}
	return m
}
