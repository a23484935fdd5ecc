"""Decodes with transformers what nn/pretrained's BenchmarkDecode does: a random GPT-2 of 124M, batch 1, with its cache.

    python3 decode.py [rounds]        (needs transformers and PyTorch; OMP_NUM_THREADS says on how many threads)
"""

import sys
import time

import torch
import transformers as tf

model = tf.GPT2LMHeadModel(tf.GPT2Config()).eval()
prompt, window = 32, 256
for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
    with torch.inference_mode():
        out = model(input_ids=torch.zeros(1, prompt, dtype=torch.long), use_cache=True)
        cache, token = out.past_key_values, out.logits[:, -1:].argmax(-1)
        began = time.perf_counter()
        for _ in range(window - prompt):
            out = model(input_ids=token, past_key_values=cache, use_cache=True)
            cache, token = out.past_key_values, out.logits[:, -1:].argmax(-1)
        seconds = time.perf_counter() - began
    print(f"{(window - prompt) / seconds:.1f} tok/s on {torch.get_num_threads()} threads", flush=True)
