package tokenizer

import "testing"

// Patterns of Oniguruma mean the same in the engine's language, or are refused.
func TestFromOnig(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          []string
	}{
		{`[^\r\n\p{L}\p{N}]?+\p{L}++|\s++$`, " ab c  ", []string{" ab", " c", "  "}},
		{`a{2}+b`, "aaaab", []string{"aaaab"}},
		{`(?:ab)?+c|x*+`, "abcxx", []string{"abc", "xx"}},
		{`[[:alpha:][:digit:]_]+`, "a1_-b", []string{"a1_", "b"}},
		{`^.`, "ab\nc\n", []string{"a", "c"}},
		{`a{,2}{`, "aa{a{", []string{"aa{", "a{"}},
		{`\x{41}+`, "xAA", []string{"AA"}},
		{`\p{^L}+`, "a12b", []string{"12"}},
		{`[\p{L}]+`, "a\u1c8ab\U0002ebf0!", []string{"a\u1c8ab\U0002ebf0"}},
		{`\bx\b|²`, "x² x", []string{"²", "x"}},
		{`[a[bc]]+`, "xabc", []string{"abc"}},
		{`\h+`, "xyz1fg", []string{"1f"}},
	} {
		find, err := hfRegex(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		var got []string
		if err := find(c.text, func(from, to int) { got = append(got, c.text[from:to]) }); err != nil {
			t.Errorf("%s: %v", c.pattern, err)
		}
		if len(got) != len(c.want) {
			t.Errorf("%s in %q matches %q, want %q", c.pattern, c.text, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s in %q matches %q, want %q", c.pattern, c.text, got, c.want)
				break
			}
		}
	}
	for _, pattern := range []string{`(`, `)`, `[a`, `*`, `\`, `\p`, `\X`, `[a&&b]`, `[[^a]b]`, `[[:what:]]`, `\x{`, `\x{110000}`} {
		if _, err := hfRegex(pattern); err == nil {
			t.Errorf("%s is no error", pattern)
		}
	}
}
