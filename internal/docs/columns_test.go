package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// columns is how long a line of prose may be. A tab counts as four.
const columns = 100

// Lines of prose end at 100 columns, in pages and in comments that have a line of their own. Code,
// tables, what a test prints, and a word that is longer by itself go on.
func TestProseEndsAtColumn100(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); name == ".git" || name == "testdata" || name == "results" {
				return filepath.SkipDir
			}
			return nil
		}
		var prose func(lines []string) []int
		switch filepath.Ext(path) {
		case ".md":
			prose = proseOfPage
		case ".go":
			prose = proseOfSource
		default:
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines := strings.Split(string(content), "\n")
		if strings.HasPrefix(lines[0], "// Code generated") {
			return nil
		}
		for _, n := range prose(lines) {
			if tooLong(lines[n]) {
				t.Errorf("%s:%d: %s", path, n+1, lines[n])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	fence   = regexp.MustCompile("^\\s*(```|~~~)")
	noProse = regexp.MustCompile(`^\s*(\||#|<|>|!\[|\[[^\]]+\]:)|^( {4}|\t)\S`)
	inCode  = regexp.MustCompile("`[^`]*`")
)

func proseOfPage(lines []string) (prose []int) {
	fenced := false
	for i, line := range lines {
		if fence.MatchString(line) {
			fenced = !fenced
		}
		if !fenced && !noProse.MatchString(line) {
			prose = append(prose, i)
		}
	}
	return prose
}

func proseOfSource(lines []string) (prose []int) {
	quoted, printed := false, false
	for i, line := range lines {
		text, comment := strings.CutPrefix(strings.TrimSpace(line), "// ")
		if !strings.HasPrefix(strings.TrimSpace(line), "//") {
			printed = false
			quoted = quoted != (strings.Count(line, "`")%2 == 1)
			continue
		}
		printed = printed || strings.HasPrefix(text, "Output:") || strings.HasPrefix(text, "Unordered output:")
		if comment && !quoted && !printed && text != "" && text[0] != ' ' {
			prose = append(prose, i)
		}
	}
	return prose
}

// tooLong reports whether a line goes on after the last column though it could have ended before.
func tooLong(line string) bool {
	line = strings.ReplaceAll(line, "\t", "    ")
	if utf8.RuneCountInString(line) <= columns {
		return false
	}
	body := inCode.ReplaceAllStringFunc(line, func(code string) string { return strings.ReplaceAll(code, " ", "x") })
	words := strings.Fields(strings.TrimLeft(strings.TrimSpace(body), "/-*"))
	return len(words) > 1
}
