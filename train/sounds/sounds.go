// Package sounds makes of sounds what models that hear read: spectra of short pieces, whose
// frequencies are spaced as the ear hears them, as transformers does it for Whisper.
//
//	p, err := sounds.Open(m.Folder())
//	samples, rate, err := sounds.ReadWAV(file)
//	spectra, err := p.Spectra(samples, rate)    // (frames, bins)
//	err = decoder.Read(spectra)                 // of a Whisper's NewDecoder
package sounds

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/stheno-ml/stheno/internal/plainfile"
	"gorgonia.org/tensor"
)

// Processor is what the preprocessor_config.json of a folder says.
type Processor struct {
	rate, samples       int // a second, and of all
	length, hop, frames int // of a piece and between two, in samples; and how many pieces there are
	window              []float64
	cos, sin            []float64   // of turns by parts of length
	bins                [][]float64 // how much of each frequency a bin has
}

const (
	configFile = "preprocessor_config.json"
	maxConfig  = 4 << 20 // older ones hold the bins

	// maxNumbers bounds the numbers of all spectra, and maxSteps the products that they take: 43
	// and 27 times those of the largest Whisper.
	maxNumbers = 1 << 24
	maxSteps   = 1 << 33
)

// Open reads the config in a model's folder.
func Open(folder string) (*Processor, error) {
	text, err := plainfile.ReadFile(filepath.Join(folder, configFile), maxConfig)
	if err != nil {
		return nil, fmt.Errorf("sounds: %w", err)
	}
	c := struct {
		Bins    int     `json:"feature_size"`
		Rate    int     `json:"sampling_rate"`
		Hop     int     `json:"hop_length"`
		Seconds int     `json:"chunk_length"`
		Length  int     `json:"n_fft"`
		Padding float64 `json:"padding_value"`
		Dither  float64 `json:"dither"`
	}{80, 16000, 160, 30, 400, 0, 0}
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("sounds: %s: %w", configFile, err)
	}
	for name, n := range map[string][2]int{
		"feature_size": {c.Bins, 1 << 10}, "sampling_rate": {c.Rate, 1 << 20}, "hop_length": {c.Hop, 1 << 14}, "chunk_length": {c.Seconds, 1 << 10}, "n_fft": {c.Length, 1 << 14},
	} {
		if n[0] < 1 || n[0] > n[1] {
			return nil, fmt.Errorf("sounds: %s: %s is %d, it needs to be from 1 to %d", configFile, name, n[0], n[1])
		}
	}
	if c.Padding != 0 || c.Dither != 0 {
		return nil, fmt.Errorf("sounds: %s: padding_value is %v and dither %v, only 0 is supported", configFile, c.Padding, c.Dither)
	}
	// A config of a few bytes could ask for hours of a computer's time, and all of its memory.
	frames := int64(c.Rate) * int64(c.Seconds) / int64(c.Hop)
	steps := frames * int64(c.Length/2+1) * int64(c.Length+c.Bins)
	if frames*int64(c.Bins) > maxNumbers || steps > maxSteps {
		return nil, fmt.Errorf("sounds: %s: the spectra of %d s at %d samples a second, with a hop_length of %d, n_fft of %d and feature_size of %d, would be too large",
			configFile, c.Seconds, c.Rate, c.Hop, c.Length, c.Bins)
	}
	p := &Processor{rate: c.Rate, samples: c.Rate * c.Seconds, length: c.Length, hop: c.Hop, bins: bins(c.Bins, c.Length/2+1, c.Rate)}
	if p.frames = (p.samples - p.length%2) / p.hop; p.frames < 1 || p.length/2 >= p.samples {
		return nil, fmt.Errorf("sounds: %s: hop_length is %d and n_fft %d, they need to be shorter than the %d samples", configFile, p.hop, p.length, p.samples)
	}
	for i := range p.length {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / float64(p.length))
		p.sin, p.cos = append(p.sin, sin), append(p.cos, cos)
		p.window = append(p.window, (1-cos)/2)
	}
	return p, nil
}

