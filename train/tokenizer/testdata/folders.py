"""Writes small folders of tokenizers without a tokenizer.json, and what transformers' AutoTokenizer does with them.

    python3 folders.py [NAME ...]    (in this directory; needs transformers, sentencepiece, protobuf and tiktoken)

Each file folders/NAME.json holds a folder under "files", those that are not text in base64 under "models", and results under
"cases", as in huggingface.py.
"""

import base64
import io
import json
import pathlib
import sys
import tempfile

import sentencepiece
from huggingface import case, corpus, pairs, texts

more_texts = ["<ctl> a <sep>b", " <s> x</s> y", "fox jumps over the fox  jumps", "<extra_id_3> to <mask> be", "<new> and<x>", "[CLS] a [MASK]b [SEP]"]


def train(**options):
    """A SentencePiece model with some rules of our own, unless it has none."""
    rules = [("①", "1"), ("½", "1/2"), ("ﬁ", "fi"), ("\t", " "), ("\u00a0", " "), ("\u3000", " "), ("\u200b", ""), ("東京", "とうきょう")]
    spell = lambda s: " ".join(f"{ord(c):X}" for c in s)
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder) / "rules.tsv"
        table.write_text("".join(f"{spell(a)}\t{spell(b)}\n" for a, b in rules))
        if "normalization_rule_name" not in options:
            options["normalization_rule_tsv"] = table
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus), model_writer=model, hard_vocab_limit=False, minloglevel=2, **options)
        return model.getvalue()


def bpe(**options):
    return train(model_type="bpe", vocab_size=560, byte_fallback=True, control_symbols=["<ctl>"], user_defined_symbols=["<sep>", "fox jumps"],
                 normalization_rule_name="identity", remove_extra_whitespaces=False, **options)


def unigram(**options):
    return train(model_type="unigram", **dict(dict(vocab_size=200), **options))


def t5_like(**options):
    return unigram(pad_id=0, eos_id=1, unk_id=2, bos_id=-1, **options)


def xlm_like():
    return unigram(unk_id=0, bos_id=1, eos_id=2)


def bracketed():
    return unigram(pad_id=0, pad_piece="<pad>", unk_id=1, unk_piece="<unk>", bos_id=2, bos_piece="[CLS]", eos_id=3, eos_piece="[SEP]",
                   user_defined_symbols=["[MASK]"])


def deberta_like():
    return unigram(pad_id=0, pad_piece="[PAD]", unk_id=3, unk_piece="[UNK]", bos_id=1, bos_piece="[CLS]", eos_id=2, eos_piece="[SEP]")


def ranks():
    """Tokens with ranks, of bytes and the pairs that are most in the text."""
    words = [word.encode() for line in corpus for word in line.replace(" ", "\0 ").split("\0")]
    tokens = [bytes([b]) for b in range(256)]
    pieces = [[bytes([b]) for b in word] for word in words]
    while len(tokens) < 450:
        counts = {}
        for word in pieces:
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        a, b = max(sorted(counts), key=counts.get)
        tokens.append(a + b)
        for word in pieces:
            i = 0
            while i < len(word) - 1:
                if (word[i], word[i + 1]) == (a, b):
                    word[i:i + 2] = [a + b]
                i += 1
    return tokens


def tekken(size=None, special=6, filler=10):
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<mask>"][:special]
    pattern = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
               r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
               r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    vocab = [dict(rank=i, token_bytes=base64.b64encode(t).decode(), token_str=None) for i, t in enumerate(ranks())]
    config = dict(pattern=pattern, num_vocab_tokens=len(vocab), default_num_special_tokens=filler, version="v7")
    if size:
        config["default_vocab_size"] = size
    return json.dumps(dict(config=config, vocab=vocab, special_tokens=[dict(rank=i, token_str=s, is_control=True) for i, s in enumerate(names)]))


def tiktoken():
    return "".join(f"{base64.b64encode(t).decode()} {i}\n" for i, t in enumerate(ranks())).encode()


def token(content, **flags):
    return dict(content=content, lstrip=False, rstrip=False, normalized=False, single_word=False, special=True) | flags


