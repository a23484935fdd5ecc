// Package sample makes text with a language model: a [Sampler] chooses a token by the model's
// logits, and [Generate] feeds it back, token after token, and gives the text as it comes.
//
//	decoder, err := nn.NewDecoder(nn.DecoderConfig{
//		Parameters: parameters, Model: func(s *nn.Scope) nn.CachedModel { return nn.NewGPT(s, config) },
//	})
//	err = sample.Generate(ctx, decoder, tokenizer, "func main", sample.Options{
//		Sampler: sample.SamplerOptions{Temperature: 0.8, TopK: 40, Seed: 1},
//		MaxTokens: 300,
//	}, sample.Write(os.Stdout))
//
// A decoder that chooses tokens where it computes, as that of package nn does, is asked for tokens,
// and otherwise for logits: the text is the same.
//
// Each [Token] comes with its text, and if asked with its log-probability and those of the most
// probable tokens. The text ends by a token, by a string or by a number of tokens.
//
// [GenerateBatch] continues several prompts at once, which costs little more than one: a model's
// parameters are read once for all. A [Text] is for programs that run the model themselves, as
// package serve does for requests that come at any time. [ReadConfig] reads the options that a
// published model's folder has in generation_config.json.
//
// [Beams] looks for the most probable text instead, as is usual of models that translate.
//
// The same model, prompt and options give the same text. A [github.com/stheno-ml/stheno/nn.Decoder]
// sees the parameters that training changes, so one of them serves for looking at a model while it
// trains, between two steps.
package sample
