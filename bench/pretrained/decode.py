"""Decodes with transformers what nn/pretrained's BenchmarkDecode does, in turns with it: a random GPT-2 of 124M, batch 1, with its
cache, from a prompt of 32 tokens to 256, in float32 and in bfloat16, and compares the tokens.

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


def ours(folder, weights):
    ids = os.path.join(folder, "ids")
    output = subprocess.run(
        [test, "-test.run=xxx", "-test.bench=^BenchmarkDecode$", f"-test.benchtime={window - prompt}x", f"-folder={folder}", f"-ids={ids}",
         f"-weights={weights}"],
        check=True, capture_output=True, text=True).stdout
    return float(re.search(r"([0-9.]+) tok/s", output)[1]), [int(n) for n in open(ids).read().strip("[]\n").split()]


torch.manual_seed(1)
# Weights wider than usual make tokens differ from each other.
whole = tf.GPT2LMHeadModel(tf.GPT2Config(initializer_range=0.06)).eval()
with tempfile.TemporaryDirectory() as folder:
    whole.save_pretrained(folder)
    seen = {"transformers": [], "transformers, bfloat16": [], "ours": [], "ours, bfloat16": []}
    brain = tf.GPT2LMHeadModel.from_pretrained(folder, dtype=torch.bfloat16).eval()
    for _ in range(rounds):
        for name, model, weights in ("", whole, "float32"), (", bfloat16", brain, "bfloat16"):
            rate, tokens = theirs(model)
            seen["transformers" + name].append(rate)
            rate, same = ours(folder, weights)
            seen["ours" + name].append(rate)
            differ = [i for i in range(len(tokens)) if same[i] != tokens[i]]
            print(f"{weights}: {seen['transformers' + name][-1]:.1f} and {rate:.1f} tok/s, tokens {f'differ from number {differ[0]} on' if differ else 'equal'}", flush=True)
for name, rates in seen.items():
    print(f"{name:22} {statistics.median(rates):6.1f} tok/s ({min(rates):.1f} to {max(rates):.1f}) on {torch.get_num_threads()} threads")
