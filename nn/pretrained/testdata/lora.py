"""Trains adapters of the small models beside this file with peft, for the tests of LoRA.

    python3 lora.py [NAME...] (in this directory; needs peft, transformers 5 and PyTorch)
    python3 lora.py --kinds [KIND...]
    python3 lora.py --check   (reads the adapters under written/, which the tests' -update writes, and compares)

lora/NAME/start and lora/NAME/end are the adapter before and after 20 steps of AdamW in float32. lora/NAME/golden.json has the
losses and the last logits of the same steps in float64, and by how much float32's logits differ from those, of the largest.
Batch n is golden.py's token ids, each n higher. Further kinds have a start alone, and the same of five steps.
"""

import copy
import json
import pathlib
import shutil
import sys

import peft
import torch
import transformers as tf

torch.set_num_threads(1)
here = pathlib.Path(__file__).parent
tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [11, 23, 17, 0, 42, 8, 30, 2, 1, 7, 19]])

# Adapters of further kinds, by the base: of each the start, and the losses and logits of five steps.
kinds = {
    "dora": ("llama3", dict(r=3, lora_alpha=5, use_dora=True, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"],
                            rank_pattern={"q_proj": 2, r"1\.mlp\.\w+": 4, "down_proj": 1}, alpha_pattern={"self_attn.q_proj": 7, "layers.0.mlp.up_proj": 1})),
    "dora-gpt2": ("gpt2", dict(r=2, use_dora=True, use_rslora=True, target_modules=["c_attn", "mlp.c_fc"], bias="all", fan_in_fan_out=True)),
    "layers": ("phi3", dict(r=2, target_modules=["qkv_proj", "gate_up_proj", "down_proj"], layers_to_transform=[1], layers_pattern="layers",
                            exclude_modules=["layers.1.mlp.down_proj"], modules_to_save=["lm_head", "layers.0.input_layernorm"])),
    "embeddings": ("gpt2", dict(r=2, target_modules=["wte", "c_fc"], bias="lora_only", fan_in_fan_out=True)),
    "embeddings-phi3": ("phi3", dict(r=2, lora_alpha=3, target_modules=["embed_tokens", "o_proj"], layers_to_transform=None)),
    "classes": ("llama-classes", dict(r=2, target_modules="all-linear", task_type="SEQ_CLS")),
}

adapters = {
    "gpt2": dict(r=4, lora_alpha=8, target_modules=["c_attn", "mlp.c_fc"], fan_in_fan_out=True),
    "llama3": dict(r=3, lora_alpha=16, target_modules="all-linear"),
    "phi3": dict(r=4, lora_alpha=6, use_rslora=True, target_modules=r"model\.layers\.\d+\.(self_attn\.qkv_proj|mlp\.gate_up_proj)"),
    "gpt_neox": dict(r=2, lora_alpha=4, target_modules=["query_key_value", "dense"]),
}


def base(name):
    if "classes" in name:
        return tf.AutoModelForSequenceClassification.from_pretrained(here / name, dtype=torch.float32).eval()
    return tf.AutoModelForCausalLM.from_pretrained(here / name, dtype=torch.float32).eval()


def write(names):
    for seed, (name, options) in enumerate(adapters.items()):
        if names and name not in names:
            continue
        torch.manual_seed(seed)
        model = peft.get_peft_model(base(name), peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **options))
        folder = here / "lora" / name
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder / "start")
        golden = exactly(model, 20)
        model.save_pretrained(folder / "end")
        for readme in folder.glob("*/README.md"):
            readme.unlink()
        for config in folder.glob("*/adapter_config.json"):
            fields = json.loads(config.read_text())
            fields["base_model_name_or_path"] = name
            config.write_text(json.dumps(fields, indent=2) + "\n")
        (folder / "golden.json").write_text(json.dumps(golden))


def exactly(model, steps):
    """Trains the model, and gives the losses and logits of the same steps in float64, and by how much its own logits differ."""
    exact = copy.deepcopy(model).double()
    _, rounded = train(model, steps)
    losses, logits = train(exact, steps)
    rounding = ((rounded - logits).abs().max() / logits.abs().max()).item()
    logits = [float(f"{x:.7g}") for x in logits.flatten().tolist()]
    return dict(losses=losses, logits=logits, rounding=float(f"{rounding:.2g}"))


def train(model, steps):
    """The losses of the steps, and the logits behind them."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.01)
    losses = []
    for step in range(steps):
        ids = (tokens + step) % 48
        loss = model(input_ids=ids, labels=ids).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return losses, model(input_ids=tokens).logits.double()


def write_kinds(names):
    for seed, (kind, (name, options)) in enumerate(kinds.items()):
        if names and kind not in names:
            continue
        torch.manual_seed(100 + seed)
        options = dict(task_type="CAUSAL_LM") | options
        model = peft.get_peft_model(base(name), peft.LoraConfig(init_lora_weights=False, **options)).eval()
        trained = [p for p in model.parameters() if p.requires_grad]
        with torch.no_grad():
            for p in trained:
                p.add_(0.1 * torch.randn_like(p))
        folder = here / "lora" / "kinds" / kind
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        (folder / "README.md").unlink()
        config = folder / "adapter_config.json"
        fields = json.loads(config.read_text())
        fields["base_model_name_or_path"] = name
        fields["target_modules"] = sorted(fields["target_modules"])
        config.write_text(json.dumps(fields, indent=2) + "\n")

        with torch.no_grad():
            logits = [float(f"{x:.7g}") for x in model(input_ids=tokens).logits.flatten().tolist()]
        golden = dict(base=name, logits=logits, losses=[])
        if "classes" not in kind:
            trained = exactly(model, 5)
            golden |= trained | dict(logits=logits, trained=trained["logits"])
        (folder / "golden.json").write_text(json.dumps(golden))


def same(name, ours, theirs):
    """Loads two adapters' folders and compares everything but what the base model has."""
    ours, theirs = peft.PeftModel.from_pretrained(base(name), ours).eval(), peft.PeftModel.from_pretrained(base(name), theirs).eval()
    a, b = ours.state_dict(), theirs.state_dict()
    assert a.keys() == b.keys(), a.keys() ^ b.keys()
    worst = max(((a[k] - b[k]).abs().max() / b[k].abs().max().clamp(min=1e-9)).item() for k in a)
    with torch.no_grad():
        x, y = ours(input_ids=tokens).logits, theirs(input_ids=tokens).logits
    return worst, ((x - y).abs().max() / y.abs().max()).item()


def check():
    for kind, (name, _) in kinds.items():
        worst = same(name, here / "written" / "lora" / "kinds" / kind, here / "lora" / "kinds" / kind)
        assert worst == (0, 0), (kind, worst)
        print(f"{kind}: as written by the tests and as peft wrote it, all tensors and logits are equal")

    for name in adapters:
        worst, logits = same(name, here / "written" / "lora" / name, here / "lora" / name / "end")
        rounding = json.loads((here / "lora" / name / "golden.json").read_text())["rounding"]
        assert worst < 1e-5 and logits < 4 * rounding, (name, worst, logits)
        print(f"{name}: after 20 steps each, tensors differ by {worst:.1e}, logits by {logits:.1e}")


if __name__ == "__main__":
    if "--check" in sys.argv:
        check()
    elif "--kinds" in sys.argv:
        write_kinds([a for a in sys.argv[1:] if a != "--kinds"])
    else:
        write(sys.argv[1:])
