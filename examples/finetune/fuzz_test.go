package main

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/smallmodel"
	"github.com/stheno-ml/stheno/train/data"
)

// FuzzLines makes sure that any .jsonl file is documents that can be packed, or an error of one
// line that is not longer than what it quotes.
func FuzzLines(f *testing.F) {
	for _, line := range []string{
		`{"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Stheno."}]}`,
		`{"messages": [{"role": "system", "content": [{"type": "text", "text": "a"}]}, {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}]}`,
		`{"prompt": "Who?", "completion": "Stheno."}`, `{"text": "The strong one."}`, `{"instruction": "a", "input": "b", "output": "c"}`,
		`{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "<|im_end|>"}]}`, "{}\n[]\nnull", `{"text": "\ud800"}`,
	} {
		f.Add([]byte(line+"\n"+line), true)
		f.Add([]byte(line), false)
	}
	read := map[bool]*corpus{}
	for _, chat := range []bool{false, true} {
		c, err := readCorpus(settings{Data: chats(f), Context: 64}, smallmodel.Llama(f, true))
		if err != nil {
			f.Fatal(err)
		}
		if read[chat] = c; !chat {
			c.template = nil
		}
	}
	f.Fuzz(func(t *testing.T, content []byte, chat bool) {
		c := read[chat]
		c.questions = map[*int]string{}
		documents, err := c.lines(content)
		if err != nil {
			if text := err.Error(); strings.ContainsAny(text, "\n\x1b") || len(text) > 1000 {
				t.Errorf("the error is %q", text)
			}
			return
		}
		for _, d := range documents {
			if d.Learn != nil && len(d.Learn) != len(d.Tokens) {
				t.Fatalf("of %d tokens %d say whether to learn them", len(d.Tokens), len(d.Learn))
			}
		}
		if batches, err := data.Pack(documents, 2, 16, 1); err == nil {
			if _, err := batches.Batch(0); err != nil {
				t.Error(err)
			}
		}
	})
}
