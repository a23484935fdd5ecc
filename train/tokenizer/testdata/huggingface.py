"""Writes small tokenizers of every kind, trained on the text below, and what Python's tokenizers library does with them.

    python3 huggingface.py [NAME ...]    (in this directory; needs the packages tokenizers and sentencepiece)

Each file huggingface/NAME.json holds a tokenizer.json under "tokenizer" and results under "cases": a text, perhaps a second
one, ids, types, tokens, offsets in bytes of UTF-8, which ids are special, and two ways to decode them.
"""

import json
import pathlib
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

corpus = """To be, or not to be, that is the question: Whether 'tis nobler in the mind to suffer the slings and arrows of
outrageous fortune, or to take arms against a sea of troubles. It's 1603; we've 42 plays, 154 sonnets, they'll live on.
func main() { for i := 0; i < 10; i++ { fmt.Println("hello, world", i*i) } }  // prints   squares\n\tif x == nil {\n\t\treturn err\n\t}
Die Würde des Menschen ist unantastbar. Größe, Übermut, naïve café. Привет, мир! Как дела? 你好，世界。東京タワー 안녕하세요
The quick brown fox jumps over the lazy dog. THE QUICK BROWN FOX. the then there these they; queen question quiet. 🙂 👩‍🚀 ﬁne
""".splitlines() * 3

texts = [
    "", " ", "a", "Hello, world!", "  two  spaces   three ", "It's we've THEY'LL don't 'Sunday 'Twas", "tabs\tand\n\nnew\r\nlines \n end",
    "123456789 12,345.67 x2y3z 1² ½ Ⅷ", "Größe naïve café cafe\u0301 A\u030Angstro\u0308m ﬁne ①", "你好，世界。東京タワー 안녕하세요", "Привет, мир! КАК дела?",
    "🙂 👩‍🚀 flags 🇩🇪 \u200b zero \ufeff bom", "func main() { return x[i]*2 // ok\n}", "<s>special</s> <mask> in <|end|> text<|end|><pad>", "end <mask>.  <mask>",
    "a\u00a0b\u2003c\u3000d", "\u0000\u0001control\u007f", "x" * 130, "unknownableword antidisestablishmentarianism", "ſ 's 'ſ İstanbul ǅ ß", "  lead", "▁under▁scores_",
    "newword new word renewwordly NEWWORD",
]
pairs = [("Hello, world!", "To be or not"), ("the question", "")]

llama3_pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
qwen2_pattern = llama3_pattern.replace("{1,3}", "")
alphabet = pre_tokenizers.ByteLevel.alphabet()
specials = ["<s>", "</s>", "<unk>", "<pad>", "<|end|>"]


def bpe(vocab=500, **model):
    t = Tokenizer(models.BPE(**model))
    return t, trainers.BpeTrainer(vocab_size=vocab, special_tokens=specials, initial_alphabet=alphabet, show_progress=False)


def template(t, single, pair):
    named = {s: t.token_to_id(s) for s in ("<s>", "</s>")}
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=[(k, v) for k, v in named.items()])


def gpt2():
    t, trainer = bpe()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus, trainer)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t


def roberta():
    t, trainer = bpe()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus, trainer)
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")), add_prefix_space=True)
    t.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    t.enable_truncation(12, stride=2)
    t.enable_padding(direction="right", pad_id=t.token_to_id("<pad>"), pad_token="<pad>", length=8)
    return t


def llama3():
    t, trainer = bpe()
    t.model.ignore_merges = True
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(llama3_pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus, trainer)
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), template(t, "<s> $A", "<s> $A <s>:1 $B:1")])
    t.add_tokens([AddedToken("newword", single_word=True, normalized=True), AddedToken("<mask>", lstrip=True, rstrip=True)])
    return t


def qwen2():
    t, trainer = bpe()
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(qwen2_pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus, trainer)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t


def smollm():
    t, trainer = bpe()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus, trainer)
    t.enable_truncation(10, direction="left")
    t.enable_padding(direction="left", pad_id=t.token_to_id("<pad>"), pad_token="<pad>", pad_to_multiple_of=4)
    return t


