"""Draws tokenizers from the whole language of tokenizer.json and writes what Python's tokenizers library does with them.

    python3 drawn.py [COUNT [SEED]]    (in this directory; needs the package tokenizers)

The file drawn.json holds a tokenizer.json and cases as in huggingface.py for each one that the library reads. To compare many
more with another program, draw(random.Random(seed)) gives a tokenizer and its texts, and answer() what the library does.
"""

import json
import pathlib
import random
import sys

from tokenizers import Tokenizer, pre_tokenizers

from huggingface import case, llama3_pattern

words = ["the", "The", "hello", "world", "It's", "don't", "naïve", "cafe\u0301", "Größe", "ﬁne", "①", "½", "12", "3456", "x1", "²", "Ⅷ", "東京", "タワー",
         "世界", "你好", "안녕", "Привет", "мир", "αβγ", "שלום", "سلام", "नमस्ते", "ไทย", "🙂", "👩‍🚀", "🇩🇪", ".", ",", "!", "?", "...", "''", "``", "-", "_",
         "(a)", "$5", "a+b", "<s>", "</s>", "<mask>", "[CLS]", "[SEP]", "<pad>", "<unk>", "newword", "İ", "ß", "ſ", "ǅ", "Å", "A\u030a", "o\u0308\u0323",
         "\u200b", "\ufeff", "\u00ad", "\u0000", "\u0001", "\u007f", "▁", "▁a", "Ġ", "##ing", "ing", "|", "l", "lo", "aaa", "aaaa", "\u0e33", "ー", "\u1734",
         "\ufffd", "𐍈", "𝒜", "한", "\u1112\u1161\u11ab", "＠ｆｕｌｌ", "㎏", "ΐ", "\u0345", "\u0301", "ς", "Σ"]
gaps = [" ", " ", " ", " ", "", "", "  ", "   ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2003", "\u2028", "\u0085"]
letters = sorted({c for word in words for c in word} - {"\u0000"})
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
contents = ["<s>", "</s>", "<mask>", "[CLS]", "[SEP]", "<pad>", "<unk>", "newword", "the", "é", "▁a", " x", "a b", "1", "ing", "Größe", "東", "İ"]
patterns = [r"\s+", r"\w+", r"[aeiou]", r"\d", r"\p{L}+|\p{N}+", r"(?i:'s|'t)", r".", r" ?\w+", r"\b", r"x*", r"^", r"$", r"(?<=a)b", r"[^\s\w]",
            r"\s+(?!\S)|\s+", r" {2,}", r"[[:space:]]", r"[\u4e00-\u9fff]", llama3_pattern]


def text(r):
    return "".join(r.choice(gaps) + r.choice(words) for _ in range(r.choice([0, 1, 2, 3, 5, 9, 15]))) + r.choice(["", "", " ", "\n"])


def pattern(r):
    if r.random() < .5:
        return {"String": r.choice([" ", "a", "ab", "▁", "''", "é", "東", ".", "  "])}
    return {"Regex": r.choice(patterns)}


def flag(r):
    return r.random() < .5


def normalizer(r, depth=0):
    kind = r.choice(["BertNormalizer", "Strip", "StripAccents", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Lowercase", "Prepend", "Replace", "ByteLevel",
                     "Sequence", "Sequence"])
    if kind == "Sequence":
        return dict(type=kind, normalizers=[normalizer(r, depth + 1) for _ in range(r.choice([0, 1, 2, 2, 3]))]) if depth < 2 else dict(type="NFC")
    o = dict(type=kind)
    if kind == "BertNormalizer":
        o |= dict(clean_text=flag(r), handle_chinese_chars=flag(r), strip_accents=r.choice([None, True, False]), lowercase=flag(r))
    if kind == "Strip":
        o |= dict(strip_left=flag(r), strip_right=flag(r))
    if kind == "Prepend":
        o |= dict(prepend=r.choice(["▁", " ", "ab"]))
    if kind == "Replace":
        o |= dict(pattern=pattern(r), content=r.choice(["", " ", "▁", "xyz", "é"]))
    return o