def alphabet():
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def folders():
    yield "roberta_model", "roberta", {}, {
        "vocab.json": {c: i for i, c in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>", *alphabet()])}, "merges.txt": "#version: 0.2\n",
        "config.json": dict(model_type="roberta"), "special_tokens_map.json": dict(cls_token="<s>", sep_token="</s>", mask_token="<mask>")}
    llama = dict(tokenizer_class="LlamaTokenizer", bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    yield "llama", "llama", {"tokenizer.model": bpe()}, {"tokenizer_config.json": llama | dict(add_bos_token=True)}
    yield "llama_legacy", "llama", {"tokenizer.model": bpe()}, {"tokenizer_config.json": llama | dict(
        tokenizer_class="LlamaTokenizerFast", legacy=True, add_bos_token=True, add_eos_token=True, bos_token="<ctl>", pad_token="<pad>")}
    yield "llama_bare", "llama", {"tokenizer.model": bpe()}, {
        "tokenizer_config.json": dict(tokenizer_class="LlamaTokenizer", add_prefix_space=False),
        "special_tokens_map.json": dict(pad_token="<new>", bos_token=token("<s>")), "added_tokens.json": {"<new>": 560, "<x>": 561}}
    yield "gemma", "gemma", {"tokenizer.model": bpe()}, {"tokenizer_config.json": dict(
        tokenizer_class="GemmaTokenizer", add_bos_token=True, bos_token="<s>", eos_token="</s>", pad_token="<ctl>")}
    yield "t5", "t5", {"spiece.model": t5_like()}, {"tokenizer_config.json": dict(tokenizer_class="T5Tokenizer", extra_ids=5)}
    yield "xlm_roberta", "xlm-roberta", {"sentencepiece.bpe.model": xlm_like()}, {"tokenizer_config.json": dict(
        tokenizer_class="XLMRobertaTokenizer", mask_token=dict(token("<mask>", lstrip=True), __type="AddedToken"))}
    yield "camembert", "camembert", {"sentencepiece.bpe.model": xlm_like()}, {"tokenizer_config.json": dict(tokenizer_class="CamembertTokenizer")}
    yield "deberta_v2", "deberta-v2", {"spm.model": deberta_like()}, {"tokenizer_config.json": dict(
        tokenizer_class="DebertaV2Tokenizer", do_lower_case=False, split_by_punct=True)}
    yield "albert", "albert", {"spiece.model": bracketed()}, {"tokenizer_config.json": dict(tokenizer_class="AlbertTokenizer")}
    yield "plain_bpe", "llama", {"tokenizer.model": bpe()}, {"tokenizer_config.json": dict(tokenizer_class="PreTrainedTokenizerFast")}
    yield "plain_unigram", "llama", {"tokenizer.model": unigram(byte_fallback=True, vocab_size=480)}, {}
    old = json.loads((pathlib.Path(__file__).parent / "huggingface" / "clip.json").read_text())["tokenizer"]["model"]
    merges = "#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in old["merges"])
    yield "clip", "clip", {}, {"vocab.json": old["vocab"], "merges.txt": merges, "tokenizer_config.json": dict(
        tokenizer_class="CLIPTokenizer", unk_token="<|end|>", bos_token="<s>", eos_token="</s>")}
    yield "tekken", "mistral", {}, {"tekken.json": tekken()}
    yield "tekken_short", "mistral", {}, {
        "tekken.json": tekken(430, 6, 6), "tokenizer_config.json": dict(add_bos_token=True, bos_token="<s>", eos_token="</s>")}
    yield "tiktoken", "llama", {"tokenizer.model": tiktoken()}, {"tokenizer_config.json": dict(
        tokenizer_class="PreTrainedTokenizerFast", bos_token="<s>", add_bos_token=True,
        added_tokens_decoder={"450": token("<s>"), "452": token("</s>"), "455": token("<mask>", lstrip=True)})}


def main():
    from transformers import AutoTokenizer

    here = pathlib.Path(__file__).parent / "folders"
    here.mkdir(exist_ok=True)
    for name, kind, models, files in folders():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        files = {name: text if isinstance(text, str) else json.dumps(text) for name, text in files.items()}
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "config.json").write_text(json.dumps(dict(model_type=kind)))
            for file, content in models.items():
                (folder / file).write_bytes(content)
            for file, content in files.items():
                (folder / file).write_text(content)
            t = AutoTokenizer.from_pretrained(folder).backend_tokenizer
        cases = [case(t, text) for text in texts + more_texts] + [case(t, a, b) for a, b in pairs]
        content = dict(files=files, models={k: base64.b64encode(v).decode() for k, v in models.items()}, cases=cases)
        (here / f"{name}.json").write_text(json.dumps(content, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
