"""Decodes with transformers what nn/pretrained's BenchmarkDecode does, in turns with it: a random GPT-2 of 124M, batch 1, with its
cache, from a prompt of 32 tokens to 256, and compares the tokens.

    go test -c -o pretrained.test ./nn/pretrained
    OMP_NUM_THREADS=2 GOMAXPROCS=2 python3 bench/pretrained/decode.py pretrained.test [rounds]     (needs transformers and PyTorch)
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import transformers as tf

prompt, window = 32, 256
test, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3


def theirs(model):
    with torch.inference_mode():
        out = model(input_ids=torch.zeros(1, prompt, dtype=torch.long), use_cache=True)
        cache, token = out.past_key_values, out.logits[:, -1:].argmax(-1)
        tokens, began = [], time.perf_counter()
        for _ in range(window - prompt):
            tokens.append(int(token))
            out = model(input_ids=token, past_key_values=cache, use_cache=True)
            cache, token = out.past_key_values, out.logits[:, -1:].argmax(-1)
        return (window - prompt) / (time.perf_counter() - began), tokens


def ours(folder):
    ids = os.path.join(folder, "ids")
    output = subprocess.run(
        [test, "-test.run=xxx", "-test.bench=^BenchmarkDecode$", f"-test.benchtime={window - prompt}x", f"-folder={folder}", f"-ids={ids}"],
        check=True, capture_output=True, text=True).stdout
    return float(re.search(r"([0-9.]+) tok/s", output)[1]), [int(n) for n in open(ids).read().strip("[]\n").split()]


torch.manual_seed(1)
# Weights wider than usual make tokens differ from each other.
model = tf.GPT2LMHeadModel(tf.GPT2Config(initializer_range=0.06)).eval()
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    seen = {"transformers": [], "bfloat16": [], "ours": []}
    brain = tf.GPT2LMHeadModel.from_pretrained(folder, dtype=torch.bfloat16).eval()
    for _ in range(rounds):
        rate, tokens = theirs(model)
        seen["transformers"].append(rate)
        seen["bfloat16"].append(theirs(brain)[0])
        rate, same = ours(folder)
        seen["ours"].append(rate)
        print("tokens equal" if same == tokens else f"tokens DIFFER from number {next(i for i in range(len(tokens)) if same[i] != tokens[i])} on", flush=True)
for name, rates in seen.items():
    print(f"{name:12} {statistics.median(rates):6.1f} tok/s ({min(rates):.1f} to {max(rates):.1f}) on {torch.get_num_threads()} threads")
