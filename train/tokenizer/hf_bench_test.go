package tokenizer_test

import (
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/train/tokenizer"
)

var (
	tokenizerPath = flag.String("tokenizer", "", "the tokenizer.json that BenchmarkEncode reads")
	textPath      = flag.String("text", "", "the text that BenchmarkEncode encodes")
	idsPath       = flag.String("ids", "", "the file that BenchmarkEncode writes the ids to, as uint32")
)

// BenchmarkEncode encodes a text as bench/pretrained/encode.py has it, which compares the speed and
// the ids with other libraries'.
func BenchmarkEncode(b *testing.B) {
	if *tokenizerPath == "" || *textPath == "" {
		b.Skip("-tokenizer and -text name no files")
	}
	tok, err := tokenizer.OpenHuggingFace(*tokenizerPath)
	if err != nil {
		b.Fatal(err)
	}
	content, err := os.ReadFile(*textPath)
	if err != nil {
		b.Fatal(err)
	}
	text := string(content)
	var ids []int
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if ids, err = tok.Encode(text); err != nil {
			b.Fatal(err)
		}
	}
	if *idsPath == "" {
		return
	}
	var out []byte
	for _, id := range ids {
		out = binary.LittleEndian.AppendUint32(out, uint32(id))
	}
	if err := os.WriteFile(*idsPath, out, 0o666); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkHuggingFace encodes the sources and comments of this package, over and over, up to a
// megabyte.
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