def sentencepiece(pre=None):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(corpus[:3], trainers.BpeTrainer(
        vocab_size=650, special_tokens=specials + [f"<0x{b:02X}>" for b in range(256)], show_progress=False))
    state = json.loads(trained.to_str())["model"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in state["merges"]]
    t.model = models.BPE(vocab=state["vocab"], merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    t.add_special_tokens(specials)
    return t


def llama2():
    t = sentencepiece()
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = template(t, "<s> $A", "<s> $A <s>:1 $B:1")
    return t


def mistral():
    t = sentencepiece()
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder = llama2().decoder
    return t


def gemma():
    t = sentencepiece()
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    t.post_processor = template(t, "<s> $A", "<s> $A </s> $B:1")
    return t


def unigram():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(corpus[:4], trainers.UnigramTrainer(vocab_size=220, special_tokens=specials, unk_token="<unk>", show_progress=False))
    t.post_processor = template(t, "$A </s>", "$A </s> $B:1 </s>:1")
    return t


def unigram_bytes():
    trained = json.loads(unigram().to_str())["model"]
    vocab = [tuple(v) for v in trained["vocab"]] + [(f"<0x{b:02X}>", 0.0) for b in range(256)]
    t = Tokenizer(models.Unigram(vocab=vocab, unk_id=trained["unk_id"], byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always", split=True)])
    t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")])
    return t


def bert(lowercase=True):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(corpus[:4], trainers.WordPieceTrainer(
        vocab_size=260, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    cls, sep = ("[CLS]", t.token_to_id("[CLS]")), ("[SEP]", t.token_to_id("[SEP]"))
    t.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [cls, sep])
    t.enable_truncation(16, strategy="longest_first")
    return t


def bert_cased():
    t = bert(lowercase=False)
    t.no_truncation()
    t.post_processor = processors.BertProcessing(("[SEP]", t.token_to_id("[SEP]")), ("[CLS]", t.token_to_id("[CLS]")))
    return t


def words():
    t = Tokenizer(models.WordLevel(unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("isolated"), pre_tokenizers.Digits(False)])
    t.train_from_iterator(corpus, trainers.WordLevelTrainer(vocab_size=150, special_tokens=specials, show_progress=False))
    return t


def clip():
    t = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<|end|>"))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    pattern = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=500, special_tokens=specials, initial_alphabet=alphabet, end_of_word_suffix="</w>", show_progress=False))
    t.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), False, False)
    return t


def bytes_first():
    t, trainer = bpe()
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.ByteLevel()])
    t.pre_tokenizer = pre_tokenizers.Split("Ġ", "merged_with_next")
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus, trainer)
    return t


def precompiled():
    """A table such as SentencePiece's, with some rules of our own."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    rules = [("①", "1"), ("½", "1/2"), ("ﬁ", "fi"), ("e\u0301", "é"), ("\t", " "), ("\r", ""), ("\n", " "), ("\u00a0", " "),
             ("\u3000", " "), ("\u200b", ""), ("東京", "とうきょう"), ("A\u030A", "Å"), ("\u0001", "")]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        spell = lambda s: " ".join(f"{ord(c):X}" for c in s)
        (folder / "rules.tsv").write_text("".join(f"{spell(a)}\t{spell(b)}\n" for a, b in rules))
        (folder / "corpus.txt").write_text("\n".join(corpus))
        sentencepiece.SentencePieceTrainer.train(
            input=folder / "corpus.txt", model_prefix=folder / "m", vocab_size=200, normalization_rule_tsv=folder / "rules.tsv",
            hard_vocab_limit=False, minloglevel=2)
        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString((folder / "m.model").read_bytes())
    t = unigram()
    t.normalizer = normalizers.Sequence([
        normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap), normalizers.Strip(left=False, right=True),
        normalizers.Replace(Regex(" {2,}"), "▁")])
    return t


def in_bytes(text, offsets):
    at = [len(text[:i].encode()) for i in range(len(text) + 1)]
    return [[at[a], at[b]] for a, b in offsets]


def case(t, text, pair=None):
    e = t.encode(text, pair) if pair is not None else t.encode(text)
    offsets = []
    for (a, b), sequence in zip(e.offsets, e.sequence_ids):
        offsets.append(in_bytes(pair if sequence == 1 else text, [(a, b)])[0])
    return dict(
        text=text, pair=pair, ids=e.ids, types=e.type_ids, tokens=e.tokens, offsets=offsets, special=e.special_tokens_mask,
        attention=e.attention_mask, bare=t.encode(text, pair, add_special_tokens=False).ids,
        decoded=t.decode(e.ids, skip_special_tokens=False), plain=t.decode(e.ids, skip_special_tokens=True))


if __name__ == "__main__":
    here = pathlib.Path(__file__).parent / "huggingface"
    for make in [gpt2, roberta, llama3, qwen2, smollm, llama2, mistral, gemma, unigram, unigram_bytes, bert, bert_cased, words,
                 clip, bytes_first, precompiled]:
        if len(sys.argv) > 1 and make.__name__ not in sys.argv[1:]:
            continue
        t = make()
        cases = [case(t, text) for text in texts] + [case(t, a, b) for a, b in pairs]
        content = dict(tokenizer=json.loads(t.to_str()), cases=cases)
        (here / f"{make.__name__}.json").write_text(json.dumps(content, ensure_ascii=False) + "\n")
