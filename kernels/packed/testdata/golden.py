"""Writes golden.json: matrices that bitsandbytes and gguf have quantised, and what they widen them to.

    pip install bitsandbytes gguf torch && python golden.py
"""
import base64
import hashlib
import json

import bitsandbytes.functional as bnb
import gguf
import numpy as np
import torch


def matrix(rows, columns):
    i = np.arange(rows * columns, dtype=np.uint64)
    bits = (i * np.uint64(2654435761) + np.uint64(12345)) % np.uint64(2**32)
    bits = (bits * np.uint64(1664525) + np.uint64(1013904223)) % np.uint64(2**32)
    x = bits.astype(np.float64) / 2**32 - 0.5
    x = x * x * x * (1 + i.astype(np.float64) / 4096)
    return x.astype(np.float32).reshape(rows, columns)


def text(x):
    return base64.b64encode(np.ascontiguousarray(x).tobytes()).decode()


def digest(x):
    return hashlib.sha256(np.ascontiguousarray(x, dtype=np.float32).tobytes()).hexdigest()


cases = []
for rows, columns in [(1, 64), (3, 128), (5, 192), (40, 448)]:
    x = matrix(rows, columns)
    codes, state = bnb.quantize_4bit(torch.from_numpy(x), blocksize=64, compress_statistics=True, quant_type="nf4")
    case = {"rows": rows, "columns": columns, "matrix": digest(x)}
    case["nf4"] = {
        "codes": text(codes.numpy()), "scales": text(state.absmax.numpy()), "nested": text(state.state2.absmax.numpy()),
        "offset": float(state.offset), "table": text(state.code.numpy()), "scaleTable": text(state.state2.code.numpy()),
        "wide": digest(bnb.dequantize_4bit(codes, state).numpy()),
    }
    for name, kind in [("int8", gguf.GGMLQuantizationType.Q8_0), ("int4", gguf.GGMLQuantizationType.Q4_0)]:
        blocks = gguf.quants.quantize(x, kind)
        case[name] = {"blocks": text(blocks), "wide": digest(gguf.quants.dequantize(blocks, kind))}
    cases.append(case)
with open("golden.json", "w") as f:
    json.dump(cases, f, indent=1)
    f.write("\n")
