package data_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/train/data"
	"pgregory.net/rapid"
)

// all is what tokens hold.
func all(t interface{ Fatal(...any) }, tokens *data.Tokens) []int {
	ids := make([]int, tokens.Len())
	if err := tokens.Copy(ids, 0); err != nil {
		t.Fatal(err)
	}
	return ids
}

// count is tokens 0, 1, 2, ...: each is its own position.
func count(t interface{ Fatal(...any) }, n int) *data.Tokens {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = i
	}
	tokens, err := data.FromInts(ids)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// check compares an error with the text that it needs to hold; an empty text means none.
func check(t *testing.T, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v instead of %q", err, want)
	}
}

func TestTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		largest := rapid.SampledFrom([]int{10, math.MaxUint16, math.MaxUint16 + 1, math.MaxInt32}).Draw(t, "largest")
		ids := rapid.SliceOfN(rapid.IntRange(0, largest), 0, 50).Draw(t, "ids")
		tokens, err := data.FromInts(ids)
		if err != nil {
			t.Fatal(err)
		}
		from := rapid.IntRange(0, len(ids)).Draw(t, "from")
		to := rapid.IntRange(from, len(ids)).Draw(t, "to")
		part, err := tokens.Slice(from, to)
		if err != nil {
			t.Fatal(err)
		}
		want := ids[from:to]
		if got := all(t, part); !slices.Equal(got, want) || part.Len() != len(want) {
			t.Fatalf("Slice(%d, %d) of %v holds %v", from, to, ids, got)
		}
		for i, id := range want {
			if part.At(i) != id {
				t.Fatalf("At(%d) of %v is %d", i, want, part.At(i))
			}
		}
		if largest := slices.Max(append([]int{-1}, want...)); part.Max() != largest {
			t.Fatalf("Max of %v is %d", want, part.Max())
		}
		fraction := rapid.Float64Range(0, 1).Draw(t, "fraction")
		train, validation, err := part.Split(fraction)
		if err != nil {
			t.Fatal(err)
		}
		if train.Len() != int(float64(len(want))*fraction) || !slices.Equal(append(all(t, train), all(t, validation)...), want) {
			t.Fatalf("Split(%v) of %v is %v and %v", fraction, want, all(t, train), all(t, validation))
		}
	})
}

func TestTokensErrors(t *testing.T) {
	tokens := count(t, 10)
	cases := map[string]struct {
		call func() error
		want string
	}{
		"negative id":    {func() error { _, err := data.FromInts([]int{3, -1}); return err }, "FromInts: id 1 is -1"},
		"large id":       {func() error { _, err := data.FromInts([]int{math.MaxInt}); return err }, "from 0 to 2147483647"},
		"odd bytes":      {func() error { _, err := data.FromBytes(make([]byte, 3)); return err }, "FromBytes: b has 3 bytes"},
		"slice before":   {func() error { _, err := tokens.Slice(-1, 2); return err }, "from is -1 and to is 2"},
		"slice past":     {func() error { _, err := tokens.Slice(1, 11); return err }, "from 0 to 10"},
		"slice reversed": {func() error { _, err := tokens.Slice(3, 2); return err }, "in order"},
		"split nan":      {func() error { _, _, err := tokens.Split(math.NaN()); return err }, "fraction is NaN"},
		"split above":    {func() error { _, _, err := tokens.Split(1.5); return err }, "from 0 to 1"},
		"copy past":      {func() error { return tokens.Copy(make([]int, 3), 8) }, "from is 8"},
		"copy before":    {func() error { return tokens.Copy(make([]int, 3), -1) }, "from is -1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { check(t, c.call(), c.want) })
	}
	for _, i := range []int{-1, 10} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("At(%d) of 10 does not panic", i)
				}
			}()
			tokens.At(i)
		}()
	}
}

func TestFromBytes(t *testing.T) {
	tokens, err := data.FromBytes([]byte{1, 0, 0xff, 0xff, 0x34, 0x12})
	if err != nil {
		t.Fatal(err)
	}
	if got := all(t, tokens); !slices.Equal(got, []int{1, 65535, 0x1234}) {
		t.Errorf("the tokens are %v", got)
	}
}

