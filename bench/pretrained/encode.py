"""Encodes texts with train/tokenizer, Hugging Face's tokenizers and tiktoken in turns, one thread each, and compares their ids.

    go test -c -o tokenizer.test ./train/tokenizer
    python3 bench/pretrained/encode.py tokenizer.test tokenizer.json text... [--rounds 5]     (needs tokenizers and tiktoken)

tiktoken takes part where the tokenizer is a byte-level BPE, such as GPT-2's or Llama 3's, whose ids are the ranks of its merges. Speeds are megabytes a
second of the clock and of the process's time, the median of the rounds. Ours is of several passes, without the reading of the tokenizer.
"""

import argparse
import json
import os
import re
import resource
import statistics
import struct
import subprocess
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tiktoken
import tokenizers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def byte_of():
    """The byte that each character of a byte-level vocabulary stands for."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [b for b in range(256) if b not in shown]
    return {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(other)}


def ranks_of(path):
    content = json.load(open(path))
    if '"ByteLevel"' not in json.dumps(content["pre_tokenizer"]):
        return None
    table = byte_of()
    added = {token["id"] for token in content["added_tokens"]}
    ranks = {bytes(table[c] for c in token): rank for token, rank in content["model"]["vocab"].items() if rank not in added}
    patterns = re.findall(r'"Regex": ("(?:[^"\\]|\\.)*")', json.dumps(content["pre_tokenizer"]))
    return tiktoken.Encoding("same", pat_str=json.loads(patterns[0]) if patterns else GPT2, mergeable_ranks=ranks, special_tokens={})


parser = argparse.ArgumentParser()
parser.add_argument("test")
parser.add_argument("tokenizer")
parser.add_argument("texts", nargs="+")
parser.add_argument("--rounds", type=int, default=5)
arguments = parser.parse_args()
face, tik = tokenizers.Tokenizer.from_file(arguments.tokenizer), ranks_of(arguments.tokenizer)

passes = 8


def ours(text, ids, passes):
    """The processor time of so many passes, with that of reading the tokenizer, and what the benchmark prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = subprocess.run(
        [arguments.test, "-test.run=xxx", "-test.bench=^BenchmarkEncode$", f"-test.benchtime={passes}x", "-test.cpu=1",
         f"-tokenizer={arguments.tokenizer}", f"-text={text}", f"-ids={ids}"], env=os.environ | {"GOMAXPROCS": "1"},
        check=True, capture_output=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, output


for path in arguments.texts:
    size = os.path.getsize(path)
    content = open(path, "rb").read()
    text = content.decode("utf-8", errors="replace")
    peers = [("tokenizers", lambda: face.encode(text, add_special_tokens=False).ids)]
    if tik:
        peers.append(("tiktoken", lambda: tik.encode_ordinary(text)))
    speeds, ids = {name: [] for name in ["ours", *(name for name, _ in peers)]}, {}
    for _ in range(arguments.rounds):
        for name, encode in peers:
            clock, process = time.perf_counter(), time.process_time()
            ids[name] = encode()
            speeds[name].append((size / (time.perf_counter() - clock) / 1e6, size / (time.process_time() - process) / 1e6))
        with tempfile.TemporaryDirectory() as folder:
            # The same text as Python's, which cannot hold bytes that are no UTF-8.
            same, out = os.path.join(folder, "text"), os.path.join(folder, "ids")
            open(same, "w", encoding="utf-8", newline="").write(text)
            few, _ = ours(same, out, 1)
            more, output = ours(same, out, 1 + passes)
            raw = open(out, "rb").read()
        rate = float(re.search(r"([0-9.]+) MB/s", output)[1])
        speeds["ours"].append((rate, passes * size / (more - few) / 1e6))
        ids["ours"] = list(struct.unpack(f"<{len(raw) // 4}I", raw))
    print(f"{path}: {size / 1e6:.2f} MB, {len(ids['ours'])} tokens,", "equal" if all(ids[name] == ids["ours"] for name in ids) else
          f"DIFFERENT: {[name for name in ids if ids[name] != ids['ours']]}")
    for name, seen in speeds.items():
        print(f"  {name:10} {statistics.median(s[0] for s in seen):6.2f} MB/s ({min(s[0] for s in seen):.2f} to {max(s[0] for s in seen):.2f})",
              f"{statistics.median(s[1] for s in seen):6.2f} of process time ({min(s[1] for s in seen):.2f} to {max(s[1] for s in seen):.2f})")
