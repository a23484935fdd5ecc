package openai

import (
	"context"
	"sync"

	"github.com/stheno-ml/stheno/train/embed"
	"github.com/stheno-ml/stheno/train/tokenizer"
)

// EmbedBy is the [Embedder] of a model of package embed, which makes the vectors of one request
// after the other.
func EmbedBy(e *embed.Embedder) (Embedder, error) {
	t, err := tokenizer.Open(e.Model().Folder())
	if err != nil {
		return nil, err
	}
	var one sync.Mutex
	return func(ctx context.Context, texts []string) (vectors [][]float32, tokens int, err error) {
		for _, text := range texts {
			encoding, err := t.EncodeWith(text, tokenizer.EncodeOptions{})
			if err != nil {
				return nil, 0, wrong("input", "a text has no tokens: %v", err)
			}
			tokens += len(encoding.IDs)
		}
		one.Lock()
		defer one.Unlock()
		if ctx.Err() != nil {
			return nil, 0, context.Cause(ctx)
		}
		vectors, err = e.Embed(texts...)
		return vectors, tokens, err
	}, nil
}
