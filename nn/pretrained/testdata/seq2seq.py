"""Writes the small random models of package pretrained's tests that read a source and write a text; see golden.py.

    python3 seq2seq.py [NAME...]
    python3 seq2seq.py --beams   (writes beams.json: what beams find)
    python3 seq2seq.py --check

golden.json has sources, with padding behind one of them and before the other, the decoder's tokens, the logits, the loss
of predicting each next token and its gradients, and the tokens that transformers chooses one by one for each source alone.
"""

import json
import pathlib
import sys
import zlib

import torch
import transformers as tf

from golden import here, save, spread
from encoders import gradients

t5 = dict(
    vocab_size=48, d_model=24, d_kv=5, d_ff=20, num_layers=2, num_heads=4, dropout_rate=0.0, relative_attention_num_buckets=8,
    relative_attention_max_distance=20, initializer_factor=1.5, decoder_start_token_id=0, eos_token_id=47)
both = dict(
    vocab_size=48, d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=3, encoder_ffn_dim=20,
    decoder_ffn_dim=28, dropout=0.0, init_std=0.3)
models = {
    "t5": lambda: tf.T5ForConditionalGeneration(tf.T5Config(**t5)),
    "t5-gated": lambda: tf.T5ForConditionalGeneration(tf.T5Config(**t5, num_decoder_layers=1, feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    "mt5": lambda: tf.MT5ForConditionalGeneration(tf.MT5Config(**t5)),
    "bart": lambda: tf.BartForConditionalGeneration(tf.BartConfig(
        **both, max_position_embeddings=128, eos_token_id=47, forced_eos_token_id=None, decoder_start_token_id=2)),
    "marian": lambda: tf.MarianMTModel(tf.MarianConfig(
        **both, max_position_embeddings=128, pad_token_id=1, eos_token_id=47, decoder_start_token_id=1, forced_eos_token_id=None, scale_embedding=True,
        activation_function="swish")),
    "whisper": lambda: tf.WhisperForConditionalGeneration(tf.WhisperConfig(
        **both, max_source_positions=6, max_target_positions=128, num_mel_bins=5, pad_token_id=1, bos_token_id=1, eos_token_id=47,
        decoder_start_token_id=3, suppress_tokens=None, begin_suppress_tokens=None)),
}
sources = [[3, 40, 4, 10, 7, 9, 2, 6, 5, 1, 1], [1, 1, 1, 11, 23, 17, 8, 42, 8, 30, 12]]
mask = [[1] * 9 + [0] * 2, [0] * 3 + [1] * 8]
tokens = [[2, 7, 19, 4, 4, 31, 9, 0], [2, 11, 40, 3, 5, 22, 10, 6]]
STEPS = 100


def write(names):
    for name, make in models.items():
        if names and name not in names:
            continue
        seed = zlib.crc32(name.encode())
        torch.manual_seed(seed)
        model = make()
        fixed = {n: p.data.clone() for n, p in model.named_parameters() if name == "marian" and "embed_positions" in n}
        model = spread(model, seed)
        for n, p in model.named_parameters():
            if n in fixed:  # is in no file
                p.data = fixed[n]
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias = 0.3 * torch.randn_like(model.final_logits_bias)
        ids = torch.tensor(tokens)
        if name == "whisper":
            spectra = torch.randn(2, 5, 12)
            golden = dict(images=spectra.transpose(1, 2).flatten().tolist())
            inputs = dict(input_features=spectra)
        else:
            golden = dict(sources=sources, mask=mask)
            inputs = dict(input_ids=torch.tensor(sources), attention_mask=torch.tensor(mask))
        logits = model(**inputs, decoder_input_ids=ids).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        golden |= dict(tokens=tokens, logits=logits.detach().flatten().tolist(), loss=loss.item())
        golden["written"] = []
        for one in alone(golden):
            text = [model.config.decoder_start_token_id]
            with torch.no_grad():
                for _ in range(STEPS):
                    text.append(model(**one, decoder_input_ids=torch.tensor([text])).logits[0, -1].argmax().item())
            golden["written"].append(text)
        save(name, model, golden)
        if hasattr(model, "final_logits_bias"):
            model.register_parameter("bias_of_logits", torch.nn.Parameter(model.final_logits_bias))
        golden["gradients"] = gradients(model, here / name / "model.safetensors")
        (here / name / "golden.json").write_text(json.dumps(golden))


def alone(golden):
    """Each source alone. A position of its own would be that behind the padding, which it has none of."""
    if "images" in golden:
        return [dict(input_features=x[None]) for x in torch.tensor(golden["images"]).reshape(2, 12, 5).transpose(1, 2)]
    return [dict(input_ids=torch.tensor([[t for t, m in zip(s, ms) if m]])) for s, ms in zip(golden["sources"], golden["mask"])]


def write_beams():
    """Texts that beams find behind drawn beginnings, some of which end. Of 12 that are tried those with the most different tokens stand."""
    found = {}
    for name, make in models.items():
        model = type(make()).from_pretrained(here / name).eval()
        found[name] = []
        for i, one in enumerate(alone(json.loads((here / name / "golden.json").read_text()))):
            tried = []
            for seed in range(12):
                torch.manual_seed(seed)
                begin = [model.config.decoder_start_token_id, *torch.randint(2, 46, (3,)).tolist()]
                for end in [47] if i == 0 else range(2, 46, 7):
                    config = tf.GenerationConfig(
                        num_beams=4, max_new_tokens=12, do_sample=False, length_penalty=0.7, early_stopping=False, eos_token_id=end, pad_token_id=end,
                        decoder_start_token_id=begin[0])
                    # Whisper's own looks for times.
                    text = tf.GenerationMixin.generate(model, **one, decoder_input_ids=torch.tensor([begin]), generation_config=config)[0].tolist()
                    new = text[4:]
                    if end in new:
                        new = new[:new.index(end) + 1]
                    tried.append((i == 0 or len(new) < 12, len(set(new)), begin, new, end))
            _, _, begin, new, end = max(tried)
            found[name].append(dict(begin=begin, text=new, end=end))
    (here / "beams.json").write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items()) + "\n}\n")


def check():
    for name, make in models.items():
        kind = type(make())
        a, b = (kind.from_pretrained(here / folder).state_dict() for folder in (pathlib.Path("written") / name, name))
        assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a), name
        print(name, "is equal in", len(a), "tensors")


if __name__ == "__main__":
    check() if "--check" in sys.argv else write_beams() if "--beams" in sys.argv else write(sys.argv[1:])
