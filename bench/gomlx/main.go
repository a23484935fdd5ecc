// Command gomlx is GoMLX's pure Go back end as a peer of Stheno's benchmarks: it reads a request a
// line from its input and answers each with a line, both JSON. See bench/peer.go for the requests.
// It computes attention alone, forward, in the way of GoMLX's own layers: products and a softmax
// under a mask.
//
// It is a module of its own, so that Stheno does not depend on GoMLX.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/gomlx/gomlx/backends/simplego"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"
)

// request is the part of the peers' requests that attention needs.
type request struct {
	Do, Folder            string
	Threads               int
	Batch, Length         int
	Heads, KeyHeads, Size int
	Causal                bool
	Window                int
	Pass                  string
	Times                 int
}

type reply struct {
	Error   string
	Version string
	Seconds float64
}

func main() {
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	in.Buffer(nil, 1<<20)
	var p *problem
	for in.Scan() {
		var r request
		var answer reply
		err := json.Unmarshal(in.Bytes(), &r)
		if err == nil {
			answer, err = respond(&p, r)
		}
		if err != nil {
			answer.Error = err.Error()
		}
		if err := out.Encode(answer); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// respond does what a request asks for. GoMLX reports some errors by panics.
func respond(p **problem, r request) (answer reply, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("panic: %v", x)
		}
	}()
	switch r.Do {
	case "hello":
		answer.Version = "GoMLX " + version() + " (pure Go back end)"
	case "attention":
		runtime.GOMAXPROCS(r.Threads)
		*p, err = newProblem(r)
	case "run":
		start := time.Now()
		for range r.Times {
			if err := (*p).run(r.Pass); err != nil {
				return answer, err
			}
		}
		answer.Seconds = time.Since(start).Seconds()
	case "write":
		err = (*p).write(r.Folder, r.Pass)
	case "close":
		*p = nil
	default:
		err = fmt.Errorf("it does attention alone, not %q", r.Do)
	}
	return answer, err
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/gomlx/gomlx" {
				return m.Version
			}
		}
	}
	return "of unknown version"
}

// problem is attention with its inputs, and the result of its last run.
type problem struct {
	attention *graph.Exec
	inputs    []any // q, k, v
	out       []*tensors.Tensor
}

func newProblem(r request) (*problem, error) {
	switch {
	case r.Window > 0:
		return nil, errors.New("windows are not a part of its attention layer")
	case r.Heads != r.KeyHeads:
		return nil, errors.New("grouped heads are not a part of its attention layer")
	}
	backend, err := simplego.New("")
	if err != nil {
		return nil, err
	}
	p := &problem{}
	for _, name := range []string{"q", "k", "v"} {
		list, err := read(filepath.Join(r.Folder, name))
		if err != nil {
			return nil, err
		}
		p.inputs = append(p.inputs, tensors.FromFlatDataAndDimensions(list, r.Batch, r.Heads, r.Length, r.Size))
	}
	attend := func(q, k, v *graph.Node) *graph.Node {
		scores := graph.MulScalar(graph.Einsum("bhqd,bhkd->bhqk", q, k), 1/math.Sqrt(float64(r.Size)))
		if !r.Causal {
			return graph.Einsum("bhqk,bhkd->bhqd", graph.Softmax(scores, -1), v)
		}
		mask := graph.BroadcastToDims(graph.Reshape(graph.LowerTriangular(q.Graph(), r.Length), 1, 1, r.Length, r.Length), scores.Shape().Dimensions...)
		return graph.Einsum("bhqk,bhkd->bhqd", graph.MaskedSoftmax(scores, mask, -1), v)
	}
	p.attention, err = graph.NewExec(backend, attend)
	return p, err
}

func (p *problem) run(pass string) (err error) {
	if pass != "forward" {
		return errors.New("its gradient of attention is not measured here: it took too long to take turns with when it was tried")
	}
	for _, t := range p.out { // so that the back end uses the memory again
		if err := t.FinalizeAll(); err != nil {
			return err
		}
	}
	p.out, err = p.attention.Exec(p.inputs...)
	return err
}

func (p *problem) write(folder, pass string) error {
	if pass != "forward" || len(p.out) != 1 {
		return fmt.Errorf("%s has not run", pass)
	}
	list, err := tensors.CopyFlatData[float32](p.out[0])
	if err != nil {
		return err
	}
	b, err := binary.Append(nil, binary.LittleEndian, list)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "o"), b, 0o600)
}

func read(path string) ([]float32, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	list := make([]float32, len(b)/4)
	_, err = binary.Decode(b, binary.LittleEndian, list)
	return list, err
}
