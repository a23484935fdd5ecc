package cpu

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
)

// A panic on any goroutine that shares a kernel's work is the call's error, and kernels work
// afterwards.
func TestPanicsAreErrors(t *testing.T) {
	for _, threads := range []int{1, 2, 5} {
		b := &Backend{Threads: threads}
		for task := range 20 {
			call := func() (err error) {
				defer catch("test", &err)
				order := newTicketOrder(1)
				b.parallel(20, 1e12, func(claim func() (int, bool)) {
					ended := false
					defer func() {
						if !ended {
							order.abandon()
						}
					}()
					for n, ok := claim(); ok; n, ok = claim() {
						order.wait(0, n)
						if n == task {
							panic("a fault")
						}
						order.pass(0)
					}
					ended = true
				})
				return nil
			}
			if err := call(); err == nil || !strings.HasPrefix(err.Error(), "cpu: test: it panicked: a fault\n") {
				t.Fatalf("%d threads: task %d panics, the error is %v", threads, task, err)
			}
		}
		var done atomic.Int32
		b.each(100, 1e12, func(int) { done.Add(1) })
		if done.Load() != 100 {
			t.Errorf("%d threads: %d of 100 tasks are done after panics", threads, done.Load())
		}
	}
}

// A table that becomes shorter behind the kernels' back is looked up beyond its end, on whichever
// goroutine comes there first.
func TestPanicsInAttentionAreErrors(t *testing.T) {
	const length, size = 300, 16
	tensor := func(shape ...int) kernels.Tensor {
		return kernels.Of(make([]float32, kernels.Contiguous(nil, kernels.F32, shape...).Elements()), shape...)
	}
	table := &score.Table{Name: "learnt", Shape: []int{length + 1, length}}
	s, err := score.NewScore(func(p score.Pair) score.Expr {
		return p.Score.Add(score.Lookup(table, p.Query, p.Key.Sub(1)))
	})
	if err != nil {
		t.Fatal(err)
	}
	a := &kernels.Attention{Q: tensor(1, 4, length, size), K: tensor(1, 4, length, size), V: tensor(1, 4, length, size), Program: kernels.Program{Score: s}}
	o, lse, delta := tensor(1, 4, length, size), tensor(1, 4, length), tensor(1, 4, length)
	b := &Backend{Threads: 4}
	run := func() (forward, backward error) {
		a.Tables = []kernels.Tensor{tensor(table.Shape...)}
		g := kernels.AttentionGradients{DO: tensor(1, 4, length, size), LSE: lse, Delta: delta, DQ: tensor(1, 4, length, size),
			DK: tensor(1, 4, length, size), DV: tensor(1, 4, length, size), DTables: []kernels.Tensor{tensor(table.Shape...)}}
		forward = b.AttentionForward(a, kernels.AttentionOutputs{O: o, LSE: lse})
		return forward, b.AttentionBackward(a, g)
	}
	if forward, backward := run(); forward != nil || backward != nil {
		t.Fatal(forward, backward)
	}
	table.Shape[1] = 1
	forward, backward := run()
	for name, err := range map[string]error{"forward": forward, "backward": backward} {
		if err == nil || !strings.HasPrefix(err.Error(), "cpu: attention "+name+": it panicked: ") {
			t.Errorf("the error of %s is %v", name, err)
		}
	}
}