behaviors = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def metaspace(r):
    o = dict(type="Metaspace", replacement=r.choice(["▁", "▁", "▁", "_", "a"]), prepend_scheme=r.choice(["always", "first", "never"]))
    if flag(r):
        o["split"] = flag(r)
    return o


def splitter(r, depth=0):
    kind = r.choice(["BertPreTokenizer", "ByteLevel", "CharDelimiterSplit", "Digits", "Metaspace", "Metaspace", "Punctuation", "Sequence", "Sequence",
                     "Split", "Split", "UnicodeScripts", "Whitespace", "WhitespaceSplit", "FixedLength"])
    if kind == "Sequence":
        steps = [splitter(r, depth + 1) for _ in range(r.choice([0, 1, 2, 2, 3]))] if depth < 2 else []
        return dict(type=kind, pretokenizers=steps)
    o = dict(type=kind)
    if kind == "ByteLevel":
        o |= dict(add_prefix_space=flag(r), trim_offsets=flag(r), use_regex=flag(r))
    if kind == "CharDelimiterSplit":
        o |= dict(delimiter=r.choice([" ", "a", "▁", "東"]))
    if kind == "Digits":
        o |= dict(individual_digits=flag(r))
    if kind == "Metaspace":
        o = metaspace(r)
    if kind == "Punctuation":
        o |= dict(behavior=r.choice(behaviors))
    if kind == "Split":
        o |= dict(pattern=pattern(r), behavior=r.choice(behaviors), invert=flag(r))
    if kind == "FixedLength":
        o |= dict(length=r.choice([1, 2, 3, 7]))
    return o


def sees_bytes(o):
    if not o:
        return False
    return o["type"] == "ByteLevel" or any(sees_bytes(inner) for name in ("normalizers", "pretokenizers") for inner in o.get(name, []))


def decoder(r, depth=0):
    kind = r.choice(["BPEDecoder", "ByteLevel", "WordPiece", "Metaspace", "CTC", "Sequence", "Sequence", "Replace", "Fuse", "Strip", "ByteFallback"])
    if kind == "Sequence":
        return dict(type=kind, decoders=[decoder(r, depth + 1) for _ in range(r.choice([0, 1, 2, 2, 3, 4]))]) if depth < 2 else dict(type="Fuse")
    o = dict(type=kind)
    if kind == "BPEDecoder":
        o |= dict(suffix=r.choice(["</w>", "a", "ing"]))
    if kind == "ByteLevel":
        o |= dict(add_prefix_space=flag(r), trim_offsets=flag(r), use_regex=flag(r))
    if kind == "WordPiece":
        o |= dict(prefix=r.choice(["##", "", "a"]), cleanup=flag(r))
    if kind == "Metaspace":
        o = metaspace(r)
    if kind == "CTC":
        o |= dict(pad_token=r.choice(["<pad>", "a"]), word_delimiter_token=r.choice(["|", "▁"]), cleanup=flag(r))
    if kind == "Replace":
        o |= dict(pattern=pattern(r), content=r.choice(["", " ", "▁", "xyz"]))
    if kind == "Strip":
        o |= dict(content=r.choice([" ", "a", "▁"]), start=r.choice([0, 1, 2]), stop=r.choice([0, 0, 1]))
    return o


def pieces(r, letters):
    """Letters, and texts of them that come up."""
    some = [c for c in letters if r.random() < r.choice([.5, .9, 1])] or ["a"]
    r.shuffle(some)
    return some


