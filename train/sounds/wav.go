package sounds

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

const (
	maxWAV = 1 << 30 // bytes that are read of a file
	// unknown is the least size of a chunk that a program writes who does not know it yet: the
	// samples go on to the file's end.
	unknown = 0x7ff00000
)

// ReadWAV reads a WAV file: the samples, the mean of its channels, between −1 and 1, and how many
// there are a second. Samples are integers of 8, 16, 24 or 32 bits, or floats of 32 or 64.
func ReadWAV(r io.Reader) (samples []float32, rate int, err error) {
	bounded := &io.LimitedReader{R: r, N: maxWAV}
	if samples, rate, err = readWAV(bounded); bounded.N == 0 {
		err = fmt.Errorf("the file is as long as %d bytes or longer, it needs to be shorter", maxWAV)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("sounds: %w", err)
	}
	return samples, rate, nil
}

// wave is what the format of a file says.
type wave struct {
	Format, Channels uint16
	Rate, BytesRate  uint32
	Align, Bits      uint16
}

func readWAV(r io.Reader) ([]float32, int, error) {
	var head [12]byte
	if _, err := io.ReadFull(r, head[:]); err != nil || string(head[:4]) != "RIFF" || string(head[8:]) != "WAVE" {
		return nil, 0, errors.New("it is no WAV file")
	}
	var w *wave
	for {
		var chunk struct {
			Name [4]byte
			Size uint32
		}
		if err := binary.Read(r, binary.LittleEndian, &chunk); err != nil {
			return nil, 0, errors.New("the file has no samples")
		}
		body := io.LimitReader(r, int64(chunk.Size)+int64(chunk.Size%2))
		switch string(chunk.Name[:]) {
		case "fmt ":
			w = &wave{}
			if err := binary.Read(body, binary.LittleEndian, w); err != nil {
				return nil, 0, errors.New("the format is cut off")
			}
			if err := w.extend(body, chunk.Size); err != nil {
				return nil, 0, err
			}
		case "data":
			if w == nil {
				return nil, 0, errors.New("the samples come before their format")
			}
			data, err := io.ReadAll(io.LimitReader(body, int64(chunk.Size)))
			if err != nil {
				return nil, 0, err
			}
			if chunk.Size < unknown && len(data) < int(chunk.Size) {
				return nil, 0, fmt.Errorf("the samples are cut off: there are %d bytes of them, it says %d", len(data), chunk.Size)
			}
			return w.samples(data), int(w.Rate), nil
		}
		if _, err := io.Copy(io.Discard, body); err != nil {
			return nil, 0, err
		}
	}
}

// The formats of samples.
const (
	integers   = 1
	floats     = 3
	extensible = 0xfffe
)

// extend reads which format an extensible one stands for, and checks it.
func (w *wave) extend(body io.Reader, size uint32) error {
	if w.Format == extensible && size >= 40 {
		var more [10]byte
		if _, err := io.ReadFull(body, more[:]); err != nil {
			return errors.New("the format is cut off")
		}
		w.Format = binary.LittleEndian.Uint16(more[8:])
	}
	known := w.Format == integers && (w.Bits == 8 || w.Bits == 16 || w.Bits == 24 || w.Bits == 32) || w.Format == floats && (w.Bits == 32 || w.Bits == 64)
	if !known || w.Channels < 1 || w.Channels > 64 || w.Rate < 1 || w.Rate > 1<<20 {
		return fmt.Errorf("samples are of format %d with %d bits, %d channels and %d a second, which is not supported", w.Format, w.Bits, w.Channels, w.Rate)
	}
	if want := w.Bits / 8 * w.Channels; w.Align != 0 && w.Align != want {
		return fmt.Errorf("samples of all %d channels take %d bytes together, of %d bits each they need to take %d", w.Channels, w.Align, w.Bits, want)
	}
	return nil
}

// samples are the means of the channels.
func (w *wave) samples(data []byte) []float32 {
	bytes, channels := int(w.Bits/8), int(w.Channels)
	list := make([]float32, len(data)/(bytes*channels))
	for i := range list {
		sum := 0.0
		for c := range channels {
			sum += w.sample(data[(i*channels+c)*bytes:][:bytes])
		}
		list[i] = float32(sum / float64(channels))
	}
	return list
}

func (w *wave) sample(b []byte) float64 {
	switch {
	case w.Format == floats && w.Bits == 64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case w.Format == floats:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case w.Bits == 8:
		return (float64(b[0]) - 128) / 128
	}
	var value uint32
	for i, x := range b {
		value |= uint32(x) << (8 * (4 - len(b) + i))
	}
	return float64(int32(value)) / (1 << 31)
}
