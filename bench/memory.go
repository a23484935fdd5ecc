package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/stheno-ml/stheno/bench/internal/report"
)

// memoryCommand is the first argument of the process whose memory is measured, which the program
// starts itself.
const memoryCommand = "memory-of"

// memory measures how much a process grows at most, for attention over the length of the sequence
// and for training steps. Each figure is that of a process of its own, which does the work twice.
func memory(s *session) error {
	if s.sweep > 0 {
		return nil // it does not depend on the time
	}
	const size = 64
	s.section("memory", "Memory of attention", "By how much a process grows at most, the resident set's high-water mark, that computes causal attention forward and "+
		"backward in a Gorgonia graph, float32, B=1 H=1 D=64; inputs, output and gradients included. \"Needed\" is what these take by themselves, computed.")
	longest, longestPlain := 65536, 8192
	if s.quick {
		longest, longestPlain = 8192, 2048
	}
	for length := 256; length <= longest; length *= 2 {
		at := report.Case{Section: "memory", Name: fmt.Sprintf("S=%d", length), Figure: "attention-memory", X: float64(length)}
		if !s.wants(at) {
			continue
		}
		if err := s.memoryOf(at, report.Ours, "attention", strconv.Itoa(length)); err != nil {
			return err
		}
		// q, k, v, w, the output, its weighting and three gradients
		s.add(report.Result{Case: at, By: "needed", Quantity: report.Bytes, Samples: report.Numbers{float64(9 * 4 * length * size)}})
		if length > longestPlain {
			// A dozen S×S arrays of float32 live at once.
			s.missing(fmt.Sprintf("%s beyond S=%d, memory", plainGorgonia, longestPlain), errors.New("it grows with S², to many GiB"))
			continue
		}
		if err := s.memoryOf(at, plainGorgonia, "gorgonia", strconv.Itoa(length)); err != nil {
			return err
		}
	}
	s.section("step-memory", "Memory of a training step", "By how much a process grows at most that makes a model and trains it for two steps: weights, "+
		"gradients, AdamW's state, activations, and Gorgonia's own.")
	for i, m := range stepModels {
		at := report.Case{Section: "step-memory", Name: m.String()}
		if !s.wants(at) {
			continue
		}
		if err := s.memoryOf(at, report.Ours, "step", strconv.Itoa(i)); err != nil {
			return err
		}
	}
	return nil
}

// memoryOf starts a process for the work, a few times, and notes its growth.
func (s *session) memoryOf(at report.Case, by string, work ...string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	times := 3
	if s.quick {
		times = 1
	}
	r := report.Result{Case: at, By: by, Quantity: report.Bytes}
	for range times {
		var out, failed bytes.Buffer
		child := exec.Command(program, append([]string{memoryCommand}, work...)...)
		child.Stdout, child.Stderr = &out, &failed
		if err := child.Run(); err != nil {
			s.missing("memory", fmt.Errorf("%s by %s: %w %s", at.Key(), by, err, strings.TrimSpace(failed.String())))
			return nil
		}
		x, err := strconv.ParseFloat(strings.TrimSpace(out.String()), 64)
		if err != nil {
			return fmt.Errorf("%s: the process printed %q, it should be a number", at.Key(), out.String())
		}
		r.Samples = append(r.Samples, x)
	}
	s.add(r)
	return nil
}

// memoryChild is the process that does the work and prints its growth in bytes.
func memoryChild(args []string, out io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("%s has %d arguments, it needs a work and its size", memoryCommand, len(args))
	}
	size, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	debug.SetGCPercent(50)
	debug.FreeOSMemory()
	before, err := status("VmRSS")
	if err != nil {
		return err
	}
	if err := work(args[0], size); err != nil {
		return err
	}
	after, err := status("VmHWM")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, max(0, after-before))
	return err
}

// work does twice what a process is started for.
func work(name string, size int) error {
	var do func() error
	switch name {
	case "attention", "gorgonia":
		attend := map[string]attendFunc{"attention": flashAttention, "gorgonia": gorgoniaOps}[name]
		machine, err := newAttentionGraph(attend, 1, size, 64)
		if err != nil {
			return err
		}
		defer machine.Close()
		do = func() error {
			defer machine.Reset()
			return machine.RunAll()
		}
	case "step":
		if size < 0 || size >= len(stepModels) {
			return fmt.Errorf("there is no model %d", size)
		}
		t, err := stepModels[size].training()
		if err != nil {
			return err
		}
		defer t.machine.Close()
		do = func() error {
			_, err := t.step()
			return err
		}
	default:
		return fmt.Errorf("there is no work called %q", name)
	}
	for range 2 {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// status reads a number of bytes from what Linux says about this process.
func status(field string) (int64, error) {
	if runtime.GOOS != "linux" {
		return 0, fmt.Errorf("the high-water mark of memory is read as Linux shows it, this is %s", runtime.GOOS)
	}
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no %s", field)
}
