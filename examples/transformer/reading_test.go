package main

import (
	"flag"
	"go/scanner"
	"go/token"
	"io"
	"strconv"
	"strings"
	"testing"
)

var reading = flag.Bool("reading", false, "train as the program does without flags, for a minute or more, and read what it writes")
var asked = flag.String("asked", "", "with -reading: flags of that training")

// scans tells whether a text consists of tokens of Go. Its last line may be cut off within one.
func scans(text string) bool {
	if end := strings.LastIndexByte(text, '\n'); end > 0 {
		text = text[:end+1]
	}
	var s scanner.Scanner
	files := token.NewFileSet()
	s.Init(files.AddFile("", files.Base(), len(text)), []byte(text), nil, scanner.ScanComments)
	for {
		_, what, literal := s.Scan()
		if what == token.EOF {
			return s.ErrorCount == 0 || unfinished(text)
		}
		if what == token.ILLEGAL && literal != "" {
			return false
		}
	}
}

// unfinished tells that nothing is wrong but a comment or a raw string that the end cuts off.
func unfinished(text string) bool {
	return strings.Count(text, "`")%2 == 1 || strings.LastIndex(text, "/*") > strings.LastIndex(text, "*/")
}

func TestScans(t *testing.T) {
	for text, want := range map[string]bool{
		"func f() {\n\treturn 1 + x\n}\n": true,
		"func f(s \"abc\n":                false,
		"x := 'ab'\ny\n":                  false,
		"x # y\n":                         false,
		"// it's\nx := \"cut":             true,
		"x := `cut\nhere\n":               true,
	} {
		if scans(text) != want {
			t.Errorf("%q scans: %v, want %v", text, !want, want)
		}
	}
}

// What the program has learnt in its minute can be read as Go: eight of ten texts of 200 tokens
// consist of tokens of Go.
func TestWhatItWritesReadsAsGo(t *testing.T) {
	if !*reading {
		t.Skip("it takes minutes; -reading runs it")
	}
	t.Chdir(t.TempDir())
	if err := do(t, strings.Fields(*asked)...); err != nil {
		t.Fatal(err)
	}
	good := 0
	for seed := range 10 {
		s, o, err := parse([]string{"-sample", "func", "-length", "200", "-seed", strconv.Itoa(seed + 1)}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		text := printed(t, func() error {
			return start(t.Context(), s, o)
		})
		read := scans(text)
		t.Logf("seed %d, tokens of Go: %v\n%s", seed+1, read, text)
		if read {
			good++
		}
	}
	if good < 8 {
		t.Errorf("%d of 10 texts consist of tokens of Go, want 8", good)
	}
}
