"""Writes exact.json: the losses of the small models and the norms of their gradients, all in float64.

    python3 exact.py [NAME...]

transformers computes parts of most models in float32 whatever they are: here every float32 in it is float64. The norms are in the
order of the tensors' names in golden.json.
"""

import json
import sys

import safetensors.torch
import torch
import transformers as tf

import encoders
import seq2seq
from golden import here, models, parts, tokens

torch.set_num_threads(1)
tf.logging.set_verbosity_error()
kinds = [models, encoders.texts, encoders.rewards, encoders.images, encoders.pairs, seq2seq.models]


def widen():
    torch.float32 = torch.float = torch.float64
    torch.FloatTensor = torch.DoubleTensor
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)


def loss(kind, model, golden):
    """That of the file that writes the model."""
    ids = torch.tensor(golden["tokens"]) if "tokens" in golden else None
    pixels = torch.tensor(golden["images"]) if "images" in golden else None
    mask = torch.tensor(golden["mask"]) if "mask" in golden else None
    if kind is models:
        return model(input_ids=ids, labels=ids).loss
    if kind is seq2seq.models:
        if pixels is None:
            inputs = dict(input_ids=torch.tensor(golden["sources"]), attention_mask=mask)
        else:
            inputs = dict(input_features=pixels.reshape(2, 12, 5).transpose(1, 2))
        logits = model(**inputs, decoder_input_ids=ids).logits
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    if kind is encoders.pairs:
        inputs = {} if mask is None else dict(attention_mask=mask)
        return model(input_ids=ids, pixel_values=pixels.reshape(2, 2, 8, 8), return_loss=True, **inputs).loss
    if kind is encoders.images:
        hidden = {} if mask is None else dict(bool_masked_pos=mask.bool())
        out = model(pixel_values=pixels.reshape(2, 2, 8, 8), **hidden)
        outputs = [out.last_hidden_state, out.pooler_output] if hasattr(out, "pooler_output") and mask is None else [getattr(out, "last_hidden_state", None)]
        outputs = [out.logits] if hasattr(out, "logits") else outputs
    elif kind is encoders.rewards:
        outputs = [model(input_ids=ids, attention_mask=mask).logits]
    else:
        _, outputs = encoders.read(model)
    return sum((x * x).sum() for x in outputs)


def read(kind, name):
    """What a model is made of in float64, once nothing can be read any more."""
    fields = json.loads((here / name / "config.json").read_text())
    made = getattr(tf, fields["architectures"][0])
    model = made.from_pretrained(here / name, dtype=torch.float32)
    values = {n: x for n, x in model.state_dict().items() if x.is_floating_point()}
    if made is tf.MarianMTModel:  # computes its table of positions
        values = {n: x for n, x in values.items() if "embed_positions" not in n}
    files = {str(path): safetensors.torch.load_file(path) for path in (here / name).glob("*.safetensors")}
    return made, model.config, values, files


def exact(kind, name, made, config, values, files):
    golden = json.loads((here / name / "golden.json").read_text())
    config.dtype = torch.float64
    config._attn_implementation = "sdpa" if name == "falcon-alibi" else "eager"
    if "mixtral" in name or "moe" in name or "deepseek" in name or name == "gpt_oss":
        config._experts_implementation = "eager"
    model = made(config).double().eval()
    model.load_state_dict({n: x.double() for n, x in values.items()}, strict=False)
    model.tie_weights()
    safetensors.torch.load_file = lambda path: {n: x.double() for n, x in files[str(path)].items()}
    value = loss(kind, model, golden)
    assert value.dtype == torch.float64
    value.backward()
    if kind is models:
        norms = {part: g.norm().item() for n, p in model.named_parameters() if p.grad is not None for part, g in parts(model, n, p.grad)}
        if isinstance(model, tf.GPTNeoXForCausalLM):
            norms["embed_out.weight"] = norms.pop("lm_head.weight")
    else:
        if hasattr(model, "final_logits_bias"):
            model.register_parameter("bias_of_logits", torch.nn.Parameter(model.final_logits_bias))
        norms = encoders.gradients(model, here / name / "model.safetensors")
    assert norms.keys() == golden["gradients"].keys(), norms.keys() ^ golden["gradients"].keys()
    near = [abs(golden["gradients"][n] - x) / max(norms.values()) for n, x in norms.items()]
    print(name, f"float32 is within {max(near):.1e} of the largest norm", flush=True)
    return dict(loss=float(f"{value.item():.13g}"), gradients=[float(f"{norms[n]:.13g}") for n in sorted(norms)])


def write(names):
    found = {} if not names else json.loads((here / "exact.json").read_text())
    all = [(kind, name, *read(kind, name)) for kind in kinds for name in kind if name in names or not names and name != "llama-longrope"]
    widen()
    for one in all:
        found[one[1]] = exact(*one)
    (here / "exact.json").write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items()) + "\n}\n")


if __name__ == "__main__":
    write(sys.argv[1:])
