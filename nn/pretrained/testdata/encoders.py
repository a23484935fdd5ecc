"""Writes the small random encoders of package pretrained's tests; see golden.py, which does so for models of language.

    python3 encoders.py [NAME...]
    python3 encoders.py --check

golden.json has the input, what transformers makes of it, and the norm of the gradient of the sum of the squares of that
by each tensor. Of texts, padding stands on the left, in the middle and on the right; what stands at it is left out.
"""

import itertools
import json
import pathlib
import sys
import zlib

import safetensors.torch
import torch
import transformers as tf

from golden import here, save, spread

common = dict(vocab_size=48, initializer_range=0.3)
around = dict(
    common, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=16,
    attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0)
behind = dict(around, max_position_embeddings=18, type_vocab_size=1, pad_token_id=1)
beyond = dict(around, max_position_embeddings=18)
modern = dict(
    common, hidden_size=24, intermediate_size=20, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=16, local_attention=5,
    pad_token_id=1, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3, tie_word_embeddings=True)
distilled = dict(
    common, dim=24, hidden_dim=20, n_layers=2, n_heads=4, max_position_embeddings=16, dropout=0.0, attention_dropout=0.0)
shared = dict(around, num_hidden_layers=3, embedding_size=12)
texts = {
    "bert": lambda: tf.BertModel(tf.BertConfig(**around)),
    "bert-masked": lambda: tf.BertForMaskedLM(tf.BertConfig(**around, hidden_act="gelu_new")),
    "bert-untied-masked": lambda: tf.BertForMaskedLM(tf.BertConfig(**around, tie_word_embeddings=False)),
    "bert-classes": lambda: tf.BertForSequenceClassification(tf.BertConfig(**around, num_labels=3)),
    "bert-tokens": lambda: tf.BertForTokenClassification(tf.BertConfig(**around, num_labels=5)),
    "bert-questions": lambda: tf.BertForQuestionAnswering(tf.BertConfig(**around)),
    "roberta-masked": lambda: tf.RobertaForMaskedLM(tf.RobertaConfig(**behind, hidden_act="gelu_new")),
    "roberta-classes": lambda: tf.RobertaForSequenceClassification(tf.RobertaConfig(**behind)),
    "xlm-roberta": lambda: tf.XLMRobertaModel(tf.XLMRobertaConfig(**behind)),
    "camembert-tokens": lambda: tf.CamembertForTokenClassification(tf.CamembertConfig(**dict(behind, pad_token_id=3))),
    "distilbert": lambda: tf.DistilBertModel(tf.DistilBertConfig(**distilled)),
    "distilbert-masked": lambda: tf.DistilBertForMaskedLM(tf.DistilBertConfig(**distilled, activation="gelu_new")),
    "distilbert-classes": lambda: tf.DistilBertForSequenceClassification(tf.DistilBertConfig(**distilled, seq_classif_dropout=0.0, num_labels=3)),
    "distilbert-questions": lambda: tf.DistilBertForQuestionAnswering(tf.DistilBertConfig(**distilled, qa_dropout=0.0)),
    "electra": lambda: tf.ElectraModel(tf.ElectraConfig(**around, embedding_size=12)),
    "electra-masked": lambda: tf.ElectraForMaskedLM(tf.ElectraConfig(**around, embedding_size=12, hidden_act="gelu_new")),
    "electra-untied-masked": lambda: tf.ElectraForMaskedLM(tf.ElectraConfig(**around, embedding_size=12, tie_word_embeddings=False)),
    "electra-classes": lambda: tf.ElectraForSequenceClassification(tf.ElectraConfig(**around, embedding_size=24, num_labels=3)),
    "albert": lambda: tf.AlbertModel(tf.AlbertConfig(**shared)),
    "albert-masked": lambda: tf.AlbertForMaskedLM(tf.AlbertConfig(**dict(shared, num_hidden_layers=4), num_hidden_groups=2)),
    "albert-classes": lambda: tf.AlbertForSequenceClassification(tf.AlbertConfig(**shared, num_labels=3, classifier_dropout_prob=0.0)),
    "albert-tokens": lambda: tf.AlbertForTokenClassification(tf.AlbertConfig(**shared, num_labels=5, classifier_dropout_prob=0.0)),
    "mpnet": lambda: tf.MPNetModel(tf.MPNetConfig(**beyond)),
    "mpnet-masked": lambda: tf.MPNetForMaskedLM(tf.MPNetConfig(**beyond, hidden_act="gelu_new")),
    "mpnet-classes": lambda: tf.MPNetForSequenceClassification(tf.MPNetConfig(**beyond, num_labels=3)),
    "modernbert": lambda: tf.ModernBertModel(tf.ModernBertConfig(**modern, layer_types=["full_attention", "sliding_attention", "full_attention"])),
    "modernbert-masked": lambda: tf.ModernBertForMaskedLM(tf.ModernBertConfig(**modern, classifier_activation="silu")),
    "modernbert-unbiased-masked": lambda: tf.ModernBertForMaskedLM(tf.ModernBertConfig(**modern, decoder_bias=False)),
    "modernbert-untied-masked": lambda: tf.ModernBertForMaskedLM(tf.ModernBertConfig(**dict(modern, tie_word_embeddings=False))),
}
nomic = dict(
    common, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=16, pad_token_id=1)
