package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The site of the module has its packages, examples, pages and pictures, and no link that leads
// nowhere.
func TestSite(t *testing.T) {
	folder := t.TempDir()
	faults, err := makeSite("../..", folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
	for at, want := range map[string]string{
		"index.html":                            "FlashAttention",
		"packages/ops/index.html":               `id="AttentionOptions.Causal"`,
		"packages/gradcheck/index.html":         "<summary>Example",
		"packages/kernels/cuda/index.html":      `<h3 id="Open">func Open</h3>`,
		"packages/examples/dit/index.html":      "<h1>examples/dit</h1>",
		"docs/architecture.html":                `<img src="../docs/house.svg"`,
		"docs/house.svg":                        "<svg",
		"sources/kernels/softcap.go.html":       "package kernels",
		"sources/kernels/cuda/src.html":         "rope.cu",
		"packages/kernels/score/index.html":     "Program",
		"packages/train/distributed/index.html": "func Join",
	} {
		content, err := os.ReadFile(filepath.Join(folder, filepath.FromSlash(at)))
		if err != nil {
			t.Error(err)
		} else if !strings.Contains(string(content), want) {
			t.Errorf("%s lacks %q", at, want)
		}
	}
	if _, err := makeSite("../..", folder); err == nil || !strings.Contains(err.Error(), "needs to be empty") {
		t.Errorf("a folder that has files gives %v", err)
	}
}

// Links to files and to places that are not there are found.
func TestDeadLinks(t *testing.T) {
	folder := t.TempDir()
	for name, content := range map[string]string{
		"a.html":   `<a href="b.html#there">1</a><a href="b.html#gone">2</a><a href="c.html">3</a><a href="https://example.com/x">4</a>`,
		"b.html":   `<p id="there"><img src="p.svg"><a href="#here">5</a>`,
		"sub/d.md": ``,
	} {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	faults, err := deadLinks(folder)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"b.html#gone", "c.html", "#here", "p.svg"} {
		if len(faults) != 4 || !strings.Contains(strings.Join(faults, "\n"), want) {
			t.Errorf("%d: %q lacks %s", i, faults, want)
		}
	}
}
