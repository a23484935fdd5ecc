// Package embed makes vectors of texts, by the models that sentence-transformers publishes: MiniLM,
// bge, e5, gte, EmbeddingGemma, Qwen3-Embedding and others. Texts that mean the same have vectors
// that point the same way.
//
//	e, err := embed.Load("hub:sentence-transformers/all-MiniLM-L6-v2", pretrained.Options{})
//	vectors, err := e.Embed("A cat sat.", "A dog ran.")
//	alike := embed.Cosine(vectors[0], vectors[1])
//
// What a folder says is done as sentence-transformers does it: modules.json, how the vectors of
// tokens are pooled, which linear layers follow, whether the result is normalised, how long a text
// may be, and the prompts that some models want before a text:
//
//	queries, err := e.EmbedWith("query", "Who sat?")
//
// A folder without modules.json is a bare model: an encoder's vectors are averaged, as
// sentence-transformers does too. A module that is not known is an error.
package embed
