package pretrained

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testdata/fields.py is the other side of this file.

// changedField is another value of a field, and what transformers makes of it: the sums of sumsOf
// where it computes something else, or "same", or "others" where the file lacks its tensors.
type changedField struct {
	value string
	sums  []float64
	what  string
}

// UnmarshalJSON reads a pair.
func (f *changedField) UnmarshalJSON(text []byte) error {
	var pair [2]json.RawMessage
	if err := json.Unmarshal(text, &pair); err != nil {
		return err
	}
	f.value = string(pair[0])
	if pair[1][0] == '"' {
		return json.Unmarshal(pair[1], &f.what)
	}
	f.what = "changed"
	return json.Unmarshal(pair[1], &f.sums)
}

// A change of any field that a config's class has in transformers is refused, or has the effect
// that it has there.
func TestEveryField(t *testing.T) {
	text, err := os.ReadFile("testdata/fields.json")
	if err != nil {
		t.Fatal(err)
	}
	var models map[string]struct {
		Usual  []float64
		Fields map[string][]changedField
	}
	if err := json.Unmarshal(text, &models); err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for name, want := range models {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", name, configFile))
			if err != nil {
				t.Fatal(err)
			}
			config := parseFields(string(text))
			tested[strings.Trim(string(config["model_type"]), `"`)] = true
			if testing.Short() && name != "gpt2" {
				t.Skip("short")
			}
			golden := readGolden(t, name)
			usual, err := sumsOf(t, name, config, golden)
			if err != nil || !closeSums(usual, want.Usual) {
				t.Fatalf("as it is, it computes %v, %v, want %v", usual, err, want.Usual)
			}
			for field, changes := range want.Fields {
				for _, c := range changes {
					c.check(t, name, string(text), field, golden, want.Usual)
				}
			}
		})
	}
	for family := range families {
		if !tested[family] {
			t.Errorf("no model of family %s is tested", family)
		}
	}
}

// check compares a model whose field has the value with transformers' model.
func (c changedField) check(t *testing.T, name, text, field string, golden golden, usual []float64) {
	t.Helper()
	config := parseFields(text)
	change(config, field, c.value)
	have, err := sumsOf(t, name, config, golden)
	if c.what == "same" {
		c.sums = usual
	}
	switch {
	case c.what == "others" && err == nil:
		t.Errorf("%s of %s is nothing: transformers has other tensors", field, c.value)
	case c.what != "others" && err == nil && !closeSums(have, c.sums):
		t.Errorf("%s of %s computes %v, transformers %v, and usually %v", field, c.value, have, c.sums, usual)
	case c.what != "others" && err != nil && !says(err, field):
		t.Errorf("%s of %s is refused by %q, which does not name it", field, c.value, err)
	}
}

// says reports whether an error names a field, a tensor that the file should not have with it, what
// the golden input is too long for, the head that it asks for and the model then lacks, or dropout
// that is never less than all.
func says(err error, field string) bool {
	field = field[strings.LastIndexByte(field, '.')+1:]
	for _, word := range []string{field, "tensor \"", "at most the context's", "there is no classifier", "ropout"} {
		if strings.Contains(err.Error(), word) {
			return true
		}
	}
	return false
}

// sumsOf are two sums over what a golden model computes with another config, and their scale; or
// the reason for which there is no such model.
func sumsOf(t *testing.T, name string, config fields, golden golden) ([]float64, error) {
	t.Helper()
	m := &Model{config: []byte(textOf(config)), folder: filepath.Join("testdata", name)}
	var err error
	if m.family, m.arch, err = describe(m.config, Options{}); err != nil {
		return nil, err
	}
	if m.parameters, err = readFolder(m.folder, m.arch, keeping{}, nil); err != nil {
		return nil, err
	}
	if err := m.finish(Options{}); err != nil {
		return nil, err
	}
	s := m.scope()
	results := m.resultsIn(s, name, golden)
	if s.Err() != nil {
		return nil, s.Err()
	}
	run(t, s)
	sums, square := make([]float64, 3), 0.0
	for i, x := range results.Node().Value().Data().([]float32) {
		sin, cos := math.Sincos(float64(i))
		sums[0] += float64(x) * cos
		sums[1] += float64(x) * sin
		square += float64(x) * float64(x)
	}
	sums[2] = math.Sqrt(square)
	return sums, nil
}

// closeSums compares sums, of which rounding changes each number a little.
func closeSums(have, want []float64) bool {
	for i, x := range want {
		if !(math.Abs(have[i]-x) <= 2e-5*have[2]) {
			return false
		}
	}
	return true
}
