"""Trains adapters of the small models beside this file with peft, for the tests of LoRA.

    python3 lora.py [NAME...] (in this directory; needs peft, transformers 5 and PyTorch)
    python3 lora.py --check   (reads the adapters under written/, which the tests' -update writes, and compares)

lora/NAME/start and lora/NAME/end are the adapter before and after 20 steps of AdamW, and lora/NAME/losses.json has the loss
of each step. Batch n is golden.py's token ids, each n higher.
"""

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

adapters = {
    "gpt2": dict(r=4, lora_alpha=8, target_modules=["c_attn", "mlp.c_fc"], fan_in_fan_out=True),
    "llama3": dict(r=3, lora_alpha=16, target_modules="all-linear"),
    "phi3": dict(r=4, lora_alpha=6, use_rslora=True, target_modules=r"model\.layers\.\d+\.(self_attn\.qkv_proj|mlp\.gate_up_proj)"),
    "gpt_neox": dict(r=2, lora_alpha=4, target_modules=["query_key_value", "dense"]),
}


def base(name):
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
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.01)
        losses = []
        for step in range(20):
            ids = (tokens + step) % 48
            loss = model(input_ids=ids, labels=ids).loss
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.save_pretrained(folder / "end")
        for readme in folder.glob("*/README.md"):
            readme.unlink()
        for config in folder.glob("*/adapter_config.json"):
            fields = json.loads(config.read_text())
            fields["base_model_name_or_path"] = name
            config.write_text(json.dumps(fields, indent=2) + "\n")
        with torch.no_grad():
            logits = model(input_ids=tokens).logits.flatten().tolist()
        logits = [float(f"{x:.7g}") for x in logits]
        (folder / "golden.json").write_text(json.dumps(dict(losses=losses, logits=logits)))


def check():
    for name in adapters:
        ours = peft.PeftModel.from_pretrained(base(name), here / "written" / "lora" / name)
        theirs = peft.PeftModel.from_pretrained(base(name), here / "lora" / name / "end")
        a, b = ours.state_dict(), theirs.state_dict()
        assert a.keys() == b.keys()
        worst = max(((a[k] - b[k]).abs().max() / b[k].abs().max()).item() for k in a if "lora" in k)
        with torch.no_grad():
            x, y = ours(input_ids=tokens).logits, theirs(input_ids=tokens).logits
        logits = ((x - y).abs().max() / y.abs().max()).item()
        assert worst < 1e-5 and logits < 3e-5, (name, worst, logits)
        print(f"{name}: after 20 steps each, tensors differ by {worst:.1e}, logits by {logits:.1e}")


check() if "--check" in sys.argv else write(sys.argv[1:])
