package embed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzSettings makes sure that any small files of a folder are settings, or an error that fits on a
// screen and obeys nothing.
func FuzzSettings(f *testing.F) {
	const pooling, longest = `{"word_embedding_dimension": 4, "pooling_mode_mean_tokens": true}`, `{"max_seq_length": 9, "do_lower_case": true}`
	f.Add(`[{"path": "", "type": "sentence_transformers.models.Transformer"}, {"path": "1", "type": "sentence_transformers.models.Pooling"},
		{"path": "2", "type": "sentence_transformers.models.Normalize"}]`, pooling, longest, `{"prompts": {"query": "q: "}, "default_prompt_name": "query"}`, true)
	f.Add(`[{"path": "", "type": "sentence_transformers.models.Transformer"}, {"path": "1", "type": "sentence_transformers.models.Pooling"}, {"path": "1", "type": "sentence_transformers.models.Dense"}]`, pooling, longest, "{}", false)
	f.Add(`[{"path": "..", "type": "sentence_transformers.Transformer"}]`, "null", "[]", `{"default_prompt_name": "x"}`, false)
	long := strings.Repeat("x", 5000)
	for _, modules := range []string{
		`[{"path": "a\nb", "type": "c\u001b\nd"}]`, `[{"path": "` + long + `", "type": "` + long + `"}]`,
		`[{"type": "sentence_transformers.Transformer"}, {"path": "a\u001bb", "type": "sentence_transformers.Pooling"}]`, `[{"type": "sentence_transformers.Transformer"}, {"path": "` + long + `", "type": "sentence_transformers.Pooling"}]`,
	} {
		f.Add(modules, pooling, longest, "{}", false)
	}
	usual := `[{"type": "sentence_transformers.Transformer"}, {"path": "1", "type": "sentence_transformers.Pooling"}, {"path": "1", "type": "sentence_transformers.Dense"}]`
	for _, pooling := range []string{
		`{"pooling_mode": "` + long + `"}`, "{\"pooling_mode\": [\n1]}", `{"pooling_mode": "mean", "in_features": 1, "out_features": 1, "activation_function": "` + long + `"}`,
		`{"pooling_mode": "mean", "in_features": 1, "out_features": 1, "module_input_name": "` + long + `"}`,
	} {
		f.Add(usual, pooling, longest, "{}", false)
	}
	f.Add(usual[:54]+"]", pooling, longest, `{"default_prompt_name": "`+long+`"}`, false)
	f.Fuzz(func(t *testing.T, modules, pooling, limits, prompts string, decodes bool) {
		folder := t.TempDir()
		if err := os.Mkdir(filepath.Join(folder, "1"), 0o777); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"modules.json": modules, "1/config.json": pooling, "sentence_bert_config.json": limits, "config_sentence_transformers.json": prompts,
		} {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		s, err := readSettings(folder, decodes)
		if err != nil {
			if text := err.Error(); strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) || len(text) > 1000 {
				t.Errorf("the error is %q", text)
			}
			return
		}
		if len(s.pooling.ways) == 0 || s.longest < 0 {
			t.Errorf("the settings are %+v", s)
		}
	})
}
