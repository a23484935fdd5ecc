package sample_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/train/sample"
)

func TestReadConfig(t *testing.T) {
	for _, c := range []struct {
		config string
		want   sample.Options
		err    string
	}{
		{`{"_from_model_config": true, "bos_token_id": 1, "eos_token_id": 2, "transformers_version": "5.0.0"}`, sample.Options{MaxTokens: 256, Stop: []int{2}}, ""},
		{`{"do_sample": true, "temperature": 0.6, "top_p": 0.9, "eos_token_id": [128001, 128009], "max_length": 4096}`,
			sample.Options{MaxTokens: 256, Stop: []int{128001, 128009}, Sampler: sample.SamplerOptions{Temperature: 0.6, TopK: 50, TopP: 0.9}}, ""},
		{`{"do_sample": true, "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1, "no_repeat_ngram_size": 3, "num_beams": 1, "typical_p": 1.0,
			"max_new_tokens": 7, "min_new_tokens": 2, "stop_strings": "END", "suppress_tokens": [5], "bad_words_ids": null}`,
			sample.Options{MaxTokens: 7, MinTokens: 2, StopStrings: []string{"END"}, Suppress: []int{5}, Sampler: sample.SamplerOptions{
				Temperature: 1, TopK: 20, MinP: 0.05, RepetitionPenalty: 1.1, NoRepeat: 3}}, ""},
		{`{"temperature": 0.6}`, sample.Options{MaxTokens: 256}, ""},
		{`{"num_beams": 4}`, sample.Options{}, `unknown field "num_beams"`},
		{`{"penalty_alpha": 0.6}`, sample.Options{}, `unknown field "penalty_alpha"`},
		{`{"do_sample": true, "top_p": 2}`, sample.Options{}, "top p is 2"},
		{`{"eos_token_id": "</s>"}`, sample.Options{}, "eos_token_id"},
		{`[]`, sample.Options{}, "generation_config.json"},
	} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "generation_config.json"), []byte(c.config), 0o666); err != nil {
			t.Fatal(err)
		}
		have, err := sample.ReadConfig(folder)
		if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: the error is %v, want %q", c.config, err, c.err)
		} else if !reflect.DeepEqual(have, c.want) {
			t.Errorf("%s is\n%+v, want\n%+v", c.config, have, c.want)
		}
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(`{"model_type": "llama", "eos_token_id": [7, 8], "temperature": 0.5}`), 0o666); err != nil {
		t.Fatal(err)
	}
	if o, err := sample.ReadConfig(folder); err != nil || !reflect.DeepEqual(o, sample.Options{MaxTokens: 256, Stop: []int{7, 8}}) {
		t.Errorf("with config.json alone: %+v, %v", o, err)
	}
	for config, want := range map[string]string{
		`{"eos_token_id": null, "text_config": {"eos_token_id": [5, 6], "do_sample": true, "top_k": 7}, "top_k": 9}`: "",
		`{"eos_token_id": 3, "num_beams": 4}`:           `unknown field "num_beams"`,
		`{"eos_token_id": 3, "bad_words_ids": [[1]]}`:   `unknown field "bad_words_ids"`,
		`{"eos_token_id": 3, "forced_eos_token_id": 1}`: `unknown field "forced_eos_token_id"`,
	} {
		if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(config), 0o666); err != nil {
			t.Fatal(err)
		}
		o, err := sample.ReadConfig(folder)
		inText := sample.Options{MaxTokens: 256, Stop: []int{5, 6}, Sampler: sample.SamplerOptions{Temperature: 1, TopK: 9}}
		switch {
		case want == "" && (err != nil || !reflect.DeepEqual(o, inText)):
			t.Errorf("with %s alone: %+v, %v", config, o, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("with %s alone: %v, want %q", config, err, want)
		}
	}
	if o, err := sample.ReadConfig(t.TempDir()); err != nil || o.MaxTokens != 256 {
		t.Errorf("without a file: %+v, %v", o, err)
	}
}

