package parquet_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/train/data/prepare/internal/parquet"
)

// texts are those of testdata/golden.py, and which of the rows they are.
func texts(required bool) (list []string) {
	row := 0
	for i := range 60 {
		switch {
		case i%7 == 3:
			if !required {
				row++
			}
			continue
		case i%11 == 5:
			list = append(list, fmt.Sprint(row+1, ":"))
		default:
			list = append(list, fmt.Sprint(row+1, ":row ", i, " ", strings.Repeat("é", i%19)))
		}
		row++
	}
	return list
}

// read is the texts of a file and their rows.
func read(content []byte, column string) (list []string, err error) {
	err = parquet.Read(bytes.NewReader(content), int64(len(content)), column, func(text []byte, row, _ int64) error {
		list = append(list, fmt.Sprintf("%d:%s", row, text))
		return nil
	})
	return list, err
}

// Files that PyArrow wrote have the texts that it wrote.
func TestAsPyArrowWrote(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.parquet")
	if err != nil || len(paths) < 14 {
		t.Fatalf("there are %d files: %v", len(paths), err)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".parquet")
		want := texts(name == "required")
		if name == "constant" {
			want = nil
			for i := range 400 {
				want = append(want, fmt.Sprint(i+1, ":the same text each time"))
			}
		}
		if have, err := read(content, "text"); err != nil || !slices.Equal(have, want) {
			t.Errorf("%s: %d texts, want %d: %v\n%.300q\n%.300q", name, len(have), len(want), err, have, want)
		}
		for column, wrong := range map[string]string{
			"id": `column "id" is int64`, "nested": `column "nested" is a group of columns`, "a": `it has no column "a", it has ["id" "nested" "text"]`,
		} {
			if _, err := read(content, column); err == nil || !strings.Contains(err.Error(), wrong) {
				t.Errorf("%s: the error is %v, want %q", name, err, wrong)
			}
		}
	}
}

// Damaged files are errors or other texts, and take no longer than whole ones.
func TestDamagedFiles(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.parquet")
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 6))
	for _, path := range paths {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for range 300 {
			damaged := slices.Clone(whole)
			for range 1 + r.IntN(4) {
				damaged[r.IntN(len(damaged))] = byte(r.IntN(256))
			}
			if r.IntN(4) == 0 {
				damaged = damaged[:r.IntN(len(damaged))]
			}
			_, _ = read(damaged, "text")
		}
	}
}
