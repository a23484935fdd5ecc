package neon

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// analyser is LLVM's llvm-mca of version 16 or newer. Where it has another name, the environment
// variable LLVM_MCA says so.
var analyser = cmp.Or(os.Getenv("LLVM_MCA"), "llvm-mca")

// TestThroughput asks LLVM's models of processors, where they are at hand, for the cycles that the
// inner loops take. It compares the rate of multiply-adds in products with that of a loop that does
// nothing else. With -v it prints tables.
func TestThroughput(t *testing.T) {
	if known, _ := exec.Command(analyser, "-mtriple=aarch64", "-mcpu=help").CombinedOutput(); !strings.Contains(string(known), "neoverse-v2") {
		t.Skip("there is no llvm-mca here that knows all models")
	}
	models := []struct {
		name  string
		least float64 // of the peak, in the loops that most of a product's time goes to
	}{{"apple-m1", 0.90}, {"neoverse-n1", 0.90}, {"neoverse-v2", 0.85}}
	t.Log("| product | instructions a multiply-add | share of the peak: apple-m1 | neoverse-n1 | neoverse-v2 |")
	for _, c := range []struct {
		block string
		main  bool // most of a product's time goes there
	}{{"6x4", true}, {"4x4", true}, {"2x4", false}, {"1x4", false}, {"8x2", false}, {"4x2", false}, {"8x1", false}} {
		for element, shape := range map[string]string{"F32": "4s", "F64": "2d"} {
			code := loop(t, "gemm", "gemmNEON"+element, "round"+c.block)
			peak := independent(fmt.Sprintf("fmla v%%d.%[1]s, v30.%[1]s, v31.%s[0]", shape, shape[1:]))
			row := fmt.Sprintf("| %s %s | %.2f |", element, c.block, float64(len(code))/multiplyAdds(code))
			for _, m := range models {
				share := shareOfPeak(t, m.name, code, peak)
				row += fmt.Sprintf(" %.0f%% |", 100*share)
				if c.main && share < m.least {
					t.Errorf("%s %s reaches %.1f%% of %s's peak, it needs %.0f%%", element, c.block, 100*share, m.name, 100*m.least)
				}
			}
			t.Log(row)
		}
	}
	t.Log("| product of bfloat16 | instructions a BFMMLA | share of the peak: neoverse-v1 | neoverse-n2 | neoverse-v2 |")
	code, peak := loop(t, "tiles", "tileProductNEON", "step"), independent("bfmmla v%d.4s, v30.8h, v31.8h")
	row := fmt.Sprintf("| 8×8 | %.2f |", float64(len(code))/multiplyAdds(code))
	for _, m := range []struct {
		name  string
		least float64 // sixteen sums are fewer than neoverse-v1's model wants, of which each waits five cycles for four units
	}{{"neoverse-v1", 0.75}, {"neoverse-n2", 0.9}, {"neoverse-v2", 0.9}} {
		share := shareOfPeak(t, m.name, code, peak)
		row += fmt.Sprintf(" %.0f%% |", 100*share)
		if share < m.least {
			t.Errorf("products of bfloat16 reach %.1f%% of %s's peak, they need %.0f%%", 100*share, m.name, 100*m.least)
		}
	}
	t.Log(row)
	t.Log("| loop over vectors | instructions a vector | cycles a vector: apple-m1 | neoverse-n1 | neoverse-v2 |")
	for _, c := range []struct {
		family, kernel, loop string
		vectors              float64 // a round
	}{
		{"softmax", "softmax", "max", 4}, {"softmax", "softmax", "exp", 2}, {"softmax", "softmaxGrad", "grad", 2},
		{"activation", "geluTanh", "vector", 1}, {"activation", "geluTanhGrad", "vector", 1}, {"activation", "geluErf", "vector", 1},
		{"crossentropy", "sumExp", "vector", 1}, {"optimizer", "adamw", "vector", 1},
	} {
		code := loop(t, c.family, c.kernel+"NEONF32", c.loop)
		row := fmt.Sprintf("| %s %s | %.1f |", c.kernel, c.loop, float64(len(code))/c.vectors)
		for _, m := range models {
			row += fmt.Sprintf(" %.1f |", cycles(t, m.name, code)/c.vectors)
		}
		t.Log(row)
	}
}

