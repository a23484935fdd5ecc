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
// Templates are written in Jinja; package gonja renders them, with the settings and functions of transformers: blocks take
// their line's white space and line feed with them, raise_exception makes an error, and strftime_now gives the date. Where
// gonja does not understand a template, Open says so and at which line: an if-else in parentheses, as in Gemma 3's, is such
// a case.
//
// # Trust
//
// A template is a program. It cannot read files, what it writes is limited to 16 MiB, and a range to 100,000 numbers, but
// loops within loops may take as long as they like.
package chat
