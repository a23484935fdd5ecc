package main

import (
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// peer is a process that computes what we compute, with what people would use instead. It reads a
// request a line and answers each with a reply a line, both JSON; numbers travel as raw
// little-endian files in a folder, so that problems and results are the same to the bit.
type peer struct {
	name    string
	longest int // sequence of attention that it is asked for
	most    int // samples that are taken of it; 0 for as many as of the others
	process *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
	failed  *tail
}

// request is what a peer is asked to do: "hello"; "attention", "product" and "step", which read a
// problem from the folder; "run", which does the problem's pass so many times; "write", which
// writes the results into the folder; "close", which forgets it.
type request struct {
	Do, Folder               string
	Problem                  string // which of several problems; most peers have one at a time
	Threads                  int
	Batch, Length            int
	Heads, KeyHeads, Size    int // of attention
	Causal                   bool
	Window                   int
	Pass                     string
	Times                    int
	Rows, Columns, Depth     int // of a product
	TransposeA, TransposeB   bool
	Groups                   []int32 // where the rows of each matrix begin, of a product with several; none for one
	Layers, Dim, Vocab       int     // of a step
	Rate, Beta2, Decay, Clip float64
	Parameters               []parameterFile

	DType string // of attention on a GPU, and of a step's activations, which are float32 if it is empty

	// Of attention on a GPU, whose inputs are made of the file noise in the folder: tensor i of q,
	// k, v, dO has its numbers from the place i·noiseStep on, over and over.
	Device, Kernel string
	NoiseStep      int
}

type parameterFile struct {
	Name  string
	Shape []int
}

type reply struct {
	Error   string
	Version string    // of hello
	Seconds float64   // of run
	Losses  []float64 // of run, for a step
}

//go:embed peers/torch.py
var torchProgram string

// openPeers starts the peers that this machine has.
func (s *session) openPeers() {
	start := func(name string, longest, most int, command string, args ...string) {
		p, version, err := openPeer(name, exec.Command(command, args...))
		if err != nil {
			s.missing(name, err)
			return
		}
		p.longest, p.most = longest, most
		s.peerList = append(s.peerList, p)
		s.report.Peers = append(s.report.Peers, version)
	}
	// -I, or Python would look for modules in this folder.
	start("PyTorch", math.MaxInt, 0, s.python, "-I", "-c", torchProgram)
	program := s.gomlx
	if program == "" {
		built, err := buildGoMLX()
		if err != nil {
			s.missing("GoMLX", err)
			return
		}
		defer os.Remove(built) // it runs already, or could not
		program = built
	}
	start("GoMLX", longestGoMLX, mostGoMLX, program)
}

// GoMLX's pure Go back end takes seconds for what others do in milliseconds: it is asked for the
// shortest attention only, and for as few samples as have quartiles.
const longestGoMLX, mostGoMLX = 512, 3

// buildGoMLX builds the program of the nested module.
func buildGoMLX() (string, error) {
	const folder = "bench/gomlx"
	if _, err := os.Stat(filepath.Join(folder, "go.mod")); err != nil {
		return "", fmt.Errorf("its module is not at %s: run from the root of Stheno's source, or name the program with -gomlx", folder)
	}
	file, err := os.CreateTemp("", "stheno-gomlx")
	if err != nil {
		return "", err
	}
	if err := file.Close(); err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", file.Name(), ".")
	build.Dir = folder
	if out, err := build.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("go build: %w: %s", err, lastLine(string(out))), os.Remove(file.Name()))
	}
	return file.Name(), nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// openPeer starts a process and greets it.
func openPeer(name string, process *exec.Cmd) (p *peer, version string, err error) {
	p = &peer{name: name, process: process, failed: &tail{}}
	if p.in, err = process.StdinPipe(); err != nil {
		return nil, "", err
	}
	out, err := process.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	process.Stderr = p.failed
	if err := process.Start(); err != nil {
		return nil, "", err
	}
	p.out = json.NewDecoder(out)
	answer, err := p.ask(request{Do: "hello"})
	if err != nil {
		p.close()
		return nil, "", err
	}
	return p, answer.Version, nil
}

// close ends the process, which its input's end tells to. A second time does nothing.
func (p *peer) close() {
	p.in.Close()
	p.process.Wait()
}

