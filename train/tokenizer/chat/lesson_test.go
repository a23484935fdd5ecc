package chat_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/train/tokenizer"
	"github.com/stheno-ml/stheno/train/tokenizer/chat"
)

const chatML = `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

// forgetful leaves out all answers but the last.
const forgetful = `{% for m in messages %}{% if m.role == 'assistant' and not loop.last %}A: ...
{% elif m.role == 'assistant' %}A: {{ m.content }}
{% else %}Q: {{ m.content }}
{% endif %}{% endfor %}{% if add_generation_prompt %}A: {% endif %}`

func TestLessons(t *testing.T) {
	content, err := os.ReadFile("../testdata/huggingface/llama3.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct{ Tokenizer json.RawMessage }
	if err := json.Unmarshal(content, &golden); err != nil {
		t.Fatal(err)
	}
	h, err := tokenizer.ReadHuggingFace(bytes.NewReader(golden.Tokenizer))
	if err != nil {
		t.Fatal(err)
	}
	conversation := []chat.Message{
		{Role: "user", Content: "Who are you?"}, {Role: "assistant", Content: "Stheno, the strong one."},
		{Role: "user", Content: "And the others?"}, {Role: "assistant", Content: "Euryale and Medusa."},
	}
	for _, c := range []struct {
		name, template string
		want           []string // what is to be learnt of each lesson
		prompts        []string // how what comes before it begins
	}{
		{"chatml", chatML, []string{"Stheno, the strong one.<|im_end|>\nEuryale and Medusa.<|im_end|>\n"}, []string{"<|im_start|>user\nWho"}},
		{"forgetful", forgetful, []string{"Stheno, the strong one.\n", "Euryale and Medusa.\n"}, []string{"Q: Who are you?\nA: ", "Q: Who are you?\nA: ...\nQ: And the others?\nA: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			template, err := chat.New(c.template, nil)
			if err != nil {
				t.Fatal(err)
			}
			lessons, err := template.Lessons(h, conversation, chat.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(lessons) != len(c.want) {
				t.Fatalf("there are %d lessons, want %d", len(lessons), len(c.want))
			}
			for i, l := range lessons {
				var learnt, all []int
				for at, id := range l.Tokens {
					if all = append(all, id); l.Learn[at] {
						learnt = append(learnt, id)
					}
				}
				have, err := h.Decode(learnt)
				if err != nil {
					t.Fatal(err)
				}
				text, err := h.Decode(all)
				if err != nil {
					t.Fatal(err)
				}
				if have != c.want[i] {
					t.Errorf("lesson %d teaches %q, want %q", i, have, c.want[i])
				}
				if !strings.HasPrefix(text, c.prompts[i]) {
					t.Errorf("lesson %d is %q, want it to begin with %q", i, text, c.prompts[i])
				}
			}
		})
	}
	for _, c := range []struct {
		template, want string
		messages       []chat.Message
	}{
		{chatML, `there is no message of the role "assistant"`, conversation[:1]},
		{"{% if add_generation_prompt %}Speak: {% endif %}{% for m in messages %}{{ m.content }}{% endfor %}", "does not begin answer 1 as it asks for one", conversation[:2]},
		{"{{ raise_exception('no') }}", "no", conversation},
	} {
		template, err := chat.New(c.template, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := template.Lessons(h, c.messages, chat.Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v, want %q", c.template, err, c.want)
		}
	}
}
