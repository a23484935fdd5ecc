package pretrained

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/plainfile"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/safetensors"
	"gorgonia.org/tensor"
)

// testdata/greedy.py is the other side of this file.

// greedy is what transformers expects of a model with room for longer texts.
type greedy struct {
	Config   fields
	Repeated string  // the table of positions whose rows are repeated for it
	Prompts  []int   // how many tokens of each text are given
	Texts    [][]int // the others are the most probable ones
	Read     []int
	Expected []int // the most probable token behind each; -1 where another is nearly as probable
}

// The 100 most probable tokens are those that transformers chooses, for two texts at once, and so
// are those expected behind each token of a random text.
func TestGreedy(t *testing.T) {
	text, err := os.ReadFile("testdata/greedy.json")
	if err != nil {
		t.Fatal(err)
	}
	var models map[string]greedy
	if err := json.Unmarshal(text, &models); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(languageModels, []string{"llama-longrope"}) {
		want, known := models[name]
		if !known {
			t.Errorf("there are no texts of %s", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "mistral" {
				t.Skip("short")
			}
			m := load(t, longer(t, name, want), Options{})
			one, err := m.NewDecoder(128)
			if err != nil {
				t.Fatal(err)
			}
			for at, token := range want.Read {
				logits, err := one.Logits([]int{token})
				if err != nil {
					t.Fatal(err)
				}
				if e := want.Expected[at]; e >= 0 && largest(logits) != e {
					t.Errorf("behind %v it expects %d, want %d", want.Read[:at+1], largest(logits), e)
				}
			}
			both, err := m.NewBatchDecoder(2, 128)
			if err != nil {
				t.Fatal(err)
			}
			for i, text := range together(t, both, want) {
				if !slices.Equal(text, want.Texts[i]) {
					t.Errorf("text %d is %v, want %v", i, text, want.Texts[i])
				}
			}
		})
	}
}

// together is what a decoder writes behind both prompts at once.
func together(t *testing.T, d *nn.BatchDecoder, want greedy) [][]int {
	t.Helper()
	texts, next := make([][]int, 2), make([][]int, 2)
	for i, length := range want.Prompts {
		next[i] = want.Texts[i][:length]
		texts[i] = slices.Clone(next[i])
	}
	for len(texts[0]) < len(want.Texts[0]) {
		logits, err := d.Logits(next)
		if err != nil {
			t.Fatal(err)
		}
		for i := range texts {
			texts[i] = append(texts[i], largest(logits[i]))
			next[i] = texts[i][len(texts[i])-1:]
		}
	}
	return texts
}

// longer is the folder of a golden model with room for longer texts.
func longer(t *testing.T, name string, want greedy) string {
	t.Helper()
	from, folder := filepath.Join("testdata", name), t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(from, configFile))
	if err != nil {
		t.Fatal(err)
	}
	config := parseFields(string(text))
	maps.Copy(config, want.Config)
	if err := os.WriteFile(filepath.Join(folder, configFile), []byte(textOf(config)), 0o666); err != nil {
		t.Fatal(err)
	}
	if want.Repeated == "" {
		return folder
	}
	// A table has rows for positions that count from 2 in OPT.
	rows := 128
	if strings.HasPrefix(name, "opt") {
		rows += 2
	}
	var all safetensors.Tensors
	tensors := tensorsOf(t, from)
	for _, l := range load(t, from, Options{}).arch.links {
		values, shape := tensors[l.theirs], l.shape
		if l.theirs == want.Repeated {
			for i, once := 0, len(values); len(values) < rows*shape[1]; i++ {
				values = append(values, values[i%once])
			}
			shape = []int{rows, shape[1]}
		}
		all = append(all, safetensors.Tensor{Name: l.theirs, Value: tensor.New(tensor.WithShape(shape...), tensor.WithBacking(values))})
	}
	if err := plainfile.Write(filepath.Join(folder, weightsFile), func(w io.Writer) error { return safetensors.Write(w, all, nil) }); err != nil {
		t.Fatal(err)
	}
	return folder
}