// ask makes a request and waits for the answer.
func (p *peer) ask(r request) (reply, error) {
	var answer reply
	line, err := json.Marshal(r)
	if err != nil {
		return answer, err
	}
	if _, err = p.in.Write(append(line, '\n')); err == nil {
		err = p.out.Decode(&answer)
	}
	if err != nil {
		p.close() // so that all of its last words are here
		return answer, fmt.Errorf("no answer: %w: %s", err, lastLine(string(p.failed.text)))
	}
	if answer.Error != "" {
		return answer, errors.New(answer.Error)
	}
	return answer, nil
}

// tail keeps the end of what a process says on its way out.
type tail struct{ text []byte }

func (t *tail) Write(b []byte) (int, error) {
	const most = 4096
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-most):]
	return len(b), nil
}

// settle is how long a peer's threads look for more work before they sleep, during which they would
// slow the next.
const settle = 10 * time.Millisecond

// run does a pass and lets the peer's threads go to sleep.
func (p *peer) run(pass string, times int) (reply, error) {
	answer, err := p.ask(request{Do: "run", Pass: pass, Times: times})
	time.Sleep(settle)
	return answer, err
}

// peerAttention is a problem that a peer has.
type peerAttention struct {
	peer   *peer
	folder string
	ours   [2][]kernels.Tensor // the results of each pass
}

// resultFiles are what a peer writes, pass by pass.
var resultFiles = [2][]string{{"o"}, {"dq", "dk", "dv"}}