texts |= {
    "nomic": lambda: tf.NomicBertModel(tf.NomicBertConfig(**nomic)),
    "nomic-masked": lambda: tf.NomicBertForMaskedLM(tf.NomicBertConfig(**nomic)),
    "nomic-classes": lambda: tf.NomicBertForSequenceClassification(tf.NomicBertConfig(**nomic, num_labels=3)),
    "nomic-tokens": lambda: tf.NomicBertForTokenClassification(tf.NomicBertConfig(
        **nomic, hidden_act="gelu", head_dim=8, type_vocab_size=1, num_labels=5)),
}
placed = dict(
    around, relative_attention=True, share_att_key=True, position_biased_input=False, pad_token_id=1, type_vocab_size=0)
both = dict(placed, pos_att_type="p2c|c2p", position_buckets=8, norm_rel_ebd="layer_norm")
texts |= {
    "deberta": lambda: tf.DebertaV2Model(tf.DebertaV2Config(**both)),
    "deberta-masked": lambda: tf.DebertaV2ForMaskedLM(tf.DebertaV2Config(
        **dict(placed, type_vocab_size=2, position_biased_input=True), pos_att_type=["c2p", "p2c"], max_relative_positions=6, hidden_act="gelu_new")),
    "deberta-later-masked": lambda: tf.DebertaV2ForMaskedLM(tf.DebertaV2Config(**both, legacy=False, max_relative_positions=12)),
    "deberta-classes": lambda: tf.DebertaV2ForSequenceClassification(tf.DebertaV2Config(**both, num_labels=3)),
    "deberta-tokens": lambda: tf.DebertaV2ForTokenClassification(tf.DebertaV2Config(**both, num_labels=5)),
    "deberta-questions": lambda: tf.DebertaV2ForQuestionAnswering(tf.DebertaV2Config(**both)),
}
causal_less = dict(
    common, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16, head_dim=8,
    query_pre_attn_scalar=16, use_bidirectional_attention=True, sliding_window=4, pad_token_id=0, layer_types=["sliding_attention", "full_attention"])
texts["gemma3-both"] = lambda: tf.Gemma3TextModel(tf.Gemma3TextConfig(**causal_less))
sighted = dict(
    common, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16,
    is_causal=False)
texts["qwen2-both"] = lambda: tf.Qwen2Model(tf.Qwen2Config(**sighted))
texts["llama-both"] = lambda: tf.LlamaModel(tf.LlamaConfig(**sighted, attention_bias=True))
slides = dict(sighted, sliding_window=2)
texts["mistral-both"] = lambda: tf.MistralModel(tf.MistralConfig(**slides, head_dim=8))
texts["qwen3-both"] = lambda: tf.Qwen3Model(tf.Qwen3Config(
    **slides, head_dim=8, use_sliding_window=True, layer_types=["full_attention", "sliding_attention"]))
# Decoders with a head for classes, whose padding is id 1.
causal = dict(
    common, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16,
    bos_token_id=2, eos_token_id=3, pad_token_id=1)
