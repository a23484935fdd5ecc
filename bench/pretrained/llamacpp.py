"""Compares the logits of GGUF files in llama.cpp and in nn/pretrained: of files that we write, and of those that llama.cpp quantises.

    go test -c -o pretrained.test ./nn/pretrained
    python3 bench/pretrained/llamacpp.py pretrained.test [--as-stored]    (needs llama_cpp_python)

Some builds of llama.cpp crash on weights that they have rearranged: --as-stored has them use those of the file.

All errors are root mean squares as shares of that of the float32 file's logits in llama.cpp: how far ours are from llama.cpp's for the same
file, and for scale, how far quantising itself moves llama.cpp's, and ours.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import llama_cpp
import numpy as np

families = ["llama", "mistral", "qwen2", "qwen3", "phi3", "gemma", "gemma2"]
types = {
    "F16": llama_cpp.LLAMA_FTYPE_MOSTLY_F16, "BF16": llama_cpp.LLAMA_FTYPE_MOSTLY_BF16, "Q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
    "Q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0, "Q4_K": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M, "Q6_K": llama_cpp.LLAMA_FTYPE_MOSTLY_Q6_K}


def as_stored():
    usual = llama_cpp.llama_model_default_params

    def changed():
        params = usual()
        params.use_extra_bufts = False
        return params

    llama_cpp.llama_cpp.llama_model_default_params = changed


def ours(test, folder):
    subprocess.run([test, "-test.run=^TestForLlamaCpp$", f"-llamacpp={folder}"], check=True, stdout=subprocess.DEVNULL)


def read(path):
    """Ours and llama.cpp's logits of a file."""
    golden = json.loads(pathlib.Path(f"{path}.json").read_text())
    tokens = golden["tokens"]
    model = llama_cpp.Llama(
        str(path), logits_all=True, n_ctx=64, n_batch=64, n_threads=2, n_gpu_layers=0, verbose=False, type_k=llama_cpp.GGML_TYPE_F32,
        type_v=llama_cpp.GGML_TYPE_F32)
    model.eval(tokens)
    theirs = np.array(model.scores[:len(tokens)], dtype=np.float64)
    return np.array(golden["logits"], dtype=np.float64).reshape(theirs.shape), theirs


def quantise(source, target, kind):
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype, options.nthread = kind, 2
    assert llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(options)) == 0, target


def size(x):
    return float(np.sqrt((x * x).mean()))


@contextlib.contextmanager
def silence():
    """Drops what the library prints."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


if "--as-stored" in sys.argv:
    as_stored()
with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    test = os.path.abspath(sys.argv[1])
    ours(test, folder)
    with silence():
        for family in families:
            for name, kind in types.items():
                quantise(folder / f"{family}.ours.F32.gguf", folder / f"{family}.theirs.{name}.gguf", kind)
    ours(test, folder)
    worst = 0.0
    for family in families:
        with silence():
            exact, whole = read(folder / f"{family}.ours.F32.gguf")
        scale = size(whole)
        print(f"{family}: F32, ours beside llama.cpp {size(exact - whole) / scale:.1e}")
        for name in types:
            for by in "ours", "theirs":
                with silence():
                    a, b = read(folder / f"{family}.{by}.{name}.gguf")
                apart, moved, mine = (size(x) / scale for x in (a - b, b - whole, a - exact))
                worst = max(worst, apart / moved)
                print(f"  {name:5} written by {by:7} apart {apart:.1e}; quantising moves llama.cpp's by {moved:.1e}, ours by {mine:.1e}", flush=True)
    print(f"the largest distance is {worst:.2f} of what quantising moves")
