"""Writes python.safetensors with Python's safetensors, and checks stheno.safetensors, which this package's Write made.

    go test -run TestGolden -update . && python3 testdata/golden.py     (needs torch and safetensors)

The Go tests read the first and compare what Write makes with the second, byte by byte. This script reads the second with
safetensors.torch.load_file and with safe_open, and compares all tensors, types and metadata with the values below; it
prints what it checked. Both files hold what the same formulas give in golden_test.go.
"""

import os

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

os.chdir(os.path.dirname(os.path.abspath(__file__)))


def values(n):
    """(i - 5) / 8: exact in every floating-point type here."""
    return (torch.arange(n, dtype=torch.float64) - 5) / 8


metadata = {"format": "pt", "note": 'quotes " and \\, a line\nbreak, ünïcode'}
common = {
    "f64": values(6).reshape(2, 3),
    "i64": torch.tensor([-(2**63), -1, 0, 2**63 - 1]),
    "f32": values(24).reshape(2, 3, 4).float(),
    "i32": torch.tensor([[-(2**31), 2**31 - 1]], dtype=torch.int32),
    "scalar": torch.tensor(2.5),
    "special": torch.tensor([float("inf"), -float("inf"), float("nan"), -0.0, 2.0**-149]),
    "ünïcode <&> \"name\"": torch.tensor([1.0]),
}
others = {
    "bf16": torch.tensor([1.0, -2.5, 3.0e38, 1.0e-40, float("inf"), float("nan")]).bfloat16(),
    "f16": torch.tensor([1.0, -2.5, 65504.0, 2.0**-24, float("-inf"), float("nan")]).half(),
    "u8": torch.tensor([1, 2, 3], dtype=torch.uint8),
    "bool": torch.tensor([True, False]),
    "empty": torch.zeros(0, 3),
}
save_file(common | others, "python.safetensors", metadata)

theirs = load_file("stheno.safetensors")
assert set(theirs) == set(common), theirs.keys()
for name, want in common.items():
    have = theirs[name]
    assert have.dtype == want.dtype and have.shape == want.shape, (name, have, want)
    assert torch.equal(torch.nan_to_num(have), torch.nan_to_num(want)), (name, have, want)
    if have.dtype == torch.float32:
        assert torch.equal(have.isnan(), want.isnan()) and torch.equal(have.signbit(), want.signbit()), name
with safe_open("stheno.safetensors", "pt") as f:
    assert f.metadata() == metadata, f.metadata()
    assert torch.equal(f.get_slice("f32")[1:, :2], common["f32"][1:, :2])
print("stheno.safetensors:", len(theirs), "tensors and", len(metadata), "strings are as they should be")
