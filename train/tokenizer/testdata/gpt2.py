"""Writes a small vocabulary for GPT-2's byte-pair encoding, vocab.json and merges.txt, and what others make of texts with
it, gpt2.json.

    python3 gpt2.py          (in this directory; needs tokenizers 0.23.3 and regex 2026.11.15)

The pieces of a text are those of GPT-2's pattern by the regex module; its ids are those of Hugging Face's tokenizers.
"""

import json
import random

import regex
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|endoftext|>"
PATTERN = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")

CORPUS = """
A tokenizer turns text into numbers. It doesn't know what the text means; it has seen which letters stand beside each
other, and it's learned to take those together that are together often. The words that come often, such as the, and, of,
to, in, that and it, are a token of their own, with the space before them. We'll see that the others are made of parts:
tokenizer, tokenizing, tokenized and tokens begin alike, and so they're cut alike. I've counted 1234567890 of them in 2024.

func (t *Tokenizer) Encode(text string) ([]int, error) {
	for i := 0; i < len(text); i++ {
		if text[i] == ' ' || text[i] == '\\n' {
			return nil, fmt.Errorf("there's nothing to encode at %d", i)
		}
	}
	return ids, nil
}

Größe, Straße, über; café, élève, naïve; что это такое, это не то; 日本語の文章, 東京, 日本; 👍🏽 😀😀; x² + y² ≤ 10⁻³ – “so” … and so on!!!
"""

PARTS = [
    *"aAzZ09'.,!-_(){}<>|/\\\"", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\u00a0", "\u0085", "\u2003", "\u3000", "\x00", "\x1c", "\x7f",
    "'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'r", "'l", "''", " '", "the", " the", " and", "token", "izer", "Encode", "text",
    "ß", "é", "e\u0301", "что", "日本", "語", "👍🏽", "😀", "²", "Ⅷ", "٣", "½", "ª", "\u200d", "\ufeff", "\ufffd", "…", "–", "“", END, "<|endof",
]


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=[END]
    )
    tokenizer.train_from_iterator(CORPUS.splitlines(keepends=True), trainer)
    return tokenizer


def texts():
    chance = random.Random(7)
    yield from ["", " ", "  ", "a", "'", "'s", " 's", "'sx", "a's", "x  y", "x \n y", "x \n", "\n\n  x", END, f"a{END}{END} b", f" {END}\n", "aaaaaaaaaaaa"]
    yield from [line for line in CORPUS.splitlines() if line]
    yield "the tokenizer" * 20
    for _ in range(200):
        yield "".join(chance.choice(PARTS) for _ in range(chance.randint(1, 12)))


def main():
    tokenizer = train()
    saved = json.loads(tokenizer.to_str())["model"]
    vocab = dict(sorted(saved["vocab"].items(), key=lambda item: item[1]))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in saved["merges"]]
    with open("vocab.json", "w", encoding="utf-8") as file:
        json.dump(vocab, file, ensure_ascii=False, indent=0)
    with open("merges.txt", "w", encoding="utf-8") as file:
        file.write("#version: 0.2\n" + "\n".join(merges) + "\n")

    plain = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(merge.split(" ")) for merge in merges]))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    cases = []
    for text in texts():
        case = {"Text": text, "Pieces": PATTERN.findall(text), "IDs": plain.encode(text).ids}
        if END in text:
            case["Special"] = tokenizer.encode(text).ids
        cases.append(case)
    with open("gpt2.json", "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n")


main()
