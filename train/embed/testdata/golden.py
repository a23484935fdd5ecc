"""Writes the small random models of package embed's tests, and the vectors that sentence-transformers makes of texts.

    python3 golden.py (in this directory; needs sentence-transformers 6 and what it needs)
"""

import json
import pathlib
import shutil
import tempfile

import torch
import transformers as tf
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

torch.set_num_threads(1)
here = pathlib.Path(__file__).parent
words = "[PAD] [UNK] [CLS] [SEP] the a cat dog sat on mat ran far away ##s ##ed query : text red blue green big small house tree .".split()
texts = [
    "The cat sat on the mat.", "A dog ran far away", "", "red blue green big small house tree red blue green big small house tree",
    "dogs", "The big dog sat on a small cat on the red mat.", "Unknown words everywhere!"]
size = dict(vocab_size=len(words), hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, initializer_range=0.3)


def tokenizer(template, **options):
    t = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    t.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=t, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", **options)


def write(name, model, tokens, modules, prompts=None, change=lambda folder: None):
    torch.manual_seed(len(name))
    with tempfile.TemporaryDirectory() as base:
        model.save_pretrained(base)
        tokens.save_pretrained(base)
        st = SentenceTransformer(modules=[Transformer(base), *modules], prompts=prompts)
        shutil.rmtree(here / name, ignore_errors=True)
        st.save(str(here / name))
    change(here / name)
    (here / name / "README.md").unlink()
    st = SentenceTransformer(str(here / name), device="cpu")
    golden = {"texts": texts, "vectors": st.encode(texts).tolist()}
    if prompts:
        golden["queries"] = st.encode(texts, prompt_name="query").tolist()
    (here / name / "golden.json").write_text(json.dumps(golden))


def older(folder):
    """Files as sentence-transformers 2 wrote them."""
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({
        "word_embedding_dimension": 16, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True,
        "pooling_mode_mean_sqrt_len_tokens": True}))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 8, "do_lower_case": False}))
    (folder / "modules.json").write_text(json.dumps([
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]))


torch.manual_seed(1)
write("bert", tf.BertModel(tf.BertConfig(**size, max_position_embeddings=16)), tokenizer("[CLS] $A [SEP]", model_max_length=12),
      [Pooling(16, "mean"), Normalize()], {"query": "query: ", "document": ""})
write("roberta", tf.XLMRobertaModel(tf.XLMRobertaConfig(**size, max_position_embeddings=17, type_vocab_size=1, pad_token_id=0)),
      tokenizer("[CLS] $A [SEP]"), [Pooling(16, ("cls", "max"))], change=older)
write("qwen3", tf.Qwen3Model(tf.Qwen3Config(
    **size, num_key_value_heads=1, head_dim=8, max_position_embeddings=32, tie_word_embeddings=True, pad_token_id=0)),
      tokenizer("$A [SEP]", padding_side="left"), [Pooling(16, "lasttoken"), Normalize()], {"query": "query: "})
gemma = tf.Gemma3TextConfig(
    **size, num_key_value_heads=1, head_dim=8, max_position_embeddings=32, pad_token_id=0, query_pre_attn_scalar=8, use_bidirectional_attention=True,
    sliding_window=8, layer_types=["sliding_attention", "full_attention"])
write("gemma3", tf.Gemma3TextModel(gemma), tokenizer("[CLS] $A [SEP]"),
      [Pooling(16, "mean"), Dense(16, 24, bias=False, activation_function=torch.nn.Identity()), Dense(24, 12), Normalize()], {"query": "query: "})
