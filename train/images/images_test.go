package images

import (
	"encoding/json"
	"image"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// golden is what transformers makes of a picture; see testdata/golden.py.
type golden struct {
	Height, Width int
	Pixels        []int
	Processed     map[string]struct {
		Shape  []int
		Values []float64
	}
}

func readGolden(t *testing.T) (g golden, picture image.Image) {
	t.Helper()
	text, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	own := image.NewNRGBA(image.Rect(0, 0, g.Width, g.Height))
	for i := range g.Width * g.Height {
		p := g.Pixels[3*i:]
		own.Set(i%g.Width, i/g.Width, color.NRGBA{uint8(p[0]), uint8(p[1]), uint8(p[2]), 255})
	}
	return g, own
}

// Pictures become the numbers that transformers makes of them.
func TestBatch(t *testing.T) {
	g, picture := readGolden(t)
	for name, want := range g.Processed {
		p, err := Open(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		have, err := p.Batch(picture, picture)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(have.Shape()[1:], want.Shape[1:]) {
			t.Fatalf("%s: the shape is %v, want %v", name, have.Shape(), want.Shape)
		}
		values := have.Float32s()
		for i, x := range want.Values {
			if math.Abs(float64(values[i])-x) > 1e-6 {
				t.Errorf("%s: number %d is %v, want %v", name, i, values[i], x)
			}
		}
		if n := len(want.Values); !slices.Equal(values[:n], values[n:]) {
			t.Errorf("%s: the second picture is another than the first", name)
		}
	}
}

// What is transparent shows white behind it, as transformers has it, whatever the type of the
// picture.
func TestTransparent(t *testing.T) {
	folder := t.TempDir()
	config := `{"do_resize": false, "do_rescale": false, "do_normalize": false}`
	if err := os.WriteFile(filepath.Join(folder, configFile), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	for alpha, want := range map[uint8][]float32{
		0: {255, 255, 255}, 1: {255, 254, 254}, 100: {233, 194, 175}, 254: {200, 101, 51}, 255: {200, 100, 50},
	} {
		at := image.Rect(3, -2, 4, -1)
		c := color.NRGBA{200, 100, 50, alpha}
		own, deep := image.NewNRGBA(at), image.NewNRGBA64(at)
		own.SetNRGBA(3, -2, c)
		deep.SetNRGBA64(3, -2, color.NRGBA64{R: 200<<8 | 255, G: 100 << 8, B: 50 << 8, A: uint16(alpha) << 8})
		for _, picture := range []image.Image{own, deep, image.NewPaletted(at, color.Palette{c})} {
			batch, err := p.Batch(picture)
			if err != nil {
				t.Fatal(err)
			}
			if have := batch.Float32s(); !slices.Equal(have, want) {
				t.Errorf("%T of alpha %d: %v, want %v", picture, alpha, have, want)
			}
		}
	}
}

// Configs that ask for something else, and pictures that do not fit, are errors.
func TestErrors(t *testing.T) {
	_, picture := readGolden(t)
	for config, want := range map[string]string{
		`{`:                             "unexpected end",
		`{"size": {"longest_edge": 3}}`: "size is",
		`{"size": 0}`:                   "size is 0",
		`{"size": 4, "resample": 9}`:    "resample is 9",
		`{"size": 4, "do_pad": true}`:   "do_pad is true",
		`{"size": 4, "image_processor_type": "ConvNextImageProcessor"}`: "one of Bit, CLIP, DINOv3ViT, DeiT, Gemma3, Siglip, ViT",
		`{"size": 4}`: "image_mean is []",
		`{"size": 4, "do_normalize": false, "do_center_crop": true, "crop_size": {"shortest_edge": 3}}`: "crop_size has a shortest_edge",
	} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, configFile), []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		p, err := Open(folder)
		if err == nil {
			_, err = p.Batch(picture)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", config, err, want)
		}
	}
	if _, err := new(Processor).Batch(); err == nil {
		t.Error("no pictures are taken")
	}
	if _, err := new(Processor).Batch(nil); err == nil {
		t.Error("a nil picture is taken")
	}
}

// uniform is a picture of one colour that takes no memory.
type uniform struct{ *image.Uniform }

var sides image.Rectangle

func (uniform) Bounds() image.Rectangle { return sides }

// A config of a few bytes, and a picture that takes no memory, cannot make large ones.
func TestLargePictures(t *testing.T) {
	for config, want := range map[string]string{
		`{"size": 16384}`:                   "size is 16384, it makes pictures of more than 16777216 pixels",
		`{"size": {"shortest_edge": 5000}}`: "it makes pictures of more than",
		`{"do_resize": false, "do_center_crop": true, "crop_size": 16384, "do_normalize": false}`: "crop_size is 16384, it makes pictures of more than",
	} {
		if _, err := open(t, config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", config, err, want)
		}
	}
	p, err := open(t, `{"size": {"shortest_edge": 4000}, "do_normalize": false}`)
	if err != nil {
		t.Fatal(err)
	}
	for want, r := range map[string]image.Rectangle{
		"its sides are too different":               image.Rect(0, 0, 4000, 1000),
		"it needs to have at most 134217728 pixels": image.Rect(0, 0, 16384, 16384),
		"it needs sides from 1 to":                  image.Rect(0, 0, 1<<30, 1<<30),
	} {
		sides = r
		if _, err := p.Batch(uniform{image.NewUniform(color.White)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q in it", r, err, want)
		}
	}
}

func open(t testing.TB, config string) (*Processor, error) {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, configFile), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return Open(folder)
}

// FuzzOpen makes sure that any config is a Processor that makes numbers of pictures, or an error.
func FuzzOpen(f *testing.F) {
	for _, name := range []string{"clip", "clip-larger", "clip-padded", "siglip", "vit"} {
		text, err := os.ReadFile(filepath.Join("testdata", name, configFile))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, uint16(7), uint16(5))
	}
	f.Add([]byte(`{"size": {"shortest_edge": 3}, "do_center_crop": true, "crop_size": 9, "do_normalize": false, "resample": 1}`), uint16(1), uint16(300))
	f.Fuzz(func(t *testing.T, config []byte, width, height uint16) {
		p, err := open(t, string(config))
		if err != nil || p.size.height*p.size.width > 1<<18 || p.size.edge > 1<<9 || p.window[0]*p.window[1] > 1<<18 {
			return
		}
		picture := image.NewNRGBA(image.Rect(-3, 2, int(width%512)-3, int(height%512)+2))
		batch, err := p.Batch(picture)
		if err == nil && (len(batch.Shape()) != 4 || batch.Shape()[1] != 3) {
			t.Errorf("the shape is %v", batch.Shape())
		}
	})
}
