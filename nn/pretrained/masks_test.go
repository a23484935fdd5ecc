package pretrained

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// testdata/masks.py is the other side of this file.

// Padding on the left and on the right changes nothing of what decoders give for tokens, or what it
// changes in transformers.
func TestMasks(t *testing.T) {
	text, err := os.ReadFile("testdata/masks.json")
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Masks [][]int
		Sums  map[string][]float64
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	for _, name := range languageModels {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "opt" {
				t.Skip("short")
			}
			if want.Sums[name] == nil {
				t.Fatal("there are no sums of it")
			}
			m := load(t, filepath.Join("testdata", name), Options{})
			s := m.scope()
			h := m.LanguageModel(s).HiddenWith(ids(s, "tokens", readGolden(t, name).Tokens), ids(s, "mask", want.Masks))
			run(t, s)
			have, at := make([]float64, 3), 0
			values := value(t, h).Data().([]float32)
			length := len(want.Masks[0])
			width := len(values) / (len(want.Masks) * length)
			for i, x := range values {
				if token := i / width; want.Masks[token/length][token%length] == 0 {
					continue
				}
				sin, cos := math.Sincos(float64(at))
				have[0], have[1], have[2] = have[0]+float64(x)*cos, have[1]+float64(x)*sin, have[2]+float64(x)*float64(x)
				at++
			}
			if have[2] = math.Sqrt(have[2]); !closeSums(have, want.Sums[name]) {
				t.Errorf("the sums are %v, want %v", have, want.Sums[name])
			}
		})
	}
}
