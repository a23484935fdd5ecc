// Package prepare makes files of tokens of texts, which package data reads: of plain text, of JSON
// Lines and of Parquet.
//
//	result, err := prepare.Run(ctx, paths, prepare.Options{
//		Tokenizer: tokenizer, After: []int{end}, Folder: "tokens", Validation: 0.01,
//	})
//	shards, err := data.OpenShards(result.Train...)
//
// Documents are encoded by several goroutines, and written in the order in which they were read, so
// the files depend on the texts and the options alone. A few megabytes for each goroutine are in
// memory, and the longest document.
package prepare
