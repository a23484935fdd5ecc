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
	if err := verify(path); err != nil {
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
	if c.Weights, err = loadTensors(filepath.Join(path, modelFile)); err != nil {
		return c, err
	}
	c.Optimizer, err = loadTensors(filepath.Join(path, optimizerFile))
	return c, err
}

// verify compares the files with their checksums, before anything in them is believed.
func verify(path string) error {
	sums, err := plainfile.ReadFile(filepath.Join(path, sumsFile), maxText)
	if err != nil {
		return err
	}
	rest := string(sums)
	for _, name := range summedFiles {
		line, after, ended := strings.Cut(rest, "\n")
		want, named := strings.CutSuffix(line, "  "+name)
		if !ended || !named {
			return fmt.Errorf("%s has %q where the checksum of %s needs to be", sumsFile, line, name)
		}
		have, size, err := checksum(filepath.Join(path, name))
		if err != nil {
			return err
		}
		if have != want {
			return fmt.Errorf("%s, of %d bytes, does not have the checksum in %s: one of the two is cut short or changed", name, size, sumsFile)
		}
		rest = after
	}
	if rest != "" {
		return fmt.Errorf("%s has %d bytes too many", sumsFile, len(rest))
	}
	return nil
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
