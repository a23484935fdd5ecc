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
		{`\p{Han}+|\p{Mn}|\p{So}`, "a\U0002ebf0漢\u0897\u2427", []string{"\U0002ebf0漢", "\u0897", "\u2427"}},
		{`\P{L}+|\p{^Lo}`, "\U0002ebf0!\u1c8a", []string{"!", "\u1c8a"}},
		{`\p{LC}+|[[:alpha:]]+|[[:digit:]]`, "\u1c8aa\U0002ebf0\U00010d40", []string{"\u1c8aa", "\U0002ebf0", "\U00010d40"}},
		{`[[:alpha:]]+|[[:upper:]]|[[:blank:]]`, "क\u093eⅧ\u00a0", []string{"क\u093eⅧ", "\u00a0"}},
		{`\p{Punct}|\p{Upper}|\p{Lower}`, "$.Ⅷª", []string{".", "Ⅷ", "ª"}},
		{`\W|[\W_]`, "a²\u0903\u200d_", []string{"²", "\u200d", "_"}},
		{`[\D\p{^L}[:^lower:]]+`, "1\U00010d40a", []string{"1\U00010d40a"}},
		{`[\P{L}]+|[\D]`, "\u1c8a!\U00010d40", []string{"\u1c8a", "!\U00010d40"}},
		{`\bx\b|²`, "x² x", []string{"²", "x"}},
		{`[a[bc]]+`, "xabc", []string{"abc"}},
		{`\h+`, "xyz1fg", []string{"1f"}},
		{`\R+|b\R`, "a\r\n\u2028b\vc", []string{"\r\n\u2028", "b\v"}},
		{`\p{C}+|[\P{C}&&\d]`, "a\u0001\U000e0fffb1\u0897", []string{"\u0001\U000e0fff", "1"}},
		{`\p{Cn}|\p{^Cn}`, "\u0378a\u0897\ue000", []string{"\u0378", "a", "\u0897", "\ue000"}},
		{`[\p{Cn}]+`, "\u0378a\u0897\ue000", []string{"\u0378"}},
		{`[\p{Lu}\p{Lo}&&[^\p{Han}]]+`, "aAB漢אA", []string{"AB", "אA"}},
		{`[^a-c&&[abx]]+`, "abcxd", []string{"cxd"}},
		{`[a-z&&[^aeiou]&&[^x-z]b-z]+`, "abcxe", []string{"bcx"}},
		{`[b[^\p{L}]]+|[^c[^\p{L}]]`, "ab1c", []string{"a", "b1"}},
		{`[\p{L}&&\p{ASCII}]+`, "aéb", []string{"a", "b"}},
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
	for _, pattern := range []string{`(`, `)`, `[a`, `*`, `\`, `\p`, `\X`, `[a&&]`, `[&&a]`, `[[a&&b]c]`, `[[^[^a]]b]`, `[a\R]`, `[[:what:]]`, `[[:^what:]]`, `\x{`, `\x{110000}`} {
		if _, err := hfRegex(pattern); err == nil {
			t.Errorf("%s is no error", pattern)
		}
	}
}

// Normal forms are those of Unicode 9, and small letters those of Unicode 17, as in Python's
// library.
func TestUnicodeVersions(t *testing.T) {
	for _, c := range []struct{ normalizer, text, want string }{
		{"NFKC", "\u32ff\ufb01\U0001e04d", "\u32fffi\U0001e04d"},
		{"NFD", "\U00011938\u00e9", "\U00011938e\u0301"},
		{"NFC", "e\u1abf\u0301e\u0301", "e\u1abf\u0301\u00e9"}, // the mark between came with Unicode 13
		{"Lowercase", "\ua7d2\U00016ea0", "\ua7d3\U00016ebb"},
		{"Lowercase", "\u1c89\ua7cb\ua7dc\U00010d50A", "\u1c8a\u0264\u019b\U00010d70a"},
	} {
		n := hfNormalizerJSON{Type: c.normalizer}
		normalize, err := n.normalizer()
		if err != nil {
			t.Fatal(err)
		}
		got, err := normalize(hfText{s: c.text, original: c.text})
		if err != nil || got.s != c.want {
			t.Errorf("%s of %+q is %+q, %v, want %+q", c.normalizer, c.text, got.s, err, c.want)
		}
	}
}
