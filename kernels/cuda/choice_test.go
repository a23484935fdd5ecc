//go:build gpu

package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/cuda"
	"github.com/stheno-ml/stheno/kernels/internal/choicetest"
)

// onDevice is a problem of choosing tokens there, and where the choice goes.
func onDevice(t testing.TB, d *cuda.Device, p *kernels.ChooseTokens) (*kernels.ChooseTokens, kernels.ChosenTokens) {
	t.Helper()
	up := func(x kernels.Tensor) kernels.Tensor {
		to, err := d.Alloc(x.DType, x.Shape...)
		if err = errors.Join(err, d.Copy(to, x)); err != nil {
			t.Fatal(err)
		}
		return to
	}
	texts := p.Logits.Shape[0]
	return &kernels.ChooseTokens{Logits: up(p.Logits), Settings: up(p.Settings), Random: up(p.Random), Earlier: up(p.Earlier)},
		kernels.ChosenTokens{IDs: up(kernels.Of(make([]int64, texts), texts)), LogProbs: up(kernels.Of(make([]float32, texts), texts))}
}

// Whatever the logits and the settings are, the choice is the CPU's: in every size of a cluster,
// and where a text does not fit in shared memory.
func TestChooseTokens(t *testing.T) {
	d := device(t)
	seeds := uint64(450)
	if *sanitize {
		seeds = 16
	}
	for _, any := range []bool{false, true} {
		if any {
			defer d.WithoutMaps()()
		}
		for seed := range seeds {
			r := rand.New(rand.NewPCG(seed, 0))
			p := choicetest.Draw(r, []int{1, 7, 300, 2049, 4097, 9000, 32000, 50257, 128256}[seed%9])
			texts := p.Logits.Shape[0]
			want, wantLogProbs := make([]int64, texts), make([]float32, texts)
			if err := cpu.New().ChooseTokens(p, kernels.ChosenTokens{IDs: kernels.Of(want, texts), LogProbs: kernels.Of(wantLogProbs, texts)}); err != nil {
				t.Fatal(err)
			}
			there, out := onDevice(t, d, p)
			got, gotLogProbs := make([]int64, texts), make([]float32, texts)
			if err := errors.Join(d.ChooseTokens(there, out), d.Copy(kernels.Of(got, texts), out.IDs), d.Copy(kernels.Of(gotLogProbs, texts), out.LogProbs)); err != nil {
				t.Fatal(err)
			}
			for text, id := range want {
				far := math.Abs(float64(gotLogProbs[text] - wantLogProbs[text]))
				if got[text] != id || !(far <= 1e-5*(1+math.Abs(float64(wantLogProbs[text])))) && wantLogProbs[text] == wantLogProbs[text] {
					t.Fatalf("seed %d, logits %v: text %d gets token %d of log-probability %v, it needs %d and %v: settings %v", seed, p.Logits.Shape, text, got[text],
						gotLogProbs[text], id, wantLogProbs[text], kernels.Host[float32](p.Settings)[text*kernels.ChoiceSettings:][:kernels.ChoiceSettings])
				}
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 0))
	there, out := onDevice(t, d, choicetest.Draw(r, 5))
	there.Logits.DType = kernels.F64
	if err := d.ChooseTokens(there, out); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("logits of float64: the error is %v, it needs to wrap errors.ErrUnsupported", err)
	}
}

// BenchmarkChooseTokens has normal logits whose standard deviation is 3, in recordings of 50
// choices.
func BenchmarkChooseTokens(b *testing.B) {
	d := device(b)
	for _, tokens := range []int{32000, 128256, 256000} {
		for _, texts := range []int{1, 16} {
			r := rand.New(rand.NewPCG(1, 0))
			logits := make([]float32, texts*tokens)
			for i := range logits {
				logits[i] = float32(3 * r.NormFloat64())
			}
			for _, c := range []kernels.Choice{{}, {Temperature: 1}, {Temperature: 1, TopK: 50}, {Temperature: 1, TopP: 0.9}, {Temperature: 0.7, TopK: 50, TopP: 0.9, MinP: 0.05, LogProb: true}} {
				b.Run(fmt.Sprintf("tokens=%d/texts=%d/T=%v,k=%v,p=%v", tokens, texts, c.Temperature, c.TopK, c.TopP), func(b *testing.B) {
					var settings []float32
					for range texts {
						row := c.Settings()
						settings = append(settings, row[:]...)
					}
					random := make([]int64, texts)
					for i := range random {
						random[i] = r.Int64()
					}
					p, out := onDevice(b, d, &kernels.ChooseTokens{Logits: kernels.Of(logits, texts, tokens), Settings: kernels.Of(settings, texts, kernels.ChoiceSettings),
						Random: kernels.Of(random, texts), Earlier: kernels.Of(make([]int32, texts+1), texts+1)})
					const choices = 50
					recording, err := d.Capture(func() error {
						for range choices {
							if err := d.ChooseTokens(p, out); err != nil {
								return err
							}
						}
						return nil
					})
					if err != nil {
						b.Fatal(err)
					}
					if err := errors.Join(recording.Launch(), d.Synchronize()); err != nil {
						b.Fatal(err)
					}
					b.ResetTimer()
					for range b.N {
						if err := recording.Launch(); err != nil {
							b.Fatal(err)
						}
					}
					if err := d.Synchronize(); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*choices)/1000, "µs/choice")
				})
			}
		}
	}
}
