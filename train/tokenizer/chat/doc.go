// Package chat writes a conversation as the text that a model was trained to answer, by the template that published models
// have beside their tokenizer:
//
//	t, err := chat.Open("SmolLM2-135M-Instruct")
//	text, err := t.Render([]chat.Message{{Role: "user", Content: "What is a gorgon?"}}, chat.Options{Answer: true})
//
// The text has the model's special tokens in it, so a tokenizer encodes it by Encode, which adds none.
//
// # Templates
//
// Templates are written in Jinja; package gonja renders them, with the settings, functions and statements of transformers: blocks
// take their line's white space and line feed with them, raise_exception makes an error, strftime_now gives the date, and generation
// marks what a model has written. The statements are for, if, set, macro, break, continue, raw and generation. An if-else in
// brackets, which gonja does not know, is written otherwise for it. Where it does not understand a template, Open says so and at which
// line.
//
// # Trust
//
// A template is a program, which comes with the model. It cannot read files or change the conversation, and it ends: after 500,000
// steps (turns of loops, calls and operations), 16 MiB of text or of one value, and 512 MiB of values that went through operations,
// Render gives an error. That is seconds at most, and far beyond what a conversation of a thousand messages takes.
package chat
