package watch

import (
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/train"
)

// BenchmarkStep is what hooks cost for each step, when steps follow each other as fast as they can.
func BenchmarkStep(b *testing.B) {
	file := func(name string) string { return filepath.Join(b.TempDir(), name) }
	hooks := map[string]train.Hook{
		"Progress on a terminal": newProgress(&screen{w: io.Discard, width: func() int { return 120 }}, time.Now).hook(),
		"Progress in lines":      newProgress(&screen{w: io.Discard}, time.Now).hook(),
		"OpenJSONLines":          OpenJSONLines(file("log.jsonl")),
		"OpenCSV":                OpenCSV(file("log.csv")),
		"TensorBoard":            TensorBoard(file("events")),
		"Plot":                   Plot(file("loss.png")),
	}
	for name, h := range hooks {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			if err := h.OnStart(train.Start{Steps: b.N}); err != nil {
				b.Fatal(err)
			}
			done := 0
			for b.Loop() {
				done++
				if err := h.OnStep(stepAt(done, 1<<30)); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			if err := h.OnEnd(train.End{}); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkRedraw is what the bar costs ten times a second.
func BenchmarkRedraw(b *testing.B) {
	p := newProgress(&screen{w: io.Discard, width: func() int { return 120 }}, time.Now)
	if err := play(p.hook(), train.Start{Steps: 2000}, stepAt(1, 2000)); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := p.draw(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDraw is what a picture costs.
func BenchmarkDraw(b *testing.B) {
	log := someLog(5000)
	for _, name := range []string{"loss.png", "loss.svg"} {
		path := filepath.Join(b.TempDir(), name)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := Draw(path, log); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
