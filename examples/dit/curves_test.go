package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
)

var (
	curves = flag.String("curves", "", "a file: train for 300 steps and write the losses there, as package nn does")
	seeds  = flag.Int("seeds", 20, "with -curves: trainings")
)

// value is element i of a tensor of a name, from −1 to 1, as bench/models/curves.py has it.
func value(name string, i int) float64 {
	x := crc32.ChecksumIEEE([]byte(name)) + uint32(i)*2654435761
	for range 2 {
		x = (x ^ x>>16) * 0x45D9F3B
	}
	return float64(int(x^x>>16)>>11-1<<20) / (1 << 20)
}

// counted is waves whose numbers curves.py has too.
func counted(n int) (data.Batch, error) {
	x, noise, times := make([]float32, rows*length*channels), make([]float32, rows*length*channels), make([]float32, rows*dim)
	name := fmt.Sprint("DiT", n)
	for row := range rows {
		time, phase := (1+value(name+"time", row))/2, math.Pi*value(name+"phase", row)
		for j := range dim / 2 {
			angle := 1000 * time * math.Pow(1e4, -float64(j)/(dim/2))
			times[row*dim+j], times[row*dim+dim/2+j] = float32(math.Cos(angle)), float32(math.Sin(angle))
		}
		for j := range length * channels {
			k := row*length*channels + j
			e := math.Sqrt(3) * value(name+"noise", k)
			noise[k] = float32(e)
			x[k] = float32(math.Sqrt(1-time)*math.Sin(phase+float64(j)/5) + math.Sqrt(time)*e)
		}
	}
	return data.Batch{
		"x": data.Floats(x, rows, length, channels), "noise": data.Floats(noise, rows, length, channels), "t": data.Floats(times, rows, dim),
	}, nil
}

// With -curves losses are written as package nn's test does, beside which bench/models/curves.py
// has those of the twin. Without, the model learns something in a few steps.
func TestCurves(t *testing.T) {
	steps := 300
	if *curves == "" {
		steps, *seeds = 60, 1
	}
	var all [][]float64
	for seed := range *seeds {
		var list []float64
		_, err := train.Run(context.Background(), train.LoopConfig{
			Parameters: nn.NewParameters(uint64(seed + 1)),
			Model: func(s *nn.Scope, in train.Inputs) train.Outputs {
				return train.Outputs{Loss: dit(s, in.Get("x"), in.Get("t")).Sub(in.Get("noise")).Square().Mean()}
			},
			Optimizer: train.AdamW{}, Options: train.Options{Schedule: train.ConstantRate(1e-3)},
			Data: data.Func(counted), Steps: steps,
			Hooks: []train.Hook{{OnStep: func(s train.Step) error {
				list = append(list, s.Loss)
				return nil
			}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, list)
	}
	if *curves == "" {
		if first, last := all[0][0], all[0][steps-1]; !(last < 0.7*first) {
			t.Errorf("the loss is %.3f at first and %.3f at last", first, last)
		}
		return
	}
	text, err := json.Marshal(map[string][][]float64{"DiT": all})
	if err == nil {
		err = os.WriteFile(*curves, text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}
