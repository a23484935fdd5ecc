package train_test

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/hostile"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/sample"
	"github.com/stheno-ml/stheno/train/tokenizer"
)

// TestZeroValues calls the methods of values that no constructor has made.
func TestZeroValues(t *testing.T) {
	for _, value := range []any{
		&train.Optimizer{}, &train.Loop{}, &train.PendingReport{}, &checkpoint.Folder{},
		&data.Tokens{}, &data.Windows{}, &data.Prefetcher{}, &sample.Sampler{},
		&tokenizer.Bytes{}, &tokenizer.Characters{}, &tokenizer.GPT2{},
	} {
		for _, panicked := range hostile.CallAll(value) {
			if !strings.HasPrefix(panicked, "*data.Tokens.At:") { // which panics as an index does, and says so
				t.Error(panicked)
			}
		}
	}
}
