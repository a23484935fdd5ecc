package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"unicode/utf8"
)

// The kinds of all characters are those of Hugging Face's tokenizers 0.23: what it did with each of
// them between two letters gave these numbers and digests.
func TestKindsOfCharacters(t *testing.T) {
	for _, c := range []struct {
		name   string
		is     func(rune) bool
		count  int
		digest string
	}{
		{"dropped by BERT's cleaning", func(r rune) bool { return r == 0 || r == utf8.RuneError || isControl(r) }, 137681, "a7cfa1a7eae84310"},
		{"punctuation", isPunctuation, 726, "511d9bb3a5a2dc55"},
		{"accents to BERT", isAccent, 1567, "2aaced7736e435d6"},
		{"marks", isMark, 2097, "d672a4289d6bb11f"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all, count := sha256.New(), 0
			for r := rune(0); r <= utf8.MaxRune; r++ {
				if utf8.ValidRune(r) && c.is(r) {
					all.Write([]byte{byte(r >> 16), byte(r >> 8), byte(r)})
					count++
				}
			}
			if digest := hex.EncodeToString(all.Sum(nil)[:8]); count != c.count || digest != c.digest {
				t.Errorf("%d characters with digest %s, want %d with %s", count, digest, c.count, c.digest)
			}
		})
	}
}
