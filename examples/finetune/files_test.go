package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/smallmodel"
)

// What was learnt stays: in a folder whose name means something to a pattern, where the picture of
// the losses cannot be written, and for a run that has no checkpoint but the best.
func TestNothingIsLost(t *testing.T) {
	model, text := smallmodel.Llama(t, false), filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("The strong one of three. ", 60)), 0o666); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	args := []string{"-model", model, "-data", text, "-context", "32", "-batch", "2", "-eval-every", "2", "-device", "cpu"}
	train := func(t *testing.T, more ...string) (said string, err error) {
		s, err := parse(append(append([]string{}, args...), more...), io.Discard)
		if err != nil {
			return "", err
		}
		var out bytes.Buffer
		err = finetune(t.Context(), s, &out)
		return out.String(), err
	}
	isThere := func(path string) {
		t.Helper()
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}

	if _, err := train(t, "-steps", "2", "-out", "run[1]"); err != nil {
		t.Fatal(err)
	}
	isThere("run[1]/adapter/adapter_model.safetensors")
	if _, err := train(t, "-steps", "2", "-out", "run[1]"); err == nil || !strings.Contains(err.Error(), "-out run[1] holds a run already") {
		t.Errorf("a second run in its folder: %v", err)
	}

	if err := os.MkdirAll("pictured/loss.png/full", 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := train(t, "-steps", "2", "-out", "pictured"); err == nil || !strings.Contains(err.Error(), "loss.png") {
		t.Errorf("without a picture: %v", err)
	}
	isThere("pictured/adapter/adapter_model.safetensors")

	if err := os.MkdirAll("saved/adapter", 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("saved/adapter/adapter_model.safetensors/full", 0o777); err != nil {
		t.Fatal(err)
	}
	said, err := train(t, "-steps", "2", "-out", "saved")
	if err == nil || !strings.Contains(said, "to go on from the newest checkpoint: go run ./examples/finetune -resume -out saved\n") {
		t.Errorf("an adapter that cannot be saved: %v, and it says\n%s", err, said)
	}
	newest, err := filepath.Glob("saved/checkpoints/step-*")
	if err != nil || len(newest) == 0 {
		t.Fatalf("checkpoints %v, %v", newest, err)
	}
	for _, path := range append(newest, "saved/adapter/adapter_model.safetensors") {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	args = nil
	if _, err := train(t, "-resume", "-out", "saved"); err != nil {
		t.Errorf("from the best checkpoint: %v", err)
	}
	isThere("saved/adapter/adapter_model.safetensors")
}
