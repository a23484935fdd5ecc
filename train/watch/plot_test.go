package watch

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/color"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/train"
	"pgregory.net/rapid"
)

// someLog is a training of so many steps that looks like one.
func someLog(steps int) Log {
	r := rand.New(rand.NewPCG(1, 2))
	var log Log
	at := func(done int) float64 { return 1.5 + 2.7*math.Exp(-float64(done)/float64(steps)*9) }
	for done := 1; done <= steps; done++ {
		s := stepAt(done, steps)
		s.Loss = at(done) + 0.08*r.NormFloat64()
		log.Steps = append(log.Steps, s)
	}
	for done := 0; done <= steps; done += max(steps/10, 1) {
		log.Evaluations = append(log.Evaluations, train.Evaluation{Done: done, Train: at(done), Validation: at(done) + 0.1})
	}
	return log
}

// Pictures have their size, and show the three lines.
func TestDraw(t *testing.T) {
	slow.Race(t)
	nan := train.Step{Done: 1, Loss: math.NaN()}
	for name, c := range map[string]struct {
		log    Log
		colors []color.NRGBA
	}{
		"nothing":          {Log{}, nil},
		"a step":           {Log{Steps: []train.Step{stepAt(1, 9)}}, nil},
		"no number":        {Log{Steps: []train.Step{nan}, Evaluations: []train.Evaluation{{Validation: math.Inf(1)}}}, nil},
		"no evaluations":   {Log{Steps: someLog(100).Steps}, []color.NRGBA{faintBlue, blue}},
		"only evaluations": {Log{Evaluations: someLog(100).Evaluations}, []color.NRGBA{orange}},
		"all":              {someLog(3000), []color.NRGBA{faintBlue, blue, orange}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "loss.PNG")
			if err := Draw(path, c.log); err != nil {
				t.Fatal(err)
			}
			file, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			picture, err := png.Decode(bytes.NewReader(file))
			if err != nil {
				t.Fatal(err)
			}
			if b := picture.Bounds(); b.Dx() != 1200 || b.Dy() != 750 {
				t.Errorf("the picture is %dx%d, it needs to be 1200x750", b.Dx(), b.Dy())
			}
			count := map[color.NRGBA]int{}
			for y := range 750 {
				for x := range 1200 {
					count[color.NRGBAModel.Convert(picture.At(x, y)).(color.NRGBA)]++
				}
			}
			for y := range 135 { // the legend's part, which the curve must not reach
				for x := 650; x < 1200; x++ {
					if r, g, b, _ := picture.At(x, y).RGBA(); r&g&b != 0xFFFF {
						t.Fatalf("there is something at (%d, %d), right of the legend", x, y)
					}
				}
			}
			if count[color.NRGBA{255, 255, 255, 255}] < 1200*750/2 {
				t.Error("most of the picture is not white")
			}
			for _, want := range c.colors {
				if count[want] < 100 {
					t.Errorf("%v has %d pixels", want, count[want])
				}
			}
			vectors := filepath.Join(t.TempDir(), "loss.svg")
			if err := Draw(vectors, c.log); err != nil {
				t.Fatal(err)
			}
			isXML(t, vectors)
		})
	}
	for _, path := range []string{"loss", "loss.gif", filepath.Join(t.TempDir(), "missing", "loss.png")} {
		wantError(t, Draw(path, Log{}), "Draw: ", path)
	}
}

func isXML(t *testing.T, path string) {
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for d := xml.NewDecoder(file); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
}

// The picture of a run is that of its log, and nothing else is left beside it.
func TestPlot(t *testing.T) {
	slow.Race(t)
	folder := t.TempDir()
	path, drawn := filepath.Join(folder, "loss.png"), filepath.Join(t.TempDir(), "loss.png")
	var log bytes.Buffer
	for _, h := range []train.Hook{Plot(path), JSONLines(&log)} {
		if err := play(h, run(0, 40, 40)...); err != nil {
			t.Fatal(err)
		}
	}
	read, err := ReadJSONLines(&log)
	if err != nil {
		t.Fatal(err)
	}
	if err := Draw(drawn, read); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(drawn)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("Plot and Draw give different pictures")
	}
	if files, err := os.ReadDir(folder); err != nil || len(files) != 1 {
		t.Errorf("the folder has %v, %v, it needs to have loss.png alone", files, err)
	}
}

