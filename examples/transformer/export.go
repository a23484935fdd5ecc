package main

import (
	"fmt"
	"os"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/nn/pretrained"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/tokenizer"
)

// export writes the model of a checkpoint, and its tokenizer, as a folder that Python's
// transformers opens, and says which checkpoint it was.
func (s settings) export(folder string, t tokenizer.Tokenizer, c checkpoint.Checkpoint, by string) error {
	if info, err := os.Stat(folder); err == nil && !info.IsDir() {
		return fmt.Errorf("-export %s is a file, it needs to be a folder, or the name of a new one", folder)
	}
	parameters := nn.NewParameters(s.Seed)
	for _, w := range c.Weights {
		if err := parameters.Set(w.Name, w.Value); err != nil {
			return err
		}
	}
	end := -1
	if gpt2, ok := t.(*tokenizer.GPT2); ok {
		if id, found := gpt2.EndOfText(); found {
			end = id
		}
	}
	m, err := pretrained.NewModel(parameters, s.config(t.Size()), end)
	if err != nil {
		return fmt.Errorf("-export of a run with the recipe %q: %w", s.Recipe, err)
	}
	if err := m.Save(folder, pretrained.SaveOptions{}); err != nil {
		return err
	}
	if err := tokenizer.WriteFolder(folder, t); err != nil {
		return err
	}
	fmt.Fprint(os.Stderr, by)
	fmt.Printf("%s is a %s. In Python:\n\n", folder, m.Family())
	fmt.Printf("model = transformers.AutoModelForCausalLM.from_pretrained(%q)\n", folder)
	fmt.Printf("tokenizer = transformers.AutoTokenizer.from_pretrained(%q)\n", folder)
	return nil
}
