// Package serve lets a published model answer: one conversation at a time, or many requests at
// once.
//
// A [Model] is what a model's folder says of how to talk to it: weights, tokenizer, template of
// conversations, tokens that end an answer.
//
//	m, err := serve.Open(ctx, serve.ModelConfig{Folder: "hub:HuggingFaceTB/SmolLM2-135M-Instruct"})
//	prompt, err := m.Prompt([]chat.Message{{Role: "user", Content: "What is a gorgon?"}})
//
// A [Scheduler] joins requests that come at any time into the batch of one decoder. A text that
// ends, or whose reader leaves, makes room for the next while the others go on:
//
//	decoder, err := m.NewBatchDecoder(16, m.Capacity)
//	s, err := serve.NewScheduler(serve.SchedulerConfig{Decoder: decoder, Tokenizer: m.Tokenizer})
//	go s.Run(ctx)
//	err = s.Generate(ctx, prompt, m.Options, func(t sample.Token) error { fmt.Print(t.Text); return nil })
//
// Each text has the tokens that it has alone, up to the rounding of products of other numbers of
// rows. A prompt that begins as an earlier one did goes on from what is kept of that: a
// conversation costs its last message, and several answers to one prompt cost that prompt once.
//
// Package openai, below this one, serves it over HTTP.
package serve
