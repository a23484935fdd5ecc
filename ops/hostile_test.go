package ops_test

import (
	"io"
	"reflect"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/hostile"
	"github.com/stheno-ml/stheno/kernels/score"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Values that no constructor has made, and constructors without what they need, give errors.
func TestZeroValues(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(1, 2, 3, 4), gorgonia.WithName("x"))
	value := tensor.New(tensor.WithShape(2), tensor.WithBacking([]float32{1, 2}))
	for _, zero := range []any{&ops.Chooser{}, &ops.Choosing{}, &ops.Feed{}, &ops.KVCache{}, &ops.Device{}, &ops.Mode{}} {
		panics := append(hostile.CallAll(zero), hostile.CallAll(zero, g, value, "name")...)
		for _, panicked := range panics {
			t.Error(panicked)
		}
	}
	zero := &gorgonia.Node{}
	ops.Keep(nil, x)
	for name, err := range map[string]error{
		"Add, zero node":              errorOf(ops.Add(zero, x)),
		"Cast, zero node":             errorOf(ops.Cast(zero, tensor.Float64)),
		"Documents of a zero node":    errorOf(ops.FlashAttention(x, x, x, ops.AttentionOptions{Mask: ops.Documents(zero)})),
		"RelativeBias of a zero node": errorOf(ops.FlashAttention(x, x, x, ops.AttentionOptions{Score: ops.RelativeBias(zero, 8, true)})),
		"NewChooser, fewer than none": errorOf(ops.NewChooser(nil, -1)),
		"NewChooser, many texts":      errorOf(ops.NewChooser(nil, 1<<62)),
		"NewFeed, nothing":            errorOf(ops.NewFeed(nil, nil)),
		"NewFeed, zero device":        errorOf(ops.NewFeed(&ops.Device{}, value)),
		"NewFeed, zero value":         errorOf(ops.NewFeed(nil, &tensor.Dense{})),
		"NewChooser, no texts":        errorOf(ops.NewChooser(nil, 0)),
		"Add, zero chooser":           errorOf((&ops.Chooser{}).Add(x)),
		"NewMachine, no graph":        errorOf(ops.NewMachine(nil)),
		"WritePlan, no graph":         ops.WritePlan(io.Discard, nil),
		"WritePlan, no writer":        ops.WritePlan(nil, g),
		"CachedAttention, zero":       errorOf(ops.CachedAttention(x, x, x, &ops.KVCache{}, ops.CachedAttentionOptions{})),
		"CachedAttention, no cache":   errorOf(ops.CachedAttention(x, x, x, nil, ops.CachedAttentionOptions{})),
		"Upload, zero device":         errorOf((&ops.Device{}).Upload(value)),
		"Upload, no device":           errorOf((*ops.Device)(nil).Upload(value)),
		"Record, zero device":         errorOf(ops.Record(g, &ops.Device{}, func() error { return nil })),
		"Record, no device":           errorOf(ops.Record(g, nil, func() error { return nil })),
		"Record, no run":              errorOf(ops.Record(g, &ops.Device{}, nil)),
		"Download, no tensor":         errorOf(ops.Download((*tensor.Dense)(nil))),
		"Download, nothing":           errorOf(ops.Download(nil)),
		"PlaceOf, no tensor":          errorOf(ops.PlaceOf((*tensor.Dense)(nil))),
		"Assign, no tensor":           ops.Assign(value, (*tensor.Dense)(nil)),
		"MaskPicture, no writer":      ops.MaskPicture(nil, score.Causal, ops.MaskPlace{QueryLength: 3, KeyLength: 3}),
		"Fill, zero feed":             (&ops.Feed{}).Fill(value),
		"Send, zero feed":             (&ops.Feed{}).Send(),
		"Node of a zero feed, in Add": errorOf(ops.Add((&ops.Feed{}).Node(g, "in"), x)),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// errorOf is the error of a function that gives a result and an error.
func errorOf[T any](_ T, err error) error { return err }

// FuzzKVCache makes caches of changed configs and attends to them.
func FuzzKVCache(f *testing.F) {
	declared, err := hostile.Constructors(".")
	if tried := []string{"NewChooser", "NewFeed", "NewKVCache", "NewMachine"}; err != nil || !reflect.DeepEqual(slices.Sorted(slices.Values(declared)), tried) {
		f.Fatalf("the package has %v, these tests try %v (%v)", declared, tried, err)
	}
	f.Add([]byte{})
	for n := range byte(40) {
		f.Add([]byte{n, n * 7, n * 31, n * 13})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, c := hostile.Bytes(data), ops.KVCacheConfig{DType: tensor.Float32, Batch: 1, Heads: 2, HeadDim: 3, Capacity: 5}
		for changes := 0; len(b) > 0 && changes < 3; changes++ {
			hostile.Change(&b, nil, &c)
		}
		cache, err := ops.NewKVCache(c)
		if err != nil {
			return
		}
		g := gorgonia.NewGraph()
		in := tensor.New(tensor.WithShape(1, 2, 3, 3), tensor.WithBacking(make([]float32, 18)))
		x := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(1, 2, 3, 3), gorgonia.WithName("x"), gorgonia.WithValue(in))
		if _, err := ops.CachedAttention(x, x, x, cache, ops.CachedAttentionOptions{}); err != nil {
			return
		}
		vm, err := ops.NewMachine(g)
		if err != nil {
			t.Fatal(err)
		}
		defer vm.Close()
		if err := vm.RunAll(); (err == nil) != (cache.Len() == 3) {
			t.Errorf("%+v: %d tokens are held after error %v", c, cache.Len(), err)
		}
	})
}
