"""Writes masks.json: what transformers gives of texts with padding on the left and on the right, by the small models.

    python3 masks.py [NAME...]

The vectors behind the last norm of the tokens that are no padding count. Two sums stand for them, as in fields.py.
"""

import json
import sys

import torch
import transformers as tf

from golden import here, models

torch.set_num_threads(1)
MASKS = [[0] * 2 + [1] * 9, [1] * 7 + [0] * 4]


def sums(name):
    model = tf.AutoModelForCausalLM.from_pretrained(here / name, dtype=torch.float32).eval()
    mask = torch.tensor(MASKS)
    ids = torch.tensor(json.loads((here / name / "golden.json").read_text())["tokens"])
    with torch.no_grad():
        x = model.base_model(input_ids=ids, attention_mask=mask).last_hidden_state[mask.bool()].double().flatten()
    at = torch.arange(len(x), dtype=torch.float64)
    return [float(f"{s.item():.7g}") for s in ((x * at.cos()).sum(), (x * at.sin()).sum())]


def write(names):
    found = {} if not names else json.loads((here / "masks.json").read_text())["sums"]
    for name in names or (n for n in models if n != "llama-longrope"):
        found[name] = sums(name)
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items())
    (here / "masks.json").write_text(f'{{"masks": {json.dumps(MASKS)}, "sums": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    tf.logging.set_verbosity_error()
    tf.logging.disable_progress_bar()
    write(sys.argv[1:])