// toMel is how high a frequency is heard: linear up to 1000 Hz, and in 27 logarithmic steps from
// there to 6400 Hz.
func toMel(hertz float64) float64 {
	if hertz < 1000 {
		return 3 * hertz / 200
	}
	return 15 + math.Log(hertz/1000)*27/math.Log(6.4)
}

func fromMel(mel float64) float64 {
	if mel < 15 {
		return 200 * mel / 3
	}
	return 1000 * math.Exp((mel-15)*math.Log(6.4)/27)
}

// bins are triangles over the frequencies, of one area, up to 8000 Hz.
func bins(count, frequencies, rate int) [][]float64 {
	const highest = 8000
	edge := func(i int) float64 { return fromMel(toMel(highest) * float64(i) / float64(count+1)) }
	list := make([][]float64, count)
	for i := range list {
		left, middle, right := edge(i), edge(i+1), edge(i+2)
		list[i] = make([]float64, frequencies)
		for f := range list[i] {
			at := float64(rate) / 2 * float64(f) / float64(max(1, frequencies-1))
			list[i][f] = max(0, min((at-left)/(middle-left), (right-at)/(right-middle))) * 2 / (right - left)
		}
	}
	return list
}

// Spectra makes spectra of samples between −1 and 1, (frames, bins). What is shorter than the model
// hears is followed by silence, what is longer is cut.
func (p *Processor) Spectra(samples []float32, rate int) (*tensor.Dense, error) {
	switch {
	case p == nil || len(p.bins) == 0:
		return nil, errors.New("sounds: the Processor is a zero value, it needs to be what Open gave")
	case rate != p.rate:
		return nil, fmt.Errorf("sounds: rate is %d samples a second, the model needs %d", rate, p.rate)
	}
	for i, x := range samples {
		if x != x || math.IsInf(float64(x), 0) {
			return nil, fmt.Errorf("sounds: sample %d is %v, it needs to be finite", i, x)
		}
	}
	values := make([]float64, p.frames*len(p.bins))
	var workers sync.WaitGroup
	n := runtime.GOMAXPROCS(0)
	for worker := range n {
		workers.Go(func() {
			for frame := worker; frame < p.frames; frame += n {
				p.spectrum(values[frame*len(p.bins):][:len(p.bins)], samples, frame*p.hop-p.length/2)
			}
		})
	}
	workers.Wait()
	loudest := math.Inf(-1)
	for _, x := range values {
		loudest = max(loudest, x)
	}
	narrow := make([]float32, len(values))
	for i, x := range values {
		narrow[i] = float32((max(x, loudest-8) + 4) / 4)
	}
	return tensor.New(tensor.WithShape(p.frames, len(p.bins)), tensor.WithBacking(narrow)), nil
}

// spectrum is the logarithms of the power in each bin, of the piece that begins at a sample. Beyond
// the ends samples are mirrored.
func (p *Processor) spectrum(to []float64, samples []float32, first int) {
	piece := make([]float64, p.length)
	for i := range piece {
		at := first + i
		if at < 0 {
			at = -at
		}
		if at >= p.samples {
			at = 2*(p.samples-1) - at
		}
		if at < len(samples) {
			piece[i] = float64(samples[at]) * p.window[i]
		}
	}
	power := make([]float64, p.length/2+1)
	for f := range power {
		re, im, turn := 0.0, 0.0, 0
		for _, x := range piece {
			re, im = re+x*p.cos[turn], im+x*p.sin[turn]
			if turn += f; turn >= p.length {
				turn -= p.length
			}
		}
		power[f] = re*re + im*im
	}
	for i, bin := range p.bins {
		sum := 0.0
		for f, w := range bin {
			sum += w * power[f]
		}
		to[i] = math.Log10(max(sum, 1e-10))
	}
}
