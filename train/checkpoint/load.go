package checkpoint

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/stheno-ml/stheno/internal/plainfile"
	"github.com/stheno-ml/stheno/safetensors"
)

// maxText is the most bytes that the files without tensors may have.
const maxText = 64 << 20

// Load reads the checkpoint in a folder such as runs/step-00002000. Each file must have the checksum that it was written
// with; one that is missing, cut short or changed is an error that names it.
func Load(path string) (Checkpoint, error) {
	c, err := load(path)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint: %s is refused: %w", path, err)
	}
	return c, nil
}

func load(path string) (c Checkpoint, err error) {
	parts, err := verify(path)
	if err != nil {
		return c, err
	}
	text, err := plainfile.ReadFile(filepath.Join(path, stateFile), maxText)
	if err != nil {
		return c, err
	}
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return c, fmt.Errorf("%s: %w", stateFile, err)
	}
	if s.Format != stateFormat {
		return c, fmt.Errorf("%s has format %d, this version reads format %d", stateFile, s.Format, stateFormat)
	}
	c = Checkpoint{Step: s.Step, Meta: s.Meta, Path: path}
	if parts > 0 {
		return c, c.loadParts(path, parts)
	}
	if c.Weights, err = loadTensors(filepath.Join(path, modelFile)); err != nil {
		return c, err
	}
	c.Optimizer, err = loadTensors(filepath.Join(path, optimizerFile))
	return c, err
}

// verify compares the files with their checksums, before anything in them is believed, and returns how many parts there are, 0
// where one process wrote all.
func verify(path string) (parts int, err error) {
	text, err := plainfile.ReadFile(filepath.Join(path, sumsFile), maxText)
	if err != nil {
		return 0, err
	}
	parts = partsIn(string(text))
	names := filesOf(parts)
	sums, err := splitSums(string(text), names)
	if err != nil {
		return 0, fmt.Errorf("%s %w", sumsFile, err)
	}
	for i, name := range names {
		have, size, err := checksum(filepath.Join(path, name))
		if err != nil {
			return 0, err
		}
		if have != sums[i] {
			return 0, fmt.Errorf("%s, of %d bytes, does not have the checksum in %s: one of the two is cut short or changed", name, size, sumsFile)
		}
	}
	return parts, nil
}

// splitSums returns the checksums that a text lists of some files. The error goes on from the text's name.
func splitSums(text string, names []string) ([]string, error) {
	var sums []string
	for _, name := range names {
		line, after, ended := strings.Cut(text, "\n")
		sum, named := strings.CutSuffix(line, "  "+name)
		if !ended || !named {
			return nil, fmt.Errorf("has %q where the checksum of %s needs to be", line, name)
		}
		sums, text = append(sums, sum), after
	}
	if text != "" {
		return nil, fmt.Errorf("has %d bytes too many", len(text))
	}
	return sums, nil
}

func checksum(path string) (sum string, size int64, err error) {
	in, _, err := plainfile.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer in.Close()
	hash := sha256.New()
	size, err = io.Copy(hash, in)
	return fmt.Sprintf("%x", hash.Sum(nil)), size, err
}

func loadTensors(path string) (safetensors.Tensors, error) {
	in, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return in.Tensors()
}