func TestWriteOpen(t *testing.T) {
	small, large := []int{0, 65535, 7, 50256, 1}, []int{0, 65536, 128255, math.MaxInt32}
	cases := map[string]struct {
		ids    []int
		format data.Format
		size   int
	}{
		"raw":     {small, data.Raw, 2 * 5},
		"one":     {small[:1], data.Raw, 2},
		"llm.c":   {small, data.LLMC, 1024 + 2*5},
		"llm.c32": {large, data.LLMC32, 1024 + 4*4},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokens.bin")
			tokens, err := data.FromInts(c.ids)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time over the file that the tokens are mapped from
				if err := data.Write(path, tokens, c.format); err != nil {
					t.Fatal(err)
				}
				if info, err := os.Stat(path); err != nil || info.Size() != int64(c.size) {
					t.Fatalf("the file is %v, %v, it needs to have %d bytes", info, err, c.size)
				}
				opened, err := data.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				if got := all(t, opened); !slices.Equal(got, c.ids) {
					t.Fatalf("the file holds %v instead of %v", got, c.ids)
				}
				if tokens.Close() != nil {
					t.Fatal("the tokens do not close")
				}
				tokens = opened
			}
			train, _, err := tokens.Split(0.5)
			if err != nil {
				t.Fatal(err)
			}
			for _, tokens := range []*data.Tokens{tokens, tokens, train} {
				if err := tokens.Close(); err != nil {
					t.Error(err)
				}
			}
			check(t, train.Copy(nil, 0), "closed")
			check(t, data.Write(path, tokens, c.format), "closed")
			if left, err := filepath.Glob(path + ".*"); err != nil || len(left) > 0 {
				t.Errorf("%v is left behind", left)
			}
		})
	}
}

func TestWriteErrors(t *testing.T) {
	directory := t.TempDir()
	path := filepath.Join(directory, "tokens.bin")
	if err := data.Write(path, count(t, 3), data.Raw); err != nil {
		t.Fatal(err)
	}
	large, err := data.FromInts([]int{1, 70000})
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		path   string
		tokens *data.Tokens
		format data.Format
		want   string
	}{
		"id raw":       {path, large, data.Raw, "the id 70000, the format has at most 65535"},
		"id llm.c":     {path, large, data.LLMC, "the id 70000"},
		"none":         {path, count(t, 0), data.Raw, "empty"},
		"nil":          {path, nil, data.Raw, "nil"},
		"format":       {path, count(t, 3), 9, "format is 9"},
		"no directory": {filepath.Join(directory, "none", "tokens.bin"), count(t, 3), data.Raw, "Write: "},
		"directory":    {directory, count(t, 3), data.Raw, directory},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			check(t, data.Write(c.path, c.tokens, c.format), c.want)
			kept, err := data.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer kept.Close()
			if got := all(t, kept); !slices.Equal(got, []int{0, 1, 2}) {
				t.Errorf("the file before it holds %v now", got)
			}
		})
	}
}

// llmc is a file of llm.c with that header and so many bytes after it.
func llmc(size int, words ...uint32) []byte {
	content := make([]byte, 1024+size)
	for i, word := range words {
		binary.LittleEndian.PutUint32(content[4*i:], word)
	}
	return content
}

