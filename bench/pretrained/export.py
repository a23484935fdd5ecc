"""Opens with transformers the models that examples/transformer exports, and compares ids, logits and 100 greedy tokens with ours.

    go test ./examples/transformer -run TestExport -kept FOLDER      (an absolute path)
    python3 bench/pretrained/export.py FOLDER                        (needs transformers and PyTorch)
"""

import json
import pathlib
import sys

import torch
import transformers as tf

for folder in sorted(path.parent for path in pathlib.Path(sys.argv[1]).glob("*/ours.json")):
    ours = json.loads((folder / "ours.json").read_text())
    tokenizer, model = tf.AutoTokenizer.from_pretrained(folder), tf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = tokenizer(ours["text"])["input_ids"]
    ids_equal = ids == ours["ids"] and tokenizer.decode(ids) == ours["text"]
    model.generation_config.eos_token_id = None  # ours goes on, too
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits.flatten()
        greedy = model.generate(torch.tensor([ids]), max_new_tokens=100, do_sample=False)[0, len(ids):]
    off = (logits - torch.tensor(ours["logits"])).abs().max() / logits.abs().max()
    tokens_equal = greedy.tolist() == ours["greedy"]
    print(f"{folder.name}: {type(model).__name__}, {type(tokenizer).__name__} of {len(tokenizer)}: ids {'equal' if ids_equal else 'DIFFER'}, "
          f"logits off by {off:.1e} of the largest, 100 greedy tokens {'equal' if tokens_equal else 'DIFFER'}")
    if not (ids_equal and tokens_equal and off <= 1e-5):
        sys.exit(1)
