package tokenizer_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkHuggingFace encodes the sources and comments of this package, over and over, up to a megabyte.
func BenchmarkHuggingFace(b *testing.B) {
	paths, err := filepath.Glob("*.go")
	if err != nil {
		b.Fatal(err)
	}
	var all strings.Builder
	for all.Len() < 1<<20 {
		for _, path := range paths {
			content, err := os.ReadFile(path)
			if err != nil {
				b.Fatal(err)
			}
			all.Write(content)
		}
	}
	text := all.String()[:1<<20]
	for _, name := range hfKinds {
		b.Run(name, func(b *testing.B) {
			_, tok := readHFGolden(b, name)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tok.Encode(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