// shareOfPeak is the rate of multiply-adds of some code beside that of another.
func shareOfPeak(t *testing.T, model string, code, peak []string) float64 {
	t.Helper()
	return multiplyAdds(code) / cycles(t, model, code) / (multiplyAdds(peak) / cycles(t, model, peak))
}

// independent is multiply-adds of which none waits for another, of the kind that products are made
// of, which has a verb for the sum.
func independent(instruction string) []string {
	var code []string
	for sum := range 24 {
		code = append(code, fmt.Sprintf(instruction, sum))
	}
	return code
}

func multiplyAdds(code []string) float64 {
	n := 0
	for _, line := range code {
		if strings.HasPrefix(line, "fmla") || strings.HasPrefix(line, "bfmmla") {
			n++
		}
	}
	return float64(n)
}

// loop is a loop of a function, from its label to the jump back to there, in the processor's own
// syntax.
func loop(t *testing.T, name, function, label string) []string {
	t.Helper()
	assembly, _, err := family(Families[name])
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(assembly), "TEXT ·"+function+"(SB)")
	_, text, ok := strings.Cut(text, "\n"+label+":\n")
	if !ok {
		t.Fatalf("%s has no loop %s", function, label)
	}
	var code []string
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasSuffix(line, ":"):
			continue
		case strings.HasPrefix(line, "WORD"):
			_, line, _ = strings.Cut(line, " // ")
			code = append(code, line)
		default:
			code = append(code, translated(t, line))
		}
		if strings.HasPrefix(line, "B") && strings.HasSuffix(line, " "+label) {
			return code
		}
	}
	t.Fatalf("the loop %s of %s does not end", label, function)
	return nil
}

// translated is an instruction of Go's syntax in the processor's.
func translated(t *testing.T, line string) string {
	t.Helper()
	name, rest, _ := strings.Cut(line, " ")
	var operands []string // in the processor's order
	for _, operand := range strings.Split(rest, ", ") {
		operand = regexp.MustCompile(`^R(\d+)$`).ReplaceAllString(operand, "x$1")
		operand = strings.Replace(operand, "$", "#", 1)
		operands = append([]string{operand}, operands...)
	}
	list := strings.Join(operands, ", ")
	switch name {
	case "ADD", "SUB":
		return strings.ToLower(name) + " " + list
	case "SUBS":
		return "subs " + operands[0] + ", " + list
	case "CMP":
		return "cmp " + list
	case "BNE", "BLT":
		return "b." + strings.ToLower(name[1:]) + " #0"
	}
	t.Fatalf("no translation for %q", line)
	return ""
}

// cycles is how long a round of a loop takes by a model, in the middle of many.
func cycles(t *testing.T, model string, code []string) float64 {
	t.Helper()
	total := func(rounds int) float64 {
		mca := exec.Command(analyser, "-mtriple=aarch64", "-mcpu="+model, fmt.Sprintf("-iterations=%d", rounds))
		mca.Stdin = strings.NewReader(strings.Join(code, "\n") + "\n")
		out, err := mca.CombinedOutput()
		if err != nil {
			t.Fatalf("llvm-mca: %v\n%s", err, out)
		}
		n := regexp.MustCompile(`Total Cycles:\s+(\d+)`).FindSubmatch(out)
		if n == nil {
			t.Fatalf("llvm-mca counted no cycles:\n%s", out)
		}
		count, err := strconv.ParseFloat(string(n[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		return count
	}
	return (total(150) - total(50)) / 100
}
