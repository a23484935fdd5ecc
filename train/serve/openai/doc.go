// Package openai serves a language model over HTTP as OpenAI's clients expect it.
//
//	h, err := openai.NewHandler(openai.Config{Name: "gorgon", Model: m, Scheduler: s})
//	err = http.ListenAndServe("localhost:8080", h)
//
// The paths are
//
//	POST /v1/chat/completions   an answer in a conversation
//	POST /v1/completions        what follows a text
//	POST /v1/embeddings         vectors of texts
//	GET  /v1/models             the models that there are
//	GET  /healthz               200 while requests are taken
//	GET  /metrics               numbers for Prometheus
//
// A request may ask for max_tokens (or max_completion_tokens), temperature, top_p, stop, seed, n,
// logprobs, presence_penalty, frequency_penalty and stream; beyond OpenAI's, for top_k, min_p,
// repetition_penalty and stop_token_ids. What it leaves out is as the model's
// generation_config.json says. What is asked for and not done here (tools, formats of answers,
// biases of tokens) is an error that names it. Errors have OpenAI's form.
//
// Several requests are written at once, as package serve says. A client that leaves frees its
// place. [EmbedBy] makes the vectors of embeddings by package embed.
//
// Limits are in [Config]. With a key, all paths but healthz and metrics ask for it. Without one, a
// browser that a page of another site sends is refused, and on a loopback address so is a request
// for any host but this machine: a name of elsewhere may lead here.
//
// A client has 30 seconds to send its request, and as long to take each part of its answer.
package openai
