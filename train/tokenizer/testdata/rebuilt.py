"""Writes what transformers' AutoTokenizer makes of folders with a tokenizer.json, of which many classes keep only the tokens.

    python3 rebuilt.py    (in this directory; needs transformers)

rebuilt.json is a list of folders as folders.py writes them, whose tokenizer.json is that of huggingface/FROM.json.
"""

import json
import pathlib
import tempfile

from huggingface import case, texts

here = pathlib.Path(__file__).parent
more_texts = ["<s>special</s> <mask> in <|end|> text<pad>", "a </s> b", "İstanbul NAÏVE ﬁ ½ 12345", "<extra_id_3> to <mask> be ▁a", "``so''  it's", "\x1c a b \x1f"]


def folders():
    """The kind of the model, the tokenizer, its class, and what tokenizer_config.json says besides."""
    for legacy in (None, True, False):
        yield "llama", "llama2", "LlamaTokenizer", dict(legacy=legacy, add_bos_token=True) if legacy is not None else {}
    yield "llama", "llama2", "LlamaTokenizerFast", dict(add_prefix_space=False)
    yield "llama", "llama2", "LlamaTokenizer", dict(added_tokens_decoder={"0": plain("<unk>"), "1": plain("<s>"), "900": plain("<extra>", lstrip=True)})
    yield "llama", "llama3", "LlamaTokenizer", {}
    yield "phi3", "llama2", "LlamaTokenizer", {}
    yield "qwen2", "qwen2", "LlamaTokenizerFast", dict(mask_token=plain("<mask>", lstrip=True, __type="AddedToken"))
    yield "llama", "qwen2", "Qwen2Tokenizer", dict(add_prefix_space=True)
    yield "bert", "bert_cased", "BertTokenizer", {}
    yield "bert", "bert_cased", None, {}
    yield "distilbert", "bert", "DistilBertTokenizer", dict(do_lower_case=False, strip_accents=True, tokenize_chinese_chars=False)
    yield "mpnet", "bert", "MPNetTokenizer", {}
    yield "roberta", "roberta", "RobertaTokenizer", dict(trim_offsets=False)
    yield "bart", "roberta", "BartTokenizer", dict(add_prefix_space=True)
    yield "llama", "smollm", "GPT2Tokenizer", dict(pad_token="<pad>", extra_special_tokens=["<a>"])
    yield "gpt_neox", "gpt2", "GPTNeoXTokenizer", dict(add_bos_token=True)
    yield "cohere", "smollm", "CohereTokenizer", {}
    yield "deberta", "gpt2", "DebertaTokenizer", {}
    yield "gemma", "gemma", "GemmaTokenizer", {}
    yield "clip", "clip", "CLIPTokenizer", dict(sep_token="[SEP]", unk_token="<|end|>")
    yield "t5", "precompiled", "T5Tokenizer", dict(add_prefix_space=False, extra_ids=5)
    yield "t5", "precompiled", "T5Tokenizer", dict(additional_special_tokens=["<a>"])
    yield "xlm-roberta", "unigram", "XLMRobertaTokenizer", dict(add_prefix_space=False)
    yield "camembert", "precompiled", "CamembertTokenizer", {}
    yield "albert", "precompiled", "AlbertTokenizer", dict(keep_accents=True, cls_token="<s>", sep_token="</s>")
    yield "deberta-v2", "unigram", "DebertaV2Tokenizer", dict(split_by_punct=True, do_lower_case=True)


def plain(content, **flags):
    return dict(content=content, lstrip=False, rstrip=False, normalized=False, single_word=False, special=True) | flags


def main():
    from transformers import AutoTokenizer

    made = []
    for kind, source, name, config in folders():
        config = config | (dict(tokenizer_class=name) if name else {})
        files = {"config.json": json.dumps(dict(model_type=kind)), "tokenizer_config.json": json.dumps(config)}
        tokenizer = json.loads((here / "huggingface" / f"{source}.json").read_text())["tokenizer"]
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
            for file, content in files.items():
                (folder / file).write_text(content)
            t = AutoTokenizer.from_pretrained(folder).backend_tokenizer
        cases = [case(t, text) for text in texts[:6] + more_texts] + [case(t, "one", "two <s>")]
        made.append({"from": source, "files": files, "cases": cases})
    lines = ",\n".join(json.dumps(folder, ensure_ascii=False) for folder in made)
    (here / "rebuilt.json").write_text(f"[{lines}]\n")


if __name__ == "__main__":
    main()