// Every field that transformers' GenerationConfig has, in version 5.23, changes the options, is
// refused by its name, or changes nothing.
func TestReadConfigFields(t *testing.T) {
	const base = `{"do_sample": true, "temperature": 0.7, `
	read := func(field, value string) (sample.Options, error) {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "generation_config.json"), []byte(base+`"`+field+`": `+value+"}"), 0o666); err != nil {
			t.Fatal(err)
		}
		return sample.ReadConfig(folder)
	}
	usual, err := read("use_cache", "true")
	if err != nil {
		t.Fatal(err)
	}
	for effect, fields := range map[string]map[string]string{
		"works": {
			"do_sample": "false", "temperature": "0.5", "top_k": "7", "top_p": "0.5", "min_p": "0.1", "repetition_penalty": "1.5", "no_repeat_ngram_size": "2",
			"max_new_tokens": "9", "min_new_tokens": "3", "stop_strings": `["a"]`, "eos_token_id": "[3]", "suppress_tokens": "[4]",
		},
		"refused": {
			"bad_words_ids": "[[1]]", "begin_suppress_tokens": "[1]", "constraints": "[1]", "diversity_penalty": "0.5", "dola_layers": `"low"`, "early_stopping": "true",
			"encoder_no_repeat_ngram_size": "2", "encoder_repetition_penalty": "2", "epsilon_cutoff": "0.1", "eta_cutoff": "0.1",
			"exponential_decay_length_penalty": "[1, 2]", "force_words_ids": "[[1]]", "forced_bos_token_id": "1", "forced_eos_token_id": "1", "guidance_scale": "2",
			"length_penalty": "2", "max_time": "1", "min_length": "3", "num_beam_groups": "2", "num_beams": "2", "num_return_sequences": "2", "penalty_alpha": "0.6",
			"prompt_lookup_num_tokens": "3", "remove_invalid_values": "true", "renormalize_logits": "true", "sequence_bias": "[[[1], 2]]", "token_healing": "true",
			"top_h": "0.4", "typical_p": "0.5", "use_mtp": "true", "watermarking_config": `{"bias": 2}`,
		},
		"idle": {
			"_commit_hash": `"0"`, "_from_model_config": "true", "assistant_confidence_threshold": "0.4", "assistant_early_exit": "2",
			"assistant_ensemble_weight": "0.5", "assistant_lookbehind": "10", "bos_token_id": "1", "cache_config": `{"a": 1}`, "cache_implementation": `"hybrid"`,
			"compile_config": `{"a": 1}`, "continuous_batching_config": `{"a": 1}`, "decoder_start_token_id": "1", "disable_compile": "true", "is_assistant": "true",
			"low_memory": "true", "max_cache_len": "9", "max_length": "20", "max_matching_ngram_size": "2", "num_assistant_tokens": "20",
			"num_assistant_tokens_schedule": `"constant"`, "output_attentions": "true", "output_hidden_states": "true", "output_logits": "true",
			"output_scores": "true", "pad_token_id": "1", "prefill_chunk_size": "64", "return_dict_in_generate": "true", "speculation_type": `"a"`,
			"target_lookbehind": "10", "transformers_version": `"5"`, "use_cache": "false",
		},
	} {
		for field, value := range fields {
			o, err := read(field, value)
			switch isSame := reflect.DeepEqual(o, usual); {
			case effect == "refused" && (err == nil || !strings.Contains(err.Error(), field)):
				t.Errorf("%s of %s: %v, want an error that names it", field, value, err)
			case effect != "refused" && err != nil:
				t.Errorf("%s of %s: %v", field, value, err)
			case effect == "works" && isSame:
				t.Errorf("%s of %s changes nothing", field, value)
			case effect == "idle" && !isSame:
				t.Errorf("%s of %s changes the options to %+v", field, value, o)
			}
		}
	}
}

// What is told of a sampler is what it does to the logits.
func TestPenalties(t *testing.T) {
	logits := []float64{2, 1.9, -1, 0.5, math.Log(0.01) + 2}
	next := func(o sample.SamplerOptions, earlier ...int) int {
		t.Helper()
		before := slices.Clone(logits)
		s := newSampler(t, o)
		s.Follow(earlier)
		id, err := s.Next(logits)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(before, logits) {
			t.Fatal("the caller's logits changed")
		}
		return id
	}
	for _, c := range []struct {
		o       sample.SamplerOptions
		earlier []int
		want    int
	}{
		{sample.SamplerOptions{}, []int{0, 1}, 0},
		{sample.SamplerOptions{RepetitionPenalty: 1.2}, []int{0, 0, 0}, 1},            // once, however often it came
		{sample.SamplerOptions{RepetitionPenalty: 1.2}, []int{0, 1, 99, -1}, 0},       // both, and no others
		{sample.SamplerOptions{RepetitionPenalty: 0.4}, []int{2}, 0},                  // what is negative grows towards 0
		{sample.SamplerOptions{RepetitionPenalty: 5}, []int{0, 1}, 3},                 //
		{sample.SamplerOptions{NoRepeat: 1}, []int{0}, 1},                             // no token twice
		{sample.SamplerOptions{NoRepeat: 2}, []int{3, 0, 1, 3}, 1},                    // 3 0 came, so not 0
		{sample.SamplerOptions{NoRepeat: 3}, []int{3, 0, 1, 3}, 0},                    // 1 3 never came before
		{sample.SamplerOptions{NoRepeat: 3}, []int{1, 3, 0, 2, 1, 3}, 1},              //
		{sample.SamplerOptions{NoRepeat: 2, RepetitionPenalty: 5}, []int{1, 0, 1}, 3}, // 1 0 came, 1 is penalised
	} {
		if have := next(c.o, c.earlier...); have != c.want {
			t.Errorf("%+v after %v chooses %d, want %d", c.o, c.earlier, have, c.want)
		}
	}
	seen := map[int]bool{}
	s := newSampler(t, sample.SamplerOptions{Temperature: 1, MinP: 0.2})
	for range 2000 {
		id, err := s.Next(logits)
		if err != nil {
			t.Fatal(err)
		}
		seen[id] = true
	}
	// e^-1.5 is 0.22 of the most probable, e^-3 0.05.
	if !seen[0] || !seen[1] || !seen[3] || len(seen) != 3 {
		t.Errorf("a min p of 0.2 leaves %v", seen)
	}
	for _, c := range []struct {
		o    sample.SamplerOptions
		want string
	}{
		{sample.SamplerOptions{MinP: 1.5}, "min p is 1.5"}, {sample.SamplerOptions{RepetitionPenalty: -1}, "repetition penalty is -1"},
		{sample.SamplerOptions{NoRepeat: -1}, "no repeat is -1"}, {sample.SamplerOptions{PresencePenalty: math.NaN()}, "presence penalty is NaN"},
		{sample.SamplerOptions{FrequencyPenalty: math.Inf(1)}, "frequency penalty is +Inf"},
	} {
		if _, err := sample.NewSampler(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: the error is %v, want %q", c.o, err, c.want)
		}
	}
}