// A run that ended within its first step leaves no picture.
func TestPlotOfOneStep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "loss.png")
	if err := play(Plot(path), train.Start{Steps: 9}, train.Evaluation{Validation: 2}, stepAt(1, 9), train.End{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a picture of one step: %v", err)
	}
}

// However many steps there are, no loss is outside of what the curve shows, and it stays small.
func TestCurve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := rapid.IntRange(1, 5*maxBuckets).Draw(t, "steps")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		c := newCurve(steps)
		losses := make([]float64, steps)
		for i := range losses {
			losses[i] = r.NormFloat64()
			if r.IntN(10) == 0 {
				losses[i] = math.NaN()
			}
			c.step(train.Step{Done: i + 1, Loss: losses[i]})
		}
		if len(c.buckets) > maxBuckets || steps < maxBuckets && c.perBucket != 1 {
			t.Fatalf("%d buckets of %d steps", len(c.buckets), c.perBucket)
		}
		from := 0
		for i, b := range c.buckets {
			least, most := math.Inf(1), math.Inf(-1)
			for _, x := range losses[from:b.step] {
				if finite(x) {
					least, most = min(least, x), max(most, x)
				}
			}
			if b.min != least || b.max != most {
				t.Fatalf("bucket %d is %+v, it needs to go from %v to %v", i, b, least, most)
			}
			from = b.step
		}
		for i, x := range losses[from:] {
			if finite(x) {
				t.Fatalf("the loss of step %d is in no bucket", from+i+1)
			}
		}
	})
}

// The mean of a straight line is that line, away from its ends, and that of a constant is the
// constant.
func TestCurveMeans(t *testing.T) {
	for _, steps := range []int{1, 10, 1000, 3*maxBuckets + 7} {
		constant, straight := newCurve(steps), newCurve(steps)
		for done := 1; done <= steps; done++ {
			constant.step(train.Step{Done: done, Loss: 2.5})
			straight.step(train.Step{Done: done, Loss: float64(done) / float64(steps)})
		}
		for i, got := range constant.means() {
			if !(math.Abs(got-2.5) <= 1e-12) {
				t.Errorf("%d steps: mean %d is %v, it needs to be 2.5", steps, i, got)
			}
		}
		if first := straight.buckets[0]; straight.means()[0] != first.sum/float64(first.steps) {
			t.Errorf("%d steps: the mean starts at %v, the losses at %v", steps, straight.means()[0], first.sum/float64(first.steps))
		}
		middle := len(straight.buckets) / 2
		want := straight.buckets[middle].sum / float64(straight.buckets[middle].steps)
		if got := straight.means()[middle]; steps > 100 && !(math.Abs(got-want) <= 1e-3) {
			t.Errorf("%d steps: the mean in the middle is %v, it needs to be %v", steps, got, want)
		}
	}
}

// The mean of numbers is that of their weights, from the first on.
func TestAverage(t *testing.T) {
	a := average{span: 3}
	if !math.IsNaN(a.value()) {
		t.Errorf("the average of nothing is %v", a.value())
	}
	for _, c := range []struct{ add, want float64 }{
		{4, 4}, {math.NaN(), 4}, {math.Inf(1), 4}, {1, (4*math.Exp(-1.0/3) + 1) / (math.Exp(-1.0/3) + 1)},
	} {
		if a.add(c.add); !(math.Abs(a.value()-c.want) <= 1e-15) {
			t.Errorf("with %v the average is %v, it needs to be %v", c.add, a.value(), c.want)
		}
	}
}

// A link where a picture is to be, or where it was drawn before it had its name, is not written
// through.
func TestPlotBesideLinks(t *testing.T) {
	folder := t.TempDir()
	other, path := filepath.Join(folder, "other"), filepath.Join(folder, "loss.svg")
	if err := os.WriteFile(other, []byte("of somebody else"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{path, path + ".part"} {
		if err := os.Symlink(other, link); err != nil {
			t.Skip(err)
		}
	}
	if err := play(Plot(path), train.Start{Steps: 9}, stepAt(1, 9), stepAt(2, 9), train.End{}); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(path); err != nil || !strings.Contains(string(content), "<svg") {
		t.Errorf("the picture is %.40q, %v", content, err)
	}
	if content, err := os.ReadFile(other); err != nil || string(content) != "of somebody else" {
		t.Errorf("what the links led to is %.40q, %v", content, err)
	}
}
