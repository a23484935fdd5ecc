// Package tokenizer turns text into token ids and back.
//
// There are three tokenizers. [NewCharacters] has an id for each character of a text, as nanoGPT's small runs use;
// [Bytes] has the 256 bytes; [OpenGPT2] is GPT-2's byte-pair encoding from its vocab.json and merges.txt:
//
//	t, err := tokenizer.OpenGPT2("vocab.json", "merges.txt")
//	ids, err := t.Encode("To be, or not to be")
//	text, err := t.Decode(ids)
//
// All are immutable and may be used by many goroutines at once.
//
// # Text and bytes
//
// Decode of what Encode gave is the text again, to the byte, for every text that Encode takes: [Characters] takes valid
// UTF-8 of its own characters, the other two take any bytes. A token of those two may be a part of a character, so that
// some ids decode to a string that is not valid UTF-8; its bytes are right all the same. A program that writes token by
// token writes the bytes of each, by the Bytes method.
//
// # With a checkpoint
//
// A model is of no use without the tokenizer that it was trained with. [Save] writes one as JSON, whole, and [Load] reads
// it back as what it was.
package tokenizer
