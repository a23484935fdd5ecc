package serve_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stheno-ml/stheno/internal/smallmodel"
	"github.com/stheno-ml/stheno/train/sample"
	"github.com/stheno-ml/stheno/train/serve"
	"github.com/stheno-ml/stheno/train/tokenizer/chat"
)

// A folder of which any file is endless is an error, or a model that does without the file.
func TestEndlessFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no file without an end")
	}
	for _, name := range []string{
		"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
		"chat_template.jinja", "additional_chat_templates/tool_use.jinja", "model.safetensors.index.json", "adapter_config.json", "tokenizer.model", "tekken.json",
	} {
		folder := smallmodel.Llama(t, true)
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := os.Symlink("/dev/zero", path); err != nil {
			t.Skip(err)
		}
		if _, err := sample.ReadConfig(folder); err == nil && name == "generation_config.json" {
			t.Errorf("%s: options are read of it", name)
		}
		if _, err := chat.Open(folder); err == nil && filepath.Ext(name) == ".jinja" {
			t.Errorf("%s: a template is read of it", name)
		}
		m, err := serve.Open(t.Context(), serve.ModelConfig{Folder: folder, Device: "cpu"})
		if required := name == "config.json" || name == "model.safetensors" || name == "tokenizer.json"; required && err == nil {
			t.Errorf("%s: there is a model %v", name, m.Folder())
		}
	}
}
