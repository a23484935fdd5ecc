// Package chat writes a conversation as the text that a model was trained to answer, by the
// template that published models have beside their tokenizer:
//
//	t, err := chat.Open("SmolLM2-135M-Instruct")
//	text, err := t.Render([]chat.Message{{Role: "user", Content: "What is a gorgon?"}}, chat.Options{Answer: true})
//
// The text has the model's special tokens in it, so a tokenizer encodes it by Encode, which adds
// none.
//
// # Templates
//
// Templates are written in Jinja. An interpreter of our own renders them as transformers does, with
// the values of Python: objects keep the order of their keys, tojson writes what Python's json
// does, and what is undefined fails where it fails there. The variables tools and documents are
// always given, as None unless [Options] has them. raise_exception makes an error, strftime_now
// gives the date, and generation marks what a model has written. Templates that include or import
// others, or have blocks, are refused. Where a template cannot be read, Open says so and at which
// line.
//
// Numbers are JSON's: float64(5) is the integer 5 for a template. Invalid UTF-8 becomes U+FFFD.
//
// # Trust
//
// A template is a program, which comes with the model. It cannot read files or change the
// conversation, and it ends: Render gives an error after 5 million steps, 16 MiB of text or of one
// value, and 512 MiB of all values. That is seconds at most, and far beyond what a conversation of
// a thousand messages takes.
package chat
