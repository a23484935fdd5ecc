//go:build gpu

// Command gpu times attention and matrix products on the first GPU, through Go. It reads one case a
// line as JSON and answers each with the median time in milliseconds, so that a program that times
// something else can take turns with it: compare.py does.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"time"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
)

// request is a case.
type request struct {
	Pass                        string // "forward", "delta", or "backward", which is the delta and the backward kernels; "matmul"
	DType                       string // bfloat16, float16, float32
	Precision                   string // of float32: "", TF32
	Batch, Heads, KeyHeads      int
	Length, Size                int
	Causal, Bias, Deterministic bool
	Window                      int   // keys before the query, 0 for all
	Lens                        []int // cumulative lengths of packed sequences
	Dropout, SoftCap            float64
	Slopes                      bool
	Recorded                    bool    // calls are one CUDA graph, for peers that are timed so
	MatMul                      product // of the pass "matmul"
}

type answer struct {
	Milliseconds float64
	Error        string `json:",omitempty"`
}

func main() {
	d, err := cuda.Default()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var r request
		var a answer
		err := json.Unmarshal(in.Bytes(), &r)
		if err == nil {
			if r.Pass == "matmul" {
				a.Milliseconds, err = r.MatMul.time(d, r.DType, r.Precision)
			} else {
				a.Milliseconds, err = r.time(d)
			}
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// set is one copy of all tensors of a case. Runs take turns among several, so that none finds its
// inputs in the cache.
type set struct {
	problem kernels.Attention
	out     kernels.AttentionOutputs
	g       kernels.AttentionGradients
}

const sets = 3

// shape is what the tensors of a case depend on.
type shape struct {
	dtype                                string
	batch, heads, keyHeads, length, size int
	bias, gradients                      bool
}

// kept are the tensors of the last case, which the next one uses too if it has the same shape:
// filling them takes longer than most measurements.
var kept struct {
	shape
	list []*set
}

func (r request) prepare(d *cuda.Device) ([]*set, error) {
	s := shape{r.DType, r.Batch, r.Heads, r.KeyHeads, r.Length, r.Size, r.Bias, r.Pass != "forward"}
	held := kept.shape
	held.gradients = held.gradients && s.gradients
	if len(kept.list) == 0 || held != s {
		kept.list = nil
		for range sets {
			s, err := r.newSet(d)
			if err != nil {
				kept.list = nil
				return nil, err
			}
			kept.list = append(kept.list, s)
		}
		kept.shape = s
	}
	for _, s := range kept.list {
		r.setOptions(&s.problem)
	}
	return kept.list, nil
}

func (r request) time(d *cuda.Device) (float64, error) {
	list, err := r.prepare(d)
	if err != nil {
		return 0, err
	}
	n := 0
	run := func() error {
		s := list[n%sets]
		n++
		if r.Pass == "forward" {
			return d.AttentionForward(&s.problem, s.out)
		}
		if err := d.AttentionDelta(&s.problem, s.out.O, s.g.DO, kernels.Tensor{}, s.g.Delta); err != nil || r.Pass == "delta" {
			return err
		}
		return d.AttentionBackward(&s.problem, s.g)
	}
	for _, s := range list { // backward reads what forward computed
		if err := d.AttentionForward(&s.problem, s.out); err != nil {
			return 0, err
		}
	}
	if r.Recorded {
		return timeRecorded(d, run)
	}
	const together = 4
	return median(d, together, run)
}

// timeRecorded times calls that are one graph.
func timeRecorded(d *cuda.Device, run func() error) (float64, error) {
	const together = 2 * sets
	if err := run(); err != nil { // loads the kernels
		return 0, err
	}
	all, err := d.Capture(func() error {
		for range together {
			if err := run(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	ms, err := median(d, 1, all.Launch)
	return ms / together, err
}

// median times rounds of calls that are queued together, and returns the milliseconds of a call.
// The device is kept busy before, as long as its clocks take to follow the load.
func median(d *cuda.Device, together int, run func() error) (float64, error) {
	const warm, rounds = 15 * time.Millisecond, 11
	for start := time.Now(); time.Since(start) < warm; {
		for range together {
			if err := run(); err != nil {
				return 0, err
			}
		}
		if err := d.Synchronize(); err != nil {
			return 0, err
		}
	}
	times := make([]float64, rounds)
	for i := range times {
		from, err := d.Record()
		if err != nil {
			return 0, err
		}
		for range together {
			if err := run(); err != nil {
				return 0, err
			}
		}
		to, err := d.Record()
		if err != nil {
			return 0, err
		}
		took, err := to.Since(from)
		if err != nil {
			return 0, err
		}
		times[i] = took.Seconds() * 1e3
	}
	slices.Sort(times)
	return times[rounds/2] / float64(together), nil
}

func (r request) newSet(d *cuda.Device) (*set, error) {
	dtype, err := dtypeOf(r.DType)
	if err != nil {
		return nil, err
	}
	var failed error
	tensor := func(dtype kernels.DType, shape ...int) kernels.Tensor {
		t, err := d.Alloc(dtype, shape...)
		if err == nil {
			err = fill(d, t)
		}
		if err != nil {
			failed = err
		}
		return t
	}
	s := &set{}
	p := &s.problem
	query := func() kernels.Tensor { return tensor(dtype, r.Batch, r.Heads, r.Length, r.Size) }
	key := func() kernels.Tensor { return tensor(dtype, r.Batch, r.KeyHeads, r.Length, r.Size) }
	row := func() kernels.Tensor { return tensor(kernels.F32, r.Batch, r.Heads, r.Length) }
	p.Q, p.K, p.V = query(), key(), key()
	s.out = kernels.AttentionOutputs{O: query(), LSE: row()}
	if r.Pass != "forward" {
		s.g = kernels.AttentionGradients{DO: query(), LSE: s.out.LSE, Delta: row(), DQ: query(), DK: key(), DV: key()}
	}
	if r.Bias {
		p.Bias = tensor(dtype, 1, r.Heads, r.Length, r.Length)
		if r.Pass != "forward" {
			s.g.DBias = tensor(dtype, 1, r.Heads, r.Length, r.Length)
		}
	}
	return s, failed
}

// setOptions sets what does not change the shape of a case's tensors.
func (r request) setOptions(p *kernels.Attention) {
	*p = kernels.Attention{Q: p.Q, K: p.K, V: p.V, Bias: p.Bias}
	if r.Causal {
		p.Causal = kernels.CausalBottomRight
	}
	if r.Window > 0 {
		p.Window = &kernels.Window{Left: r.Window, Right: -1}
	}
	if r.Lens != nil {
		p.QLens, p.KVLens = r.Lens, r.Lens
	}
	p.Dropout, p.SoftCap = kernels.Dropout{P: r.Dropout, Seed: 1}, r.SoftCap
	if r.Slopes {
		p.ALiBi = make([]float64, r.Heads)
		for h := range p.ALiBi {
			p.ALiBi[h] = math.Exp2(-8 * float64(h+1) / float64(r.Heads))
		}
	}
	p.Deterministic = r.Deterministic
	if r.Precision == "TF32" {
		p.Precision = kernels.PrecisionTF32
	}
}

func dtypeOf(name string) (kernels.DType, error) {
	dtype, ok := map[string]kernels.DType{"bfloat16": kernels.BF16, "float16": kernels.F16, "float32": kernels.F32}[name]
	if !ok {
		return dtype, fmt.Errorf("dtype is %q, it needs to be bfloat16, float16 or float32", name)
	}
	return dtype, nil
}

// noise is normal numbers in each type, which fill tensors again and again: long enough that no two
// rows are alike.
var noise = func() (n struct {
	f32       []float32
	bf16, f16 []uint16
}) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 1<<20 + 7 {
		x := float32(random.NormFloat64())
		n.f32, n.bf16, n.f16 = append(n.f32, x), append(n.bf16, uint16(math.Float32bits(x)>>16)), append(n.f16, float16(x))
	}
	return n
}()

// fill gives a tensor random values.
func fill(d *cuda.Device, t kernels.Tensor) error {
	n := t.Elements()
	bytes := make([]byte, n*t.DType.Size())
	at := unsafe.Pointer(unsafe.SliceData(bytes))
	switch t.DType {
	case kernels.F32:
		repeat(unsafe.Slice((*float32)(at), n), noise.f32)
	case kernels.BF16:
		repeat(unsafe.Slice((*uint16)(at), n), noise.bf16)
	case kernels.F16:
		repeat(unsafe.Slice((*uint16)(at), n), noise.f16)
	}
	return d.UploadBytes(t, at)
}

func repeat[T any](to, from []T) {
	for len(to) > 0 {
		to = to[copy(to, from):]
	}
}

// float16 cuts a normal number of moderate size to 16 bits; the smallest become 0.
func float16(x float32) uint16 {
	bits := math.Float32bits(x)
	exponent := int(bits>>23&0xff) - 127 + 15
	if exponent <= 0 {
		return 0
	}
	return uint16(bits>>16&0x8000) | uint16(exponent)<<10 | uint16(bits>>13&0x3ff)
}
