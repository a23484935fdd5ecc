package watch

import (
	"bytes"
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/train"
)

var update = flag.Bool("update", false, "write the files of testdata anew")

// The files in testdata are those that testdata/check.py reads with TensorBoard's own reader: the
// first is of a run that was interrupted after step 5, the second of its resumption from step 3.
func TestTensorBoardGolden(t *testing.T) {
	odd := stepAt(4, 6)
	odd.Loss, odd.GradientNorm = math.NaN(), math.Inf(1)
	noDuration := stepAt(5, 6)
	noDuration.Duration = 0
	runs := [][]any{
		{
			train.Start{Steps: 6}, train.Evaluation{Train: 4, Validation: 4.25}, stepAt(1, 6), stepAt(2, 6), stepAt(3, 6), odd,
			train.Evaluation{Done: 4, Train: 3, Validation: 3.5}, noDuration, train.End{},
		},
		{
			train.Start{Step: 3, Steps: 6, Resumed: true}, stepAt(4, 6), train.Evaluation{Done: 4, Train: 2.5, Validation: 2.75},
			stepAt(5, 6), stepAt(6, 6), train.Evaluation{Done: 6, Train: 2.5, Validation: math.NaN()}, train.End{},
		},
	}
	clock := time.Unix(1700000000, 0)
	for i, events := range runs {
		folder := filepath.Join(t.TempDir(), "new", "folder")
		tb := newTensorBoard(folder, func() time.Time {
			clock = clock.Add(time.Second / 4)
			return clock
		})
		if err := play(tb.hook(), events...); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(folder, "events.out.tfevents.*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("files are %v, %v, it needs to be one", files, err)
		}
		got, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		name := []string{"events.out.tfevents.1.interrupted", "events.out.tfevents.2.resumed"}[i]
		golden := filepath.Join("testdata", "tensorboard", name)
		if *update {
			if err := os.MkdirAll(filepath.Dir(golden), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(golden, got, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s has other bytes than are written now:\n%x\n%x", golden, want, got)
		}
	}
}

// Runs that start in the same second have files of their own.
func TestTensorBoardNames(t *testing.T) {
	folder := t.TempDir()
	for range 3 {
		tb := newTensorBoard(folder, func() time.Time { return time.Unix(1700000000, 0) })
		if err := play(tb.hook(), run(0, 2, 2)...); err != nil {
			t.Fatal(err)
		}
	}
	if files, err := filepath.Glob(filepath.Join(folder, "events.out.tfevents.1700000000.*")); err != nil || len(files) != 3 {
		t.Errorf("files are %v, %v, it needs to be three", files, err)
	}
}