rewards = {
    "llama-classes": lambda: tf.LlamaForSequenceClassification(tf.LlamaConfig(**causal, num_labels=3)),
    "mistral-classes": lambda: tf.MistralForSequenceClassification(tf.MistralConfig(**causal, sliding_window=4, num_labels=1)),
    "qwen2-classes": lambda: tf.Qwen2ForSequenceClassification(tf.Qwen2Config(**causal, tie_word_embeddings=True)),
    "qwen3-classes": lambda: tf.Qwen3ForSequenceClassification(tf.Qwen3Config(**causal, head_dim=10, num_labels=1)),
    "gemma-classes": lambda: tf.GemmaForSequenceClassification(tf.GemmaConfig(**causal, head_dim=8)),
    "gemma2-classes": lambda: tf.Gemma2ForSequenceClassification(tf.Gemma2Config(**causal, head_dim=8, sliding_window=4)),
    "gemma3-classes": lambda: tf.Gemma3TextForSequenceClassification(tf.Gemma3TextConfig(**causal, head_dim=8, sliding_window=4)),
}
# Id 1 is padding for most RoBERTas, 3 for one, and stands in a text as well.
sentences = [[1, 1, 3, 40, 4, 10, 1, 9, 2, 6, 5], [11, 23, 17, 8, 42, 8, 30, 1, 1, 1, 1]]
masks = [[0] * 2 + [1] * 9, [1] * 7 + [0] * 4]
types = [[0] * 11, [1] * 5 + [0] * 6]

pictures = dict(
    hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, initializer_range=0.3, image_size=8, patch_size=4, num_channels=2)
seen = {name: value for name, value in pictures.items() if name != "intermediate_size"}
images = {
    "vit": lambda: tf.ViTModel(tf.ViTConfig(**pictures)),
    "vit-classes": lambda: tf.ViTForImageClassification(tf.ViTConfig(**pictures, num_labels=3)),
    "dinov2": lambda: tf.Dinov2Model(tf.Dinov2Config(**dict(seen, image_size=12), mlp_ratio=2, layerscale_value=0.5)),
    "dinov2-classes": lambda: tf.Dinov2ForImageClassification(tf.Dinov2Config(**seen, use_swiglu_ffn=True, use_mask_token=False, num_labels=3)),
    "vit-plain": lambda: tf.ViTModel(tf.ViTConfig(**pictures, qkv_bias=False)),
    "dinov2-plain": lambda: tf.Dinov2Model(tf.Dinov2Config(**dict(seen, image_size=12), mlp_ratio=2, qkv_bias=False)),
    "dinov3-plain": lambda: tf.DINOv3ViTModel(tf.DINOv3ViTConfig(
        **dict(pictures, num_attention_heads=3), num_register_tokens=1, query_bias=False, value_bias=False)),
    "dinov2-registers": lambda: tf.Dinov2WithRegistersModel(tf.Dinov2WithRegistersConfig(**dict(seen, image_size=12), mlp_ratio=2, num_register_tokens=3)),
    "dinov3": lambda: tf.DINOv3ViTModel(tf.DINOv3ViTConfig(**dict(pictures, num_attention_heads=3, image_size=16), num_register_tokens=2, rope_theta=10.0)),
    "dinov3-gated": lambda: tf.DINOv3ViTModel(tf.DINOv3ViTConfig(
        **dict(pictures, num_attention_heads=3), num_register_tokens=1, use_gated_mlp=True, hidden_act="silu", key_bias=True, proj_bias=False)),
}
side = dict(hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4)
words = dict(side, vocab_size=48, max_position_embeddings=16, bos_token_id=2, pad_token_id=1)
pairs = {
    "clip": lambda: tf.CLIPModel(tf.CLIPConfig(
        text_config=dict(words, eos_token_id=7), vision_config=dict(pictures, hidden_size=16, intermediate_size=12), projection_dim=10, initializer_factor=8.0)),
    "clip-old": lambda: tf.CLIPModel(tf.CLIPConfig(
        text_config=dict(words, eos_token_id=2, hidden_act="gelu"), vision_config=pictures, projection_dim=24, initializer_factor=8.0)),
    "siglip": lambda: tf.SiglipModel(tf.SiglipConfig(text_config=dict(words, projection_size=16), vision_config=dict(pictures, hidden_size=16))),
}


def read(model):
    mask = masks
    if isinstance(model, tf.DebertaV2ForSequenceClassification):  # at padding it sees nothing, so that its first token is to be none
        mask = [[1] * 11, masks[1]]
    inputs = dict(input_ids=torch.tensor(sentences), attention_mask=torch.tensor(mask))
    golden = dict(tokens=sentences, mask=mask)
    if getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"], golden["types"] = torch.tensor(types), types
    out = model(**inputs)
    if hasattr(out, "start_logits"):
        parts = [torch.stack([out.start_logits, out.end_logits], -1)]
    elif hasattr(out, "last_hidden_state"):
        parts = [p for p in (out.last_hidden_state, getattr(out, "pooler_output", None)) if p is not None]
    else:
        parts = [out.logits]
    if parts[0].dim() == 3:
        parts[0] = parts[0][torch.tensor(mask, dtype=torch.bool)]
    return golden, parts


