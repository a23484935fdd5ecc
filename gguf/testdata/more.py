"""Writes more.gguf and more.json: a file of the types that are read and not written, and what llama.cpp's own package reads.

    pip install gguf && python more.py
"""
import json

import gguf
import numpy as np

random = np.random.default_rng(2)
Q = gguf.GGMLQuantizationType
# Where the halves of a block are: any other bytes are numbers.
halves = {Q.Q4_1: [0, 2], Q.Q5_0: [0], Q.Q5_1: [0, 2], Q.Q2_K: [80, 82], Q.Q3_K: [108], Q.Q5_K: [0, 2], Q.IQ4_NL: [0], Q.IQ4_XS: [0]}
w = gguf.GGUFWriter("more.gguf", "llama")
want = {}
for kind, places in halves.items():
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (2, 256 // block, size), dtype=np.uint8)
    for at in places:
        numbers = (0.01 * random.standard_normal(blocks.shape[:2])).astype(np.float16)
        blocks[..., at:at + 2] = numbers[..., None].view(np.uint8)
    raw = blocks.reshape(2, -1)
    w.add_tensor(kind.name, raw, raw_dtype=kind)
    want[kind.name] = [float(v) for v in gguf.quants.dequantize(raw, kind).reshape(-1)]
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
with open("more.json", "w") as f:
    json.dump(want, f)
    f.write("\n")
