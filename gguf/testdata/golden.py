"""Writes golden.gguf and golden.json: a file of llama.cpp's own package, and what it reads in it.

    pip install gguf && python golden.py
"""
import json

import gguf
import numpy as np

random = np.random.default_rng(1)
Q = gguf.GGMLQuantizationType
w = gguf.GGUFWriter("golden.gguf", "llama")
w.add_name("small")
w.add_block_count(2)
w.add_token_list(["<s>", "a", "\u00e4\U0001f600"])
w.add_token_scores([0.0, -1.5, 2.5])
w.add_token_types([3, 1, 1])
w.add_bool("general.flag", True)
w.add_uint64("general.large", 2**63 + 5)
w.add_int8("general.negative", -7)
w.add_float64("general.double", 0.1)
want = {}
for name, kind, shape in [("f32", Q.F32, (3, 5)), ("f16", Q.F16, (2, 3, 4)), ("bf16", Q.BF16, (7,)), ("q8_0", Q.Q8_0, (3, 64)),
                          ("q4_0", Q.Q4_0, (2, 96)), ("q4_k", Q.Q4_K, (2, 256)), ("q6_k", Q.Q6_K, (1, 512))]:
    if kind in (Q.Q4_K, Q.Q6_K):  # which it does not write: any bytes are such numbers, but for scales that are not finite
        block, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = random.integers(0, 256, (shape[0], shape[1] // block, size), dtype=np.uint8)
        for at in [0, 2] if kind == Q.Q4_K else [208]:
            blocks[..., at:at + 2] = np.float16(0.01 * (1 + at)).tobytes()[0], np.float16(0.01 * (1 + at)).tobytes()[1]
        raw = blocks.reshape(shape[0], -1)
        w.add_tensor(name, raw, raw_dtype=kind)
    else:
        x = random.standard_normal(shape).astype(np.float32)
        raw = gguf.quants.quantize(x, kind)
        w.add_tensor(name, raw, raw_dtype=kind)
    want[name] = {"type": kind.name, "shape": list(shape), "values": [float(v) for v in gguf.quants.dequantize(raw, kind).reshape(-1)]}
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
with open("golden.json", "w") as f:
    json.dump(want, f)
    f.write("\n")