def bpe(r, letters):
    o = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=flag(r),
             byte_fallback=False, ignore_merges=r.random() < .2)
    vocab = pieces(r, letters)
    if r.random() < .15:
        o["continuing_subword_prefix"] = "##"
        vocab += ["##" + c for c in vocab]
    if r.random() < .15:
        o["end_of_word_suffix"] = "</w>"
        vocab += [c + "</w>" for c in vocab]
    if r.random() < .5:
        o["unk_token"] = "<unk>"
        vocab.append("<unk>")
    # Bytes of a prefix or suffix would count as the text's.
    if r.random() < .3 and not o["continuing_subword_prefix"] and not o["end_of_word_suffix"]:
        o["byte_fallback"] = True
        vocab += [f"<0x{b:02X}>" for b in range(256) if r.random() < r.choice([.9, 1, 1])]
    vocab = list(dict.fromkeys(vocab))
    merges, prefix = [], o["continuing_subword_prefix"] or ""
    follow = [a + b for a, b in zip("".join(words), "".join(words)[1:])]
    for _ in range(r.choice([0, 20, 200])):
        if r.random() < .6:
            pair = r.choice(follow)
            a, b = pair[0], prefix + pair[1]
        else:
            a, b = r.choice(vocab), r.choice(vocab)
        if a not in vocab or b not in vocab or not b.startswith(prefix) or len(a + b) > 12 or a == "<unk>" or b == "<unk>" or (a, b) in merges:
            continue
        merges.append((a, b))
        if a + b[len(prefix):] not in vocab:
            vocab.append(a + b[len(prefix):])
    return o | dict(vocab={t: i for i, t in enumerate(vocab)}, merges=[list(m) for m in merges])


def known(r, letters, prefix=""):
    """Tokens of letters and of beginnings and ends of words."""
    vocab = pieces(r, letters)
    for word in words:
        if r.random() < .6:
            vocab.append(word)
        cut = r.randrange(len(word) + 1)
        vocab += [word[:cut], prefix + word[cut:]]
        if prefix:
            vocab += [prefix + c for c in word if r.random() < .5]
    return list(dict.fromkeys(t for t in vocab if t))


def unigram(r, letters):
    vocab = known(r, letters) + ["▁" + word for word in words if r.random() < .3]
    fallback = r.random() < .3
    if fallback:
        vocab += [f"<0x{b:02X}>" for b in range(256) if r.random() < r.choice([.9, 1, 1])]
    vocab = ["<unk>"] + [t for t in dict.fromkeys(vocab) if t != "<unk>"]
    scores = [0] + [round(-r.random() * 10 - 1, r.choice([0, 3])) for _ in vocab[1:]]
    return dict(type="Unigram", unk_id=r.choice([0, 0, 0, 1, None]), vocab=[list(p) for p in zip(vocab, scores)], byte_fallback=fallback)


def word_piece(r, letters):
    prefix = r.choice(["##", "##", "", "▁"])
    vocab = known(r, letters, prefix) + ["[UNK]"]
    return dict(type="WordPiece", unk_token="[UNK]", continuing_subword_prefix=prefix, max_input_chars_per_word=r.choice([100, 5]),
                vocab={t: i for i, t in enumerate(dict.fromkeys(vocab))})


def word_level(r, letters):
    vocab = known(r, letters) + ["<unk>"]
    return dict(type="WordLevel", unk_token="<unk>", vocab={t: i for i, t in enumerate(dict.fromkeys(vocab))})


def added(r, vocab):
    ids = dict(vocab)
    list = []
    for content in r.sample(contents, r.choice([0, 0, 1, 3, 8])):
        special = flag(r)
        if content not in ids:
            ids[content] = len(ids)
        list.append(dict(id=ids[content], content=content, single_word=r.random() < .2, lstrip=r.random() < .2, rstrip=r.random() < .2,
                         normalized=flag(r), special=special))
    return sorted(list, key=lambda t: t["id"]), ids