def see(model):
    pixels = torch.randn(2, 2, 8, 8)
    golden = dict(images=pixels.flatten().tolist())
    if hasattr(getattr(model, "embeddings", None), "mask_token") and not isinstance(model, tf.ViTModel):
        golden["mask"] = [[0, 1, 0, 0], [1, 0, 0, 1]]
        out = model(pixel_values=pixels, bool_masked_pos=torch.tensor(golden["mask"], dtype=torch.bool))
        return golden, [out.last_hidden_state]
    out = model(pixel_values=pixels)
    parts = [out.last_hidden_state, out.pooler_output] if hasattr(out, "pooler_output") else [out.logits]
    return golden, parts


def match(model):
    """The vectors, the logits and the loss of two texts and two images."""
    pixels = torch.randn(2, 2, 8, 8)
    if isinstance(model, tf.CLIPModel):
        sentences = [[2, 3, 40, 4, 10, 9, 7, 7, 7, 1, 1], [2, 11, 23, 17, 8, 42, 8, 30, 6, 5, 7]]
        inputs = dict(attention_mask=torch.tensor([[1] * 9 + [0] * 2, [1] * 11]))
    else:
        sentences, inputs = [[2, 3, 40, 4, 10, 9, 7, 1, 1, 1, 1], [2, 11, 23, 17, 8, 42, 8, 30, 6, 5, 7]], {}
    golden = dict(images=pixels.flatten().tolist(), tokens=sentences)
    if inputs:
        golden["mask"] = inputs["attention_mask"].tolist()
    out = model(input_ids=torch.tensor(sentences), pixel_values=pixels, return_loss=True, **inputs)
    golden["loss"] = out.loss.item()
    return golden, [out.text_embeds, out.image_embeds, out.logits_per_image, out.loss]


def judge(model):
    # Padding stands on the left and on the right, and nowhere else: its vector gets no gradient.
    sentences = [[1, 1, 3, 40, 4, 10, 7, 9, 2, 6, 5], [11, 23, 17, 8, 42, 8, 30, 1, 1, 1, 1]]
    out = model(input_ids=torch.tensor(sentences), attention_mask=torch.tensor(masks))
    return dict(tokens=sentences, mask=masks), [out.logits]


def write(names):
    for kinds, compute in (texts, read), (images, see), (pairs, match), (rewards, judge):
        for name, make in kinds.items():
            if names and name not in names:
                continue
            seed = zlib.crc32(name.encode())
            torch.manual_seed(seed)
            model = spread(make(), seed)
            if name == "bert-untied-masked":  # of two biases, nothing reads one; before transformers 5 the two were one
                model.cls.predictions.bias.data = model.cls.predictions.decoder.bias.data.clone()
            golden, parts = compute(model)
            loss = parts.pop() if compute is match else sum((p * p).sum() for p in parts)
            loss.backward()
            golden["logits"] = [x for p in parts for x in p.detach().flatten().tolist()]
            save(name, model, golden)
            golden["gradients"] = gradients(model, here / name / "model.safetensors")
            (here / name / "golden.json").write_text(json.dumps(golden))


def gradients(model, path):
    """The norms by the names in the file, which may not be those of the module: equal values tell."""
    norms = {}
    for name, stored in safetensors.torch.load_file(path).items():
        same = [[p] for p in model.parameters() if p.shape == stored.shape and torch.equal(p, stored)]
        fits = [p for p in model.parameters() if p.dim() == stored.dim() and p.shape[1:] == stored.shape[1:]]
        for count in (2, 3):  # some lie one behind the other in the file
            same = same or [list(ps) for ps in itertools.product(fits, repeat=count) if torch.equal(torch.cat(ps), stored)]
        if len(same) > 1:
            same = [[p] for n, p in model.named_parameters() if n == name]
        assert len(same) == 1, name
        norms[name] = sum(0.0 if p.grad is None else p.grad.double().norm().item() ** 2 for p in same[0]) ** 0.5
    return norms


def check():
    for name, make in (texts | images | pairs | rewards).items():
        kind = type(make())
        a, b = (kind.from_pretrained(here / folder).state_dict() for folder in (pathlib.Path("written") / name, name))
        assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a), name
        print(name, "is equal in", len(a), "tensors")


if __name__ == "__main__":
    check() if "--check" in sys.argv else write(sys.argv[1:])
