package main

import (
	"fmt"
	"math"
	"os"
	"sort"

	"github.com/stheno-ml/stheno/internal/memory"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
)

// machineMemory is how much memory this process may have.
var machineMemory = memory.Total

// vocabulary is about how many kinds of tokens there are, at most.
func (s settings) vocabulary() float64 {
	const ofGPT2, ofCharacters = 50257, 100
	switch {
	case s.Vocab != "" || s.holdsTokens():
		return ofGPT2
	case s.BPE == 0:
		return ofCharacters
	}
	text := max(s.GoSource, corpusBytes)
	if info, err := os.Stat(s.Data); s.Data != "" && err == nil {
		text = int(info.Size())
	}
	return float64(min(s.BPE, leastBPE+text/2)) // each token joins two that are in the text
}

// memory is about how many bytes a training takes, on the host or beside a device. A test compares
// it with what the plan of the graph says.
func (s settings) memory(onDevice bool) float64 {
	const (
		ofWeight = 4 * 5 // itself, its gradient, two moments, and what Gorgonia binds for the gradient
		ofCopy   = 4 * 3 // a checkpoint that is being written: a weight and its moments
		ofToken  = 4 * 8 // the batch and the one that is prepared beside it
		ofBlock  = 16    // activations that a block keeps for a channel of a token
		ofNorms  = 2     // more of them, of queries and keys with norms
		ofOwn    = 4 * 2 // a weight of a head that is not the embeddings
		ofEnds   = 23    // those before and behind the blocks, and an evaluation's
		ofHead   = 3     // workspaces of the loss for a channel of a kind of tokens
		ofNodes  = 7e5   // of the graphs for a block
	)
	layers, dim, kinds := float64(s.Layers), float64(s.Dim), s.vocabulary()
	tokens := float64(s.Batch) * float64(s.Context)
	weights := s.parameters()
	bytes := ofCopy*weights + ofToken*tokens + ofNodes*layers
	if onDevice {
		return bytes
	}
	element := 4.0
	if c := computeTypes[s.Compute]; c == ops.BFloat16 || c == ops.Float16 {
		element = 2
	}
	bytes += ofWeight*weights + 4*ofHead*kinds*dim
	if s.Accumulation > 1 {
		bytes += 4 * weights
	}
	kept := ofBlock*layers + ofEnds
	if s.Recipe.has("qknorm") {
		kept += ofNorms * layers
	}
	if s.Recipe.has("embed") {
		bytes += ofOwn * kinds * dim
	}
	return bytes + element*tokens*dim*kept
}

// checkMemory refuses to begin what the memory of this machine cannot hold, which would end the
// program without a word. Where -memory limits a step it leaves activations to that.
func (s settings) checkMemory(onDevice bool, o options) error {
	total, known := machineMemory()
	fits := func(s settings, part float64) bool {
		return s.memory(onDevice || o.memory > 0) <= part*float64(total)
	}
	if !known || fits(s, 1) {
		return nil
	}
	flag, value, most := s.tooLarge(o.given, func(s settings) bool { return fits(s, 0.75) })
	advice := fmt.Sprintf("-%s %d fits", flag, most)
	if most == 0 {
		advice = "a smaller model fits, such as -preset minute"
	}
	return fmt.Errorf("-%s is %d, with which the training takes %s of memory, there is %v here: %s",
		flag, value, about(s.memory(onDevice || o.memory > 0)), train.Bytes(total), advice)
}

// about is an amount of memory in words, however much it is.
func about(bytes float64) string {
	if bytes > 1<<60 {
		return "over a million terabytes"
	}
	return fmt.Sprintf("about %v", train.Bytes(bytes))
}

// size is a setting that memory grows with.
type size struct {
	flag  string
	value func(*settings) *int
}

var sizes = []size{
	{"batch", func(s *settings) *int { return &s.Batch }},
	{"context", func(s *settings) *int { return &s.Context }},
	{"layers", func(s *settings) *int { return &s.Layers }},
	{"dim", func(s *settings) *int { return &s.Dim }},
	{"bpe", func(s *settings) *int { return &s.BPE }},
}

// tooLarge is the flag to make smaller, what it is, and about the largest of its values that fits,
// 0 if none does. It is the first that helps, of those that were given before the others.
func (s settings) tooLarge(given map[string]bool, fits func(settings) bool) (flag string, is, largest int) {
	var order []size
	for _, first := range []bool{true, false} {
		for _, z := range sizes {
			if given[z.flag] == first {
				order = append(order, z)
			}
		}
	}
	for _, z := range order {
		smaller := s
		value := z.value(&smaller)
		was := *value
		n := sort.Search(was, func(n int) bool { *value = n + 1; return !fits(smaller) }) // it grows
		switch n = rounded(n); z.flag {
		case "dim":
			n -= n % s.Heads
		case "bpe":
			n *= min(n/leastBPE, 1)
		}
		if n > 0 {
			return z.flag, was, n
		}
	}
	return order[0].flag, *order[0].value(&s), 0
}

// rounded is a number of two digits and zeros that is at most n.
func rounded(n int) int {
	if n < 100 {
		return n
	}
	unit := int(math.Pow10(int(math.Log10(float64(n))) - 1))
	return n / unit * unit
}