def processor(r, ids, depth=0):
    kind = r.choice(["BertProcessing", "RobertaProcessing", "ByteLevel", "TemplateProcessing", "TemplateProcessing", "Sequence"])
    tokens = sorted(ids)
    some = lambda: r.choice(tokens)
    if kind == "Sequence":
        return dict(type=kind, processors=[processor(r, ids, depth + 1) for _ in range(r.choice([0, 1, 2]))]) if depth < 1 else dict(
            type="ByteLevel", add_prefix_space=flag(r), trim_offsets=flag(r), use_regex=True)
    o = dict(type=kind)
    if kind in ("BertProcessing", "RobertaProcessing"):
        sep, cls = some(), some()
        o |= dict(sep=[sep, ids[sep]], cls=[cls, ids[cls]])
    if kind == "RobertaProcessing":
        o |= dict(trim_offsets=flag(r), add_prefix_space=flag(r))
    if kind == "ByteLevel":
        o |= dict(add_prefix_space=flag(r), trim_offsets=flag(r), use_regex=flag(r))
    if kind == "TemplateProcessing":
        names = [some() for _ in range(2)]
        def parts(sequences):
            list = [dict(Sequence=dict(id=s, type_id=r.choice([0, 0, 1, 2]))) for s in sequences]
            for _ in range(r.choice([0, 1, 2, 3])):
                list.insert(r.randrange(len(list) + 1), dict(SpecialToken=dict(id=r.choice(names), type_id=r.choice([0, 1]))))
            return list
        special = {n: dict(id=n, ids=[ids[n]] + ([ids[some()]] if r.random() < .2 else []), tokens=[n]) for n in names}
        for s in special.values():
            s["tokens"] = s["tokens"] * len(s["ids"])
        o |= dict(single=parts(["A"]), pair=parts(["A", "B"]), special_tokens=special)
    return o


def draw(r):
    """A tokenizer.json and the texts to try it with."""
    o = dict(version="1.0", truncation=None, padding=None, added_tokens=[], normalizer=None, pre_tokenizer=None, post_processor=None, decoder=None)
    if r.random() < .5:
        o["normalizer"] = normalizer(r)
    if r.random() < .7:
        o["pre_tokenizer"] = splitter(r)
    in_bytes = sees_bytes(o["normalizer"]) or sees_bytes(o["pre_tokenizer"])
    some = alphabet if in_bytes and r.random() < .9 else letters
    o["model"] = r.choice([bpe, bpe, unigram, word_piece, word_level])(r, some)
    vocab = o["model"]["vocab"]
    if isinstance(vocab, list):
        vocab = {t: i for i, (t, _) in enumerate(vocab)}
    o["added_tokens"], ids = added(r, vocab)
    if r.random() < .4:
        o["post_processor"] = processor(r, ids)
    if r.random() < .6:
        o["decoder"] = decoder(r)
    if r.random() < .15:
        o["truncation"] = dict(direction=r.choice(["Left", "Right"]), max_length=r.choice([4, 6, 9, 20]), stride=r.choice([0, 1]),
                               strategy=r.choice(["LongestFirst", "OnlyFirst", "OnlySecond"]))
    if r.random() < .15:
        o["padding"] = dict(strategy=r.choice(["BatchLongest", dict(Fixed=r.choice([4, 12]))]), direction=r.choice(["Left", "Right"]),
                            pad_to_multiple_of=r.choice([None, 4, 8]), pad_id=0, pad_type_id=r.choice([0, 3]), pad_token="<pad>")
    # Behind several post-processors the library does not say which text a token is from.
    several = o["post_processor"] and o["post_processor"]["type"] == "Sequence"
    return o, [(text(r), None) for _ in range(4)] + [(text(r), None if several else text(r))]


def answer(o, texts):
    """What the library does: None where it cannot read the tokenizer, and for a text that it cannot encode."""
    try:
        t = Tokenizer.from_str(json.dumps(o))
    except BaseException as e:
        if isinstance(e, KeyboardInterrupt):
            raise
        return None, repr(e)[:200]
    answers = []
    for a, b in texts:
        try:
            answers.append(case(t, a, b))
        except BaseException as e:
            if isinstance(e, KeyboardInterrupt):
                raise
            answers.append(None)
    return answers, None


def main():
    count, seed = (list(map(int, sys.argv[1:])) + [300, 1])[:2] if len(sys.argv) < 3 else map(int, sys.argv[1:3])
    r = random.Random(seed)
    with open(pathlib.Path(__file__).parent / "drawn.json", "w") as file:
        while count > 0:
            o, texts = draw(r)
            answers, _ = answer(o, texts)
            if answers and any(answers):
                file.write(json.dumps(dict(tokenizer=o, cases=[c for c in answers if c]), ensure_ascii=False) + "\n")
                count -= 1


if __name__ == "__main__":
    main()
