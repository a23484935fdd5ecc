"""Writes fields.json: what transformers makes of the small models where one field of their config has another value.

    python3 fields.py [NAME...]

It takes every field that the class of a config has, by all of its names, and tries values of its type and null. Of those it keeps
one that changes what the model computes, one that does not, and one for which the tensors of the file are others. Two sums
stand for what is computed: of each number times the cosine, and the sine, of its place.
"""

import copy
import dataclasses
import json
import os
import pathlib
import sys
import tempfile

import torch
import transformers as tf

from golden import here, models as decoders

torch.set_num_threads(1)
tf.logging.set_verbosity_error()
tf.logging.disable_progress_bar()
models = [
    *(name for name in decoders if name != "llama-longrope"), "llama-classes", "gemma3-images", "t5", "t5-gated", "mt5", "bart", "marian", "whisper",
    "albert-classes", "albert-masked", "bert-classes", "bert-untied-masked", "roberta-classes", "roberta-masked", "xlm-roberta", "camembert-tokens", "distilbert-classes",
    "electra-classes", "electra-masked", "electra-untied-masked",
    "mpnet-classes", "modernbert", "modernbert-masked", "modernbert-unbiased-masked", "modernbert-untied-masked", "nomic-classes", "deberta-classes", "deberta-masked",
    "gemma3-both", "llama-both", "mistral-both", "qwen2-both",
    "vit-classes", "vit-plain", "dinov2", "dinov2-classes", "dinov2-registers", "dinov3", "dinov3-gated", "clip", "siglip",
]
# Every config has these; what they are is in the tests.
common = {f.name for f in dataclasses.fields(tf.PreTrainedConfig)} - {"is_encoder_decoder"} | {"_name_or_path", "model_type", "output_attentions"}
words = [
    "gelu", "relu", "silu", "none", "layer_norm", "rms_norm", "softmax", "sigmoid", "greedy", "group_limited_greedy", "noaux_tc", "mean", "max", "first",
    "relative_key", "gated-gelu", "c2p", "p2c",
]
rotations = {"rope_type": "linear", "rope_theta": 77.0, "factor": 3.0, "partial_rotary_factor": 0.5}


def compute(model, golden):
    """What the tests compute of a model, in the same order."""
    ids = torch.tensor(golden["tokens"]) if "tokens" in golden else None
    with torch.no_grad():
        if "sources" in golden:
            return model(input_ids=torch.tensor(golden["sources"]), attention_mask=torch.tensor(golden["mask"]), decoder_input_ids=ids).logits
        if model.config.model_type == "whisper":
            return model(input_features=torch.tensor(golden["images"]).reshape(2, 12, 5).transpose(1, 2), decoder_input_ids=ids).logits
        pixels = dict(pixel_values=torch.tensor(golden["images"]).reshape(2, 2, 8, 8)) if "images" in golden else {}
        mask = torch.tensor(golden["mask"]) if "mask" in golden else None
        if pixels and ids is not None:
            return model(input_ids=ids, **pixels, **({} if mask is None else dict(attention_mask=mask))).logits_per_image
        if pixels:
            hidden = {} if mask is None else dict(bool_masked_pos=mask.bool())
            out = model(**pixels, **hidden)
            return out.logits if hasattr(out, "logits") else out.last_hidden_state
        if mask is None:
            return model(input_ids=ids).logits
        types = dict(token_type_ids=torch.tensor(golden["types"])) if "types" in golden else {}
        out = model(input_ids=ids, attention_mask=mask, **types)
        out = out.logits if hasattr(out, "logits") else out.last_hidden_state
        return out[mask.bool()] if out.dim() == 3 else out


def outcome(folder, config, golden):
    """The sums of what a config's model computes, "others" where its tensors are, or nothing where there is no such model."""
    (folder / "config.json").write_text(json.dumps(config))
    try:
        kind = getattr(tf, config["architectures"][0])
        kind.config_class.from_pretrained(folder)
        with torch.device("meta"):
            kind(kind.config_class.from_pretrained(folder))
    except Exception:
        return None
    try:
        model, info = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    except RuntimeError as e:
        return "others" if "size" in str(e) else None
    except Exception:
        return None
    if info["missing_keys"]:
        return "others"
    try:
        x = compute(model.eval(), golden).double().flatten()
    except Exception:
        return None
    at = torch.arange(len(x), dtype=torch.float64)
    sums = [float(f"{s.item():.7g}") for s in ((x * at.cos()).sum(), (x * at.sin()).sum())]
    return sums if torch.isfinite(x).all() else None


