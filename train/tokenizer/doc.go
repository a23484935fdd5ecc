// Package tokenizer turns text into token ids and back.
//
// There are four tokenizers. [OpenHuggingFace] reads the tokenizer.json that most published models
// have, whatever is in it; [NewCharacters] has an id for each character of a text, as nanoGPT's
// small runs use; [Bytes] has the 256 bytes; [OpenGPT2] is GPT-2's byte-pair encoding from its
// vocab.json and merges.txt, and [TrainGPT2] learns one of the kind from a text:
//
//	t, err := tokenizer.OpenGPT2("vocab.json", "merges.txt")
//	ids, err := t.Encode("To be, or not to be")
//	text, err := t.Decode(ids)
//
// All are immutable and may be used by many goroutines at once.
//
// # Published models
//
// A [HuggingFace] does what Hugging Face's tokenizers library does with the same file: added and
// special tokens, normalisers, splitting by regular expressions, BPE over bytes or characters with
// byte fallback, Unigram, WordPiece, the template of special tokens, truncation, padding, and where
// in the text each token comes from. What a file asks for and there is not here is an error when it
// is read. [Open] reads a model's folder, with the special tokens that tokenizer_config.json adds.
// It also reads models of SentencePiece, tekken.json and the files of older tokenizers:
//
//	t, err := tokenizer.OpenHuggingFace("Llama-3.2-1B/tokenizer.json")
//	ids, err := t.Encode("To be, or not to be")                              // the text alone
//	e, err := t.EncodeWith("To be, or not to be", tokenizer.EncodeOptions{}) // e.IDs begins with <|begin_of_text|>
//
// # Text and bytes
//
// Decode of what Encode gave is the text again, to the byte, for every text that Encode takes:
// [Characters] takes valid UTF-8 of its own characters, [Bytes] and [GPT2] take any bytes, and with
// a [HuggingFace] it depends on its file: a normaliser changes the text for good. A token may be a
// part of a character, so that some ids decode to a string that is not valid UTF-8; its bytes are
// right all the same. A program that writes token by token writes the bytes of each, by the Bytes
// method, or with a [HuggingFace] what a [Stream] gives: together that is the text that Decode
// gives.
//
// # With a checkpoint
//
// A model is of no use without the tokenizer that it was trained with. [Save] writes one as JSON,
// whole, and [Load] reads it back as what it was.
package tokenizer
