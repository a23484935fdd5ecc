"""Writes the folders of package pretrained's tests that transformers has quantised by bitsandbytes, and what they count as.

    python3 nf4.py            (in this directory; needs transformers 5, PyTorch, bitsandbytes and accelerate)
    python3 nf4.py --check    (reads the folders under written/nf4, which the tests' -update writes, quantises the models that
                               they were written of by bitsandbytes, and compares)

Each folder holds config.json, model.safetensors and golden.json: the SHA-256 of each quantised weight as bitsandbytes widens
it, in float32 and without the sign of zeros, which depends on its kernel, and the logits that transformers computes in
float32 over these weights.
"""

import hashlib
import json
import pathlib
import shutil
import sys
import tempfile

import bitsandbytes.functional as bnb
import torch
import transformers as tf

torch.set_num_threads(1)
here = pathlib.Path(__file__).parent
tokens = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [11, 23, 17, 0, 42, 8, 30, 2, 1, 7, 19]]
folders = {
    "nf4-double": dict(double=True, dtype=torch.float32, hidden=128, inner=192),
    "nf4-half": dict(double=True, dtype=torch.bfloat16, hidden=64, inner=128),
    "nf4-single": dict(double=False, dtype=torch.float16, hidden=64, inner=72),  # rows of 72 share blocks
    "fp4-double": dict(double=True, dtype=torch.bfloat16, hidden=64, inner=128, kind="fp4"),
    "fp4-single": dict(double=False, dtype=torch.float32, hidden=64, inner=72, kind="fp4"),
}


def write(name, double, dtype, hidden, inner, kind="nf4"):
    torch.manual_seed(len(name))
    config = tf.LlamaConfig(
        vocab_size=48, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=32, initializer_range=0.1, tie_word_embeddings=True)
    wide = tf.LlamaForCausalLM(config).to(dtype)
    quantisation = tf.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=double, bnb_4bit_compute_dtype=dtype)
    with tempfile.TemporaryDirectory() as plain:
        wide.save_pretrained(plain)
        model = tf.LlamaForCausalLM.from_pretrained(plain, dtype=dtype, quantization_config=quantisation, device_map="cpu")
    folder = here / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)

    model = tf.LlamaForCausalLM.from_pretrained(folder, device_map="cpu")
    stored = wide.state_dict()
    # Widening the model as a whole would keep RoPE's frequencies rounded.
    wide, digests = tf.LlamaForCausalLM(config).eval(), {}
    wide.load_state_dict({key: value.float() for key, value in stored.items()})
    for path, module in model.named_modules():
        if hasattr(module, "weight") and hasattr(module.weight, "quant_state"):
            values = bnb.dequantize_4bit(module.weight.data, module.weight.quant_state)
            assert values.dtype == dtype
            digests[path + ".weight"] = hashlib.sha256((values.float() + 0).contiguous().numpy().tobytes()).hexdigest()
            wide.get_submodule(path).weight.data = values.float()
    with torch.no_grad():
        logits = wide(input_ids=torch.tensor(tokens)).logits.flatten().tolist()
    golden = dict(tokens=tokens, digests=digests, logits=[float(f"{x:.7g}") for x in logits])
    (folder / "golden.json").write_text(json.dumps(golden))


def check(folder):
    """Compares the codes and scales that the tests wrote with those that bitsandbytes makes of the same weights."""
    name, dtype = folder.name.rsplit("-", 1)
    ours = tf.AutoConfig.from_pretrained(folder)
    kind = getattr(tf, ours.architectures[0])
    model = kind.from_pretrained(folder, device_map="cpu")
    plain = kind.from_pretrained(here / name, dtype=getattr(torch, dtype), device_map="cpu")
    off, weights, codes, scales, other = 0.0, 0, True, 0, 0
    for path, module in model.named_modules():
        if not hasattr(getattr(module, "weight", None), "quant_state"):
            continue
        wide = plain.get_submodule(path).weight
        if hasattr(wide, "quant_state"):
            wide = bnb.dequantize_4bit(wide.data, wide.quant_state)
        want, state = bnb.quantize_4bit(wide.data.to(getattr(torch, dtype)), blocksize=64, compress_statistics=True, quant_type="nf4")
        have = module.weight.quant_state
        weights += 1
        codes &= torch.equal(module.weight.data.flatten(), want.flatten())
        scales += have.absmax.numel()
        other += int((have.absmax != state.absmax).sum())
        assert torch.allclose(have.state2.absmax, state.state2.absmax, rtol=1e-6, atol=0)
        off = max(off, abs(float(have.offset) / float(state.offset) - 1))
    assert weights > 0
    print(f"{folder.name}: {weights} weights, codes {'equal' if codes else 'DIFFER'}, {other} of {scales} scales differ, "
          f"offsets off by {off:.1e}")


if sys.argv[1:] == ["--check"]:
    for folder in sorted((here / "written" / "nf4").iterdir()):
        check(folder)
else:
    for name, how in folders.items():
        write(name, **how)
