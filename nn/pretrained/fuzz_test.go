package pretrained

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"gorgonia.org/gorgonia"
)

// FuzzConfig reads any config, and builds what it describes where that is small: there is an error
// or a model, never a panic.
func FuzzConfig(f *testing.F) {
	paths, err := filepath.Glob("testdata/*/config.json")
	if err != nil || len(paths) == 0 {
		f.Fatalf("there are no configs: %v", err)
	}
	others, err := filepath.Glob("testdata/quantised/*/config.json")
	if err != nil || len(others) == 0 {
		f.Fatalf("there are no quantised configs: %v", err)
	}
	for _, path := range append(paths, others...) {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, a, err := describe(text, Options{})
		if err != nil {
			return
		}
		elements := 0.0
		for _, l := range a.links {
			size := 1.0
			for _, n := range l.shape {
				size *= float64(n)
			}
			elements += size
		}
		if elements > 1e5 || len(a.links) > 200 {
			return
		}
		s := nn.NewScope(gorgonia.NewGraph(), nn.NewParameters(0))
		if a.build(s); s.Err() != nil {
			t.Logf("refused: %v", s.Err())
		}
	})
}

// FuzzFolder loads a folder whose files are anything.
func FuzzFolder(f *testing.F) {
	config, err := os.ReadFile("testdata/qwen3/config.json")
	if err != nil {
		f.Fatal(err)
	}
	index, err := os.ReadFile("testdata/qwen3/" + indexFile)
	if err != nil {
		f.Fatal(err)
	}
	shards, err := filepath.Glob("testdata/qwen3/model-*.safetensors")
	if err != nil || len(shards) == 0 {
		f.Fatalf("there are no shards: %v", err)
	}
	shard, err := os.ReadFile(shards[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(index, shard, shard)
	f.Add([]byte(`{"weight_map": {"a": "../../../etc/passwd"}}`), shard, shard[:40])
	f.Add([]byte{}, []byte("\xff\xff\xff\xff\xff\xff\xff\x7f{}"), shard)
	for _, kind := range []string{"dora", "layers"} { // the first of the three is the adapter's config too
		folder := filepath.Join("testdata", "lora", "kinds", kind)
		text, err := os.ReadFile(filepath.Join(folder, adapterConfigFile))
		if err != nil {
			f.Fatal(err)
		}
		adapter, err := os.ReadFile(filepath.Join(folder, adapterWeightsFile))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, shard, adapter)
	}
	f.Fuzz(func(t *testing.T, index, whole, shard []byte) {
		folder := t.TempDir()
		for name, content := range map[string][]byte{
			configFile: config, indexFile: index, weightsFile: whole, filepath.Base(shards[0]): shard, adapterConfigFile: index, adapterWeightsFile: shard,
		} {
			if name == indexFile && len(content) == 0 {
				continue // so that the file of all weights is read
			}
			if err := os.WriteFile(filepath.Join(folder, name), content, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if m, err := Load(folder, Options{}); err == nil {
			t.Logf("loaded a %s", m.Family())
		}
		m, err := Load("testdata/llama3", Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.LoadLoRA(folder); err == nil {
			t.Log("loaded an adapter")
		}
	})
}
