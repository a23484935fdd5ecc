package prepare_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/data/prepare"
	"github.com/stheno-ml/stheno/train/tokenizer"
)

// Texts become files of tokens, of which batches are streamed.
func Example() {
	folder, err := os.MkdirTemp("", "prepare")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	texts := filepath.Join(folder, "texts.jsonl")
	if err := os.WriteFile(texts, []byte("{\"text\": \"Stheno\"}\n{\"text\": \"Euryale\"}\n"), 0o666); err != nil {
		log.Fatal(err)
	}
	const end = '\n' // of a document
	result, err := prepare.Run(context.Background(), []string{texts}, prepare.Options{
		Tokenizer: tokenizer.Bytes{}, After: []int{end}, Folder: filepath.Join(folder, "tokens"),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Documents, "documents are", result.Tokens, "tokens")

	shards, err := data.OpenShards(result.Train...)
	if err != nil {
		log.Fatal(err)
	}
	defer shards.Close()
	batches, err := data.Stream(shards, data.StreamOptions{Rows: 1, Length: 7})
	if err != nil {
		log.Fatal(err)
	}
	b, err := batches.Batch(0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(b)
	// Output:
	// 2 documents are 15 tokens
	// targets [1 7] of int, tokens [1 7] of int
}