// Presence and frequency count what was chosen, and not the prompt.
func TestPenaltiesOfChosenTokens(t *testing.T) {
	for _, c := range []struct {
		o    sample.SamplerOptions
		want []int
	}{
		{sample.SamplerOptions{}, []int{0, 0, 0, 0, 0, 0}},
		{sample.SamplerOptions{PresencePenalty: 0.75}, []int{0, 1, 2, 0, 0, 0}},
		{sample.SamplerOptions{FrequencyPenalty: 0.75}, []int{0, 1, 2, 0, 1, 2}},
		{sample.SamplerOptions{FrequencyPenalty: 0.25, PresencePenalty: 0.25}, []int{0, 1, 0, 2, 0, 1}},
		{sample.SamplerOptions{FrequencyPenalty: -1}, []int{0, 0, 0, 0, 0, 0}},
		{sample.SamplerOptions{RepetitionPenalty: 2, PresencePenalty: 0.125}, []int{1, 2, 0, 0, 0, 0}},
	} {
		s := newSampler(t, c.o)
		s.Follow([]int{0, 0, 0, 5})
		for i, want := range c.want {
			if got, err := s.Next([]float64{2, 1.75, 1.5}); err != nil || got != want {
				t.Errorf("%+v: choice %d is %d, %v, want %d", c.o, i, got, err, want)
				break
			}
		}
	}
}

// A text ends where a stop string begins, wherever tokens divide it, and what looked like one is
// written.
func TestStopStrings(t *testing.T) {
	vocab := pieces{"a", "S", "T", "OP", "!", "x"}
	for _, c := range []struct {
		wants []int
		o     sample.Options
		want  string
	}{
		{[]int{0, 1, 2, 3, 4}, sample.Options{StopStrings: []string{"STOP"}}, "a"},
		{[]int{0, 1, 1, 2, 3, 4}, sample.Options{StopStrings: []string{"STOP"}}, "aS"},
		{[]int{0, 1, 2, 4, 5}, sample.Options{StopStrings: []string{"STOP"}}, "aST!x"},
		{[]int{0, 1, 2}, sample.Options{StopStrings: []string{"STOP"}}, "aST"},
		{[]int{0, 4, 5, 1}, sample.Options{StopStrings: []string{"STOP", "x", "!x"}}, "a"},
		{[]int{5, 0, 5, 0}, sample.Options{Stop: []int{5}, MinTokens: 1}, "aa"}, // the first choice is another
		{[]int{5, 0, 5, 0}, sample.Options{Suppress: []int{5}}, "aaaa"},
	} {
		c.o.MaxTokens = len(c.wants)
		c.o.Start = []int{0}
		var out bytes.Buffer
		if err := sample.Generate(t.Context(), &script{vocab: len(vocab), wants: c.wants}, vocab, "", c.o, sample.Write(&out)); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("%v with %+v is %q, want %q", c.wants, c.o, out.String(), c.want)
		}
	}
	for _, o := range []sample.Options{{MaxTokens: 1, MinTokens: -1}, {MaxTokens: 1, StopStrings: []string{""}}} {
		o.Start = []int{0}
		if err := sample.Generate(t.Context(), &script{vocab: len(vocab), wants: []int{0}}, vocab, "", o, sample.Write(&bytes.Buffer{})); err == nil {
			t.Errorf("%+v is no error", o)
		}
	}
}
