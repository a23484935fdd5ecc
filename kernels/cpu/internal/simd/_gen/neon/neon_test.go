package neon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEncodings asks an assembler that others wrote, where one is at hand, for the numbers of all
// instructions that are written as such.
func TestEncodings(t *testing.T) {
	ours := map[string]string{} // what is written beside a number: that number
	for _, kernels := range Families {
		assembly, _, err := family(kernels)
		if err != nil {
			t.Fatal(err)
		}
		words, texts := instructions(assembly)
		for i, text := range texts {
			if before, ok := ours[text]; ok && before != words[i] {
				t.Fatalf("%s is %s and %s", text, before, words[i])
			}
			ours[text] = words[i]
		}
	}
	if len(ours) < 1000 {
		t.Fatalf("no more than %d different instructions were found", len(ours))
	}
	texts := make([]string, 0, len(ours))
	for text := range ours {
		texts = append(texts, text)
	}
	slices.Sort(texts)
	theirs := assembled(t, strings.Join(texts, "\n")+"\n")
	if len(theirs) != len(texts) {
		t.Fatalf("%d instructions were assembled to %d", len(texts), len(theirs))
	}
	for i, text := range texts {
		if ours[text] != theirs[i] {
			t.Errorf("%s is written as %s, it needs to be %s", text, ours[text], theirs[i])
		}
	}
}

// assembled is what LLVM's or GNU's assembler makes of a program for arm64, a number for each
// instruction.
func assembled(t *testing.T, program string) []string {
	t.Helper()
	source := filepath.Join(t.TempDir(), "all.s")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(name string, arguments ...string) string {
		out, err := exec.Command(name, arguments...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		return string(out)
	}
	var numbers []string
	if _, err := exec.LookPath("llvm-mc"); err == nil {
		// add x0, x0, x1 // encoding: [0x00,0x00,0x01,0x8b]
		listing := run("llvm-mc", "-triple=aarch64", "-mattr=+bf16", "-show-encoding", source)
		for _, m := range regexp.MustCompile(`encoding: \[0x(..),0x(..),0x(..),0x(..)\]`).FindAllStringSubmatch(listing, -1) {
			numbers = append(numbers, m[4]+m[3]+m[2]+m[1])
		}
		return numbers
	}
	if _, err := exec.LookPath("aarch64-linux-gnu-as"); err != nil {
		t.Skip("there is neither llvm-mc nor aarch64-linux-gnu-as here")
	}
	object := source + ".o"
	run("aarch64-linux-gnu-as", "-march=armv8.6-a", "-o", object, source)
	//    0:	8b010000 	add	x0, x0, x1
	listing := run("aarch64-linux-gnu-objdump", "-d", object)
	for _, m := range regexp.MustCompile(`(?m)^\s+[0-9a-f]+:\s+([0-9a-f]{8})\s`).FindAllStringSubmatch(listing, -1) {
		numbers = append(numbers, m[1])
	}
	return numbers
}

// TestAllocate asks for more registers than there are, and for one that is read before it is
// written.
func TestAllocate(t *testing.T) {
	fresh := func() *kernel {
		k, err := newKernel("(n int)", false, &numbers{})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	k := fresh()
	var all []vec
	for range 32 {
		all = append(all, k.zeros())
	}
	for _, v := range all {
		k.add(all[0], v, all[0])
	}
	number, err := k.allocate()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, v := range all {
		seen[number(int(v))] = true
	}
	if len(seen) != 32 {
		t.Errorf("32 registers that are alive together have %d numbers", len(seen))
	}

	k = fresh()
	all = append([]vec{}, k.zeros())
	for range 32 {
		all = append(all, k.zeros())
	}
	for _, v := range all {
		k.add(all[0], v, all[0])
	}
	if _, err := k.allocate(); err == nil {
		t.Error("33 registers that are alive together have numbers")
	}

	k = fresh()
	k.add(k.vec(), k.vec())
	if _, err := k.allocate(); err == nil || !strings.Contains(err.Error(), "before it is written") {
		t.Errorf("reading what was not written: %v", err)
	}

	k = fresh()
	k.goTo("nowhere")
	if _, err := k.allocate(); fmt.Sprint(err) != `no label "nowhere"` {
		t.Errorf("a jump to a label that there is not: %v", err)
	}
}