func TestOpenErrors(t *testing.T) {
	negative := -1
	cases := map[string]struct {
		content []byte
		want    string
	}{
		"empty":        {nil, "is empty"},
		"odd":          {make([]byte, 7), "has 7 bytes"},
		"text":         {[]byte(prose), "holds text, it needs to hold tokens"},
		"short header": {llmc(0, 20240520, 1, 1)[:1023], "only 1023 bytes, its header alone needs 1024"},
		"magic alone":  {llmc(0, 20240801)[:4], "only 4 bytes"},
		"version":      {llmc(2, 20240520, 7, 1), "version 7"},
		"version 32":   {llmc(4, 20240801, 1, 1), "it needs to be version 7"},
		"no tokens":    {llmc(0, 20240520, 1, 0), "0 tokens"},
		"negative":     {llmc(2, 20240520, 1, uint32(negative)), "-1 tokens"},
		"too few":      {llmc(6, 20240520, 1, 4), "has 1030 bytes, the 4 tokens of its header need 1032"},
		"too many":     {llmc(10, 20240520, 1, 4), "need 1032"},
		"width":        {llmc(8, 20240801, 7, 4), "need 1040"},
		"huge":         {llmc(8, 20240801, 7, math.MaxInt32), "need 8589935612"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokens.bin")
			if err := os.WriteFile(path, c.content, 0o666); err != nil {
				t.Fatal(err)
			}
			_, err := data.Open(path)
			check(t, err, c.want)
			check(t, err, "Open: "+path)
		})
	}
	_, err := data.Open(filepath.Join(t.TempDir(), "missing.bin"))
	check(t, err, "missing.bin: ")
	_, err = data.Open(t.TempDir())
	check(t, err, "is a folder")
	_, err = data.Open(os.DevNull)
	check(t, err, os.DevNull+" is a device")
	_, err = data.FromBytes([]byte(prose))
	check(t, err, "FromBytes: b holds text")
}

// prose is what people take for tokens.
var prose = strings.Repeat("Nicht alles, was zählt, ist zählbar. 可数的未必算数。\n", 40)

// Write writes what Open reads as the same tokens, or nothing.
func TestWriteWhatCannotBeOpened(t *testing.T) {
	for name, c := range map[string]struct {
		ids  []int
		want string
	}{
		"llm.c's magic": {[]int{20240520 & 0xFFFF, 20240520 >> 16, 7, 8}, "begins with the ids 55432 and 308"},
		"the other":     {[]int{20240801 & 0xFFFF, 20240801 >> 16}, "begins with the ids 55713 and 308"},
		"text":          {slices.Repeat([]int{'a' | ' '<<8}, 1000), "begins with the ids 8289 and 8289"},
	} {
		tokens, err := data.FromInts(c.ids)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "tokens.bin")
		check(t, data.Write(path, tokens, data.Raw), c.want)
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: a file is there", name)
		}
		if err := data.Write(path, tokens, data.LLMC); err != nil {
			t.Fatal(err)
		}
		again, err := data.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(all(t, again), c.ids) {
			t.Errorf("%s: read again, the tokens differ", name)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A link that somebody laid where Write once put its temporary file is not followed.
func TestWriteFollowsNoLink(t *testing.T) {
	folder := t.TempDir()
	path, victim := filepath.Join(folder, "tokens.bin"), filepath.Join(folder, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{path + ".tmp", path} {
		if err := os.Symlink(victim, link); err != nil {
			t.Skip("there are no links")
		}
	}
	if err := data.Write(path, count(t, 10), data.Raw); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(victim); err != nil || string(content) != "precious" {
		t.Errorf("the linked file holds %q, %v", content, err)
	}
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Size() != 20 {
		t.Errorf("the tokens are in %v, %v", info, err)
	}
}

// Whatever a file holds, it is refused or its tokens are those of its bytes.
func FuzzOpen(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 2, 3, 4})
	f.Add(llmc(8, 20240520, 1, 4))
	f.Add(llmc(16, 20240801, 7, 4))
	f.Add(llmc(16, 20240801, 7, 0xffffffff))
	f.Fuzz(func(t *testing.T, content []byte) {
		tokens, err := data.ParseIDs(content)
		if err != nil {
			return
		}
		body, width := content, 2
		if len(content) >= 1024 {
			switch binary.LittleEndian.Uint32(content) {
			case 20240520:
				body = content[1024:]
			case 20240801:
				body, width = content[1024:], 4
			}
		}
		if tokens.Len()*width != len(body) {
			t.Fatalf("%d bytes hold %d tokens of %d bytes", len(body), tokens.Len(), width)
		}
		for i, id := range all(t, tokens) {
			var want int
			for j := range width {
				want |= int(body[width*i+j]) << (8 * j)
			}
			if id != want {
				t.Fatalf("token %d is %d instead of %d", i, id, want)
			}
		}
	})
}