def others(name, type, value, config):
    """Other values of a field's type."""
    if name == "layer_types" and value:
        kinds = ["full_attention", "sliding_attention"]
        return [kinds[:1] * len(value), kinds[1:] * len(value)]
    if isinstance(value, bool) or (value is None and "bool" in type):
        return [not value, None]
    if isinstance(value, int):
        return [v for v in (2 * value, value // 2, value + 1, 1, 2, 3, 0, None) if v != value]
    if isinstance(value, float):
        return [round(3 * value + 0.1, 6), 0.5, 0.0, None]
    if isinstance(value, str):
        return [w for w in [*words, None] if w != value]
    if isinstance(value, list):
        return [value[::-1], value[:1], value[1:], [], None]
    if isinstance(value, dict):
        return []
    return [v for t, v in (("int", 3), ("int", 1), ("int", 2), ("float", 0.5), ("float", 3.0), ("str", "gelu"), ("list", [0]), ("list", [0, 1]), ("dict", {})) if t in type]


def fields(config):
    """The names, types and usual values of a config's fields, and of those of the objects in it."""
    kind = type(config)
    known = {f.name: (str(f.type), getattr(config, f.name, None)) for f in dataclasses.fields(kind) if f.name not in common}
    known |= {k: ("", v) for k, v in config.to_dict().items() if k not in known and k not in common and isinstance(v, (bool, int, float, str))}
    for alias, name in kind.attribute_map.items():
        known[alias] = known.get(name, ("int", None))
    for name in ("rope_parameters", "attn_config"):  # of most, and of MPT
        inner = getattr(config, name, None)
        inner = inner.to_dict() if hasattr(inner, "to_dict") else inner
        if inner and not any(isinstance(v, dict) for v in inner.values()):
            for k, v in ({**rotations, **inner} if name == "rope_parameters" else inner).items():
                known[f"{name}.{k}"] = ("", v)
    return known


def change(config, name, value):
    config = copy.deepcopy(config)
    *path, last = name.split(".")
    inner = config
    for p in path:
        if not inner.get(p):
            inner[p] = {}
        inner = inner[p]
    inner[last] = value
    return config


def write(names):
    every = {} if not names else json.loads((here / "fields.json").read_text())
    for name in names or models:
        golden = json.loads((here / name / "golden.json").read_text())
        usual = json.loads((here / name / "config.json").read_text())
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for file in (here / name).glob("model*"):
                os.symlink(file.resolve(), folder / file.name)
            before = outcome(folder, usual, golden)
            assert isinstance(before, list), name
            config = getattr(tf, usual["architectures"][0]).config_class.from_dict(copy.deepcopy(usual))
            known = {}
            # No family reads images beside texts that it writes.
            for side in [c for c in ("text_config", "vision_config") if c in usual and (c == "text_config" or usual["model_type"] != "gemma3")]:
                known |= {f"{side}.{k}": v for k, v in fields(getattr(config, side)).items()}
            known |= {k: v for k, v in fields(config).items() if k not in usual or not isinstance(usual[k], dict)}
            found = {}
            for field, (kind, value) in known.items():
                outcomes = {}
                for v in others(field.split(".")[-1], kind, value, usual):
                    o = outcome(folder, change(usual, field, v), golden)
                    if o is None:
                        continue
                    what = o if isinstance(o, str) else "same" if max(abs(a - b) for a, b in zip(o, before)) <= 1e-6 * max(map(abs, before)) else "changed"
                    outcomes.setdefault(what, [v, o if what == "changed" else what])
                kept = [outcomes[what] for what in ("changed", "same", "others") if what in outcomes]
                if kept:
                    found[field] = kept
            every[name] = dict(usual=before, fields=dict(sorted(found.items())))
            counts = [sum(1 for kept in found.values() for v in kept if v[1] == w) for w in ("same", "others")]
            print(name, len(found), "fields:", counts[0], "values change nothing,", counts[1], "need other tensors; left out:", *sorted(set(known) - set(found)), flush=True)
    (here / "fields.json").write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(every[k])}" for k in models if k in every) + "\n}\n")


if __name__ == "__main__":
    write(sys.argv[1:])
