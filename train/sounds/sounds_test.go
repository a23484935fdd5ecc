package sounds

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sound is that of testdata/golden.py.
func sound() []float32 {
	list := make([]float32, 9000)
	for i := range list {
		list[i] = float32(float64((i*i*37)%2001-1000)/4000 + math.Sin(float64(i)*0.3)/4)
	}
	return list
}

// Spectra are those of transformers.
func TestSpectra(t *testing.T) {
	text, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Shape  []int
		Values []float64
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	p, err := Open("testdata")
	if err != nil {
		t.Fatal(err)
	}
	have, err := p.Spectra(sound(), 16000)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(have.Shape(), want.Shape) {
		t.Fatalf("the shape is %v, want %v", have.Shape(), want.Shape)
	}
	for i, x := range want.Values {
		if y := float64(have.Float32s()[i]); math.Abs(x-y) > 2e-5 {
			t.Errorf("number %d is %v, want %v", i, y, x)
		}
	}
	if _, err := p.Spectra(sound(), 8000); err == nil || !strings.Contains(err.Error(), "rate is 8000") {
		t.Errorf("another rate: %v", err)
	}
	if _, err := new(Processor).Spectra(nil, 16000); err == nil {
		t.Error("a zero Processor gives spectra")
	}
}

// wav is a file of samples.
func wav(format, channels, bits uint16, data any) []byte {
	var body, file bytes.Buffer
	binary.Write(&body, binary.LittleEndian, data)
	file.WriteString("RIFF\x00\x00\x00\x00WAVELIST\x03\x00\x00\x00abc\x00fmt \x10\x00\x00\x00")
	binary.Write(&file, binary.LittleEndian, wave{format, channels, 16000, 0, 0, bits})
	file.WriteString("data")
	binary.Write(&file, binary.LittleEndian, uint32(body.Len()))
	file.Write(body.Bytes())
	return file.Bytes()
}

func TestReadWAV(t *testing.T) {
	for _, c := range []struct {
		file []byte
		want []float32
	}{
		{wav(1, 1, 16, []int16{0, 16384, -32768}), []float32{0, 0.5, -1}},
		{wav(1, 2, 16, []int16{0, 16384, -32768, 0}), []float32{0.25, -0.5}},
		{wav(1, 1, 8, []uint8{128, 192, 0}), []float32{0, 0.5, -1}},
		{wav(1, 1, 24, []uint8{0, 0, 64, 0, 0, 128}), []float32{0.5, -1}},
		{wav(1, 1, 32, []int32{1 << 30}), []float32{0.5}},
		{wav(3, 1, 32, []float32{0.25}), []float32{0.25}},
		{wav(3, 1, 64, []float64{0.25}), []float32{0.25}},
	} {
		have, rate, err := ReadWAV(bytes.NewReader(c.file))
		if err != nil || rate != 16000 || !slices.Equal(have, c.want) {
			t.Errorf("%v, %d, %v, want %v", have, rate, err, c.want)
		}
	}
	padded := wav(1, 1, 24, []uint8{0, 0, 64, 0})
	padded[44] = 4 // bytes of a sample
	streamed := wav(1, 1, 16, []int16{16384})
	binary.LittleEndian.PutUint32(streamed[len(streamed)-6:], math.MaxUint32)
	if have, _, err := ReadWAV(bytes.NewReader(streamed)); err != nil || !slices.Equal(have, []float32{0.5}) {
		t.Errorf("a file whose length was not known: %v, %v", have, err)
	}
	whole := wav(1, 1, 16, []int16{1, 2, 3})
	for n := range whole {
		ReadWAV(bytes.NewReader(whole[:n])) // nothing panics
	}
	for want, file := range map[string][]byte{
		"they need to take 3":                  padded, // 24 bits in 32
		"there are 4 bytes of them, it says 6": whole[:len(whole)-2],
		"no WAV file":                          []byte("RIFF"), "is not supported": wav(2, 1, 16, []int16{1}), "no samples": whole[:48],
	} {
		if _, _, err := ReadWAV(bytes.NewReader(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

// A window of an odd length leaves out the last piece, as transformers' does.
func TestOddWindow(t *testing.T) {
	folder := t.TempDir()
	config := `{"chunk_length": 1, "sampling_rate": 1600, "n_fft": 41, "feature_size": 3}`
	if err := os.WriteFile(filepath.Join(folder, configFile), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	if have, err := p.Spectra(nil, 1600); err != nil || !slices.Equal(have.Shape(), []int{9, 3}) {
		t.Errorf("the spectra are %v, %v, want 9 of 3 bins", have.Shape(), err)
	}
}

func TestErrors(t *testing.T) {
	for config, want := range map[string]string{
		`{"chunk_length": 1024, "sampling_rate": 1000000, "hop_length": 1}`: "would be too large",
		`{"chunk_length": 1000, "hop_length": 16, "feature_size": 1}`:       "would be too large",
		`{"chunk_length": 30, "sampling_rate": 1000000, "n_fft": 16384}`:    "would be too large",
		`[]`: "cannot unmarshal", `{"feature_size": 0}`: "feature_size is 0", `{"dither": 1}`: "dither 1", `{"sampling_rate": 100, "chunk_length": 1}`: "n_fft 400",
	} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, configFile), []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(folder); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", config, err, want)
		}
	}
}

// FuzzReadWAV makes sure that any file is samples or an error, and that there are no more samples
// than bytes.
func FuzzReadWAV(f *testing.F) {
	head := func(format, channels, bits uint16, size uint32, data string) []byte {
		b := append([]byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00"), byte(format), byte(format>>8), byte(channels), byte(channels>>8), 0x80, 0x3e, 0, 0, 0, 0, 0, 0, 0, 0, byte(bits), 0)
		return append(binary.LittleEndian.AppendUint32(append(b, "data"...), size), data...)
	}
	f.Add(head(1, 1, 16, 4, "abcd"))
	f.Add(head(1, 2, 24, 6, "abcdef"))
	f.Add(head(3, 1, 64, 0xffffffff, "abcdefgh"))
	f.Add(head(0xfffe, 64, 8, 0x7fffffff, "a"))
	f.Fuzz(func(t *testing.T, content []byte) {
		samples, rate, err := ReadWAV(bytes.NewReader(content))
		if err == nil && (rate < 1 || len(samples) > len(content)) {
			t.Errorf("%d samples at %d a second of %d bytes", len(samples), rate, len(content))
		}
	})
}

// FuzzOpen makes sure that any config is a Processor that makes spectra, or an error.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{"feature_size": 80, "sampling_rate": 16000, "hop_length": 160, "chunk_length": 1, "n_fft": 400}`), []byte("abcd"))
	f.Add([]byte(`{"feature_size": 1, "sampling_rate": 7, "hop_length": 1, "chunk_length": 1, "n_fft": 3}`), []byte("\x00\xff"))
	f.Fuzz(func(t *testing.T, config, sound []byte) {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, configFile), config, 0o644); err != nil {
			t.Fatal(err)
		}
		p, err := Open(folder)
		if err != nil || p.frames*p.length*p.length > 1<<24 {
			return
		}
		samples := make([]float32, len(sound))
		for i, b := range sound {
			samples[i] = float32(b)/128 - 1
		}
		if _, err := p.Spectra(samples, p.rate); err != nil {
			t.Error(err)
		}
	})
}