// attention gives a peer a problem whose results we have.
func (p *peer) attention(a attentionShape, threads int, problem *attentionProblem) (*peerAttention, error) {
	folder, err := os.MkdirTemp("", "stheno-bench")
	if err != nil {
		return nil, err
	}
	o := &peerAttention{peer: p, folder: folder}
	// What is compared later is what forward and backward have computed by now.
	o.ours = [2][]kernels.Tensor{{problem.out.O}, {problem.g.DQ, problem.g.DK, problem.g.DV}}
	for _, in := range []struct {
		name string
		t    kernels.Tensor
	}{{"q", problem.Q}, {"k", problem.K}, {"v", problem.V}, {"do", problem.g.DO}} {
		if err := writeFloats(filepath.Join(folder, in.name), kernels.Host[float32](in.t)); err != nil {
			return nil, errors.Join(err, os.RemoveAll(folder))
		}
	}
	_, err = p.ask(request{
		Do: "attention", Folder: folder, Threads: threads, Batch: a.batch, Heads: a.heads, KeyHeads: a.keyHeads,
		Length: a.length, Size: a.size, Causal: a.causal, Window: a.window,
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return o, nil
}

// contender is the peer in a pass: 0 forward, 1 backward.
func (o *peerAttention) contender(pass int) contender {
	return contender{
		by: o.peer.name, most: o.peer.most,
		run: func(times int) (float64, error) {
			answer, err := o.peer.run(passNames[pass], times)
			return answer.Seconds, err
		},
		differs: func() (float64, error) {
			if _, err := o.peer.ask(request{Do: "write", Folder: o.folder, Pass: passNames[pass]}); err != nil {
				return 0, err
			}
			worst := 0.0
			for i, name := range resultFiles[pass] {
				ours := kernels.Host[float32](o.ours[pass][i])
				theirs, err := readFloats(filepath.Join(o.folder, name), len(ours))
				if err != nil {
					return 0, err
				}
				worst = max(worst, difference(ours, theirs))
			}
			return worst, nil
		},
	}
}

func (o *peerAttention) close() {
	o.peer.ask(request{Do: "close"}) // if it fails, so will the next problem, and say why
	os.RemoveAll(o.folder)
}

// difference is the largest distance of two elements as a share of the largest element; a NaN on
// one side is infinite.
func difference(a, b []float32) float64 {
	largest, worst := 0.0, 0.0
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		if math.IsNaN(x) != math.IsNaN(y) {
			return math.MaxFloat64
		}
		largest, worst = max(largest, math.Abs(x)), max(worst, math.Abs(x-y))
	}
	if largest == 0 {
		return worst
	}
	return worst / largest
}

// peerProduct is a matrix product that a peer has.
type peerProduct struct {
	peer   *peer
	folder string
	ours   kernels.Tensor
}

// product gives a peer a product whose result we will have.
func (p *peer) product(shape productShape, threads int, problem *kernels.MatMul, out kernels.MatMulOutputs) (*peerProduct, error) {
	folder, err := os.MkdirTemp("", "stheno-bench")
	if err != nil {
		return nil, err
	}
	// Host is all elements, in the order in which they lie.
	err = errors.Join(writeFloats(filepath.Join(folder, "a"), kernels.Host[float32](problem.A)),
		writeFloats(filepath.Join(folder, "b"), kernels.Host[float32](problem.B)))
	if err == nil {
		_, err = p.ask(request{
			Do: "product", Folder: folder, Threads: threads, Rows: shape.m, Columns: shape.n, Depth: shape.k,
			TransposeA: shape.transposeA, TransposeB: shape.transposeB,
		})
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return &peerProduct{p, folder, out.C}, nil
}

func (o *peerProduct) contender() contender {
	return contender{
		by: o.peer.name, most: o.peer.most,
		run: func(times int) (float64, error) {
			answer, err := o.peer.run("product", times)
			return answer.Seconds, err
		},
		differs: func() (float64, error) {
			if _, err := o.peer.ask(request{Do: "write", Folder: o.folder}); err != nil {
				return 0, err
			}
			ours := kernels.Host[float32](o.ours)
			theirs, err := readFloats(filepath.Join(o.folder, "c"), len(ours))
			if err != nil {
				return 0, err
			}
			return difference(ours, theirs), nil
		},
	}
}

func (o *peerProduct) close() {
	o.peer.ask(request{Do: "close"}) // if it fails, so will the next problem, and say why
	os.RemoveAll(o.folder)
}

// peerStep is a training that a peer has.
type peerStep struct {
	peer   *peer
	folder string
	losses []float64
}

// step gives a peer a model with our weights, which have not been trained yet.
func (p *peer) step(m stepModel, threads int, t *training) (*peerStep, error) {
	folder, err := os.MkdirTemp("", "stheno-bench")
	if err != nil {
		return nil, err
	}
	r := request{
		Do: "step", Folder: folder, Threads: threads, Batch: m.batch, Length: m.context, Layers: m.layers, Heads: m.heads, Dim: m.dim,
		Vocab: stepVocab, Rate: stepRate, Beta2: stepBeta2, Decay: stepDecay, Clip: stepClip,
	}
	if m.compute == ops.BFloat16 {
		r.DType = "bfloat16"
	}
	err = errors.Join(writeInts(filepath.Join(folder, "tokens"), t.tokens), writeInts(filepath.Join(folder, "targets"), t.targets))
	for _, n := range t.parameters {
		value, ok := n.Value().(*tensor.Dense)
		if !ok {
			err = errors.Join(err, fmt.Errorf("parameter %s is a %T, it needs to be a *tensor.Dense", n.Name(), n.Value()))
			break
		}
		r.Parameters = append(r.Parameters, parameterFile{n.Name(), n.Shape()})
		err = errors.Join(err, writeFloats(filepath.Join(folder, n.Name()), value.Float32s()))
	}
	if err == nil {
		_, err = p.ask(r)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return &peerStep{peer: p, folder: folder}, nil
}

// comparedLosses is how many steps from the first are compared: rounding grows from step to step.
const comparedLosses = 5

// contender is the peer, whose losses are compared with ours.
func (o *peerStep) contender(ours *[]float64) contender {
	return contender{
		by: o.peer.name,
		run: func(times int) (float64, error) {
			answer, err := o.peer.run("step", times)
			o.losses = append(o.losses, answer.Losses...)
			return answer.Seconds, err
		},
		differs: func() (float64, error) {
			n := min(len(*ours), len(o.losses), comparedLosses)
			if n == 0 {
				return 0, errors.New("it gave no losses")
			}
			worst := 0.0
			for i := range n {
				worst = max(worst, math.Abs((*ours)[i]-o.losses[i])/(*ours)[i])
			}
			return worst, nil
		},
	}
}

func (o *peerStep) close() {
	o.peer.ask(request{Do: "close"}) // if it fails, so will the next problem, and say why
	os.RemoveAll(o.folder)
}

func writeFloats(path string, list []float32) error {
	b, err := binary.Append(nil, binary.LittleEndian, list)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

func writeInts(path string, list []int) error {
	wide := make([]int64, len(list))
	for i, x := range list {
		wide[i] = int64(x)
	}
	b, err := binary.Append(nil, binary.LittleEndian, wide)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

func readFloats(path string, n int) ([]float32, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(b) != 4*n {
		return nil, fmt.Errorf("%s has %d bytes, it needs %d", filepath.Base(path), len(b), 4*n)
	}
	list := make([]float32, n)
	_, err = binary.Decode(b, binary.LittleEndian, list)
	return list, err
}
