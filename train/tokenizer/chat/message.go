package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/stheno-ml/stheno/train/tokenizer/chat/internal/jinja"
)

// Message is what someone said. As JSON it is an object with role, content and the fields beside
// them, in the order in which they were read.
type Message struct {
	Role string // such as "system", "user" or "assistant"
	// Content is a text, nil for none, or the parts of it that the template knows: values that JSON
	// can hold.
	Content any
	// Fields are further fields that the template knows, such as tool_calls: values that JSON can
	// hold.
	Fields map[string]any

	read []string // the names in the order of the JSON that the message was read from
}

// pairs are the message's fields in their order. Role and content are left out where they were not
// read and are not set.
func (m Message) pairs() jinja.Object {
	var o jinja.Object
	add := func(name string) {
		switch name {
		case "role":
			o = append(o, jinja.Pair{Name: name, Value: m.Role})
		case "content":
			o = append(o, jinja.Pair{Name: name, Value: m.Content})
		default:
			if value, ok := m.Fields[name]; ok {
				o = append(o, jinja.Pair{Name: name, Value: value})
			}
		}
	}
	for _, name := range m.read {
		add(name)
	}
	inOrder := map[string]bool{}
	for _, name := range m.read {
		inOrder[name] = true
	}
	known := func(name string) bool { return inOrder[name] }
	if !known("role") && (m.read == nil || m.Role != "") {
		add("role")
	}
	if !known("content") && (m.read == nil || m.Content != nil) {
		add("content")
	}
	for _, name := range slices.Sorted(maps.Keys(m.Fields)) {
		if !known(name) && name != "role" && name != "content" {
			add(name)
		}
	}
	return o
}

// UnmarshalJSON reads a message from an object.
func (m *Message) UnmarshalJSON(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if t, err := decoder.Token(); err != nil || t != json.Delim('{') {
		return errors.Join(err, fmt.Errorf("a message is %.40s, it needs to be an object", text))
	}
	read, seen := Message{read: []string{}}, map[string]bool{}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return err
		}
		key := name.(string)
		if !seen[key] {
			seen[key] = true
			read.read = append(read.read, key)
		}
		if err := read.field(key, value); err != nil {
			return err
		}
	}
	*m = read
	return nil
}

func (m *Message) field(name string, value json.RawMessage) error {
	switch name {
	case "role":
		if err := json.Unmarshal(value, &m.Role); err != nil {
			return fmt.Errorf("a message's role is %.40s, it needs to be a text", value)
		}
	case "content":
		m.Content = value
		var text string
		switch {
		case string(value) == "null":
			m.Content = nil
		case json.Unmarshal(value, &text) == nil:
			m.Content = text
		}
	default:
		if m.Fields == nil {
			m.Fields = map[string]any{}
		}
		m.Fields[name] = value
	}
	return nil
}

// MarshalJSON writes the message as an object.
func (m Message) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	write := func(v any) error {
		text, err := json.Marshal(v)
		b.Write(text)
		return err
	}
	b.WriteString("{")
	for i, p := range m.pairs() {
		if i > 0 {
			b.WriteString(",")
		}
		err := write(p.Name)
		b.WriteString(":")
		if err = errors.Join(err, write(p.Value)); err != nil {
			return nil, fmt.Errorf("the message's %s: %w", p.Name, err)
		}
	}
	b.WriteString("}")
	return b.Bytes(), nil
}
