"""Writes the folders of package pretrained's tests that others quantise: GPTQ, AWQ, FP8 and LLM.int8, and what they count as.

    python3 quantised.py    (in this directory; needs transformers 5 and PyTorch)

The weights are packed here from the definitions of the formats. Each folder of quantised/ holds config.json, model.safetensors
and golden.json: the SHA-256 of each quantised weight as it counts, (out, in), in float32, and the logits that transformers
computes in float32 over these weights.
"""

import hashlib
import json
import pathlib
import shutil

import safetensors.torch
import torch
import transformers as tf

torch.set_num_threads(1)
here = pathlib.Path(__file__).parent / "quantised"
tokens = [[3, 1, 4, 1, 5], [11, 23, 17, 0, 42]]


def words(codes, bits, axis, order=None):
    """Packs codes along an axis: the first in the lowest bits of a word, or those that the order says."""
    codes, count = codes.movedim(axis, -1).long(), 32 // bits
    codes = codes.reshape(*codes.shape[:-1], -1, count)[..., order or list(range(count))]
    packed = (codes << (bits * torch.arange(count))).sum(-1)
    packed = torch.where(packed >= 2**31, packed - 2**32, packed)
    return packed.to(torch.int32).movedim(-1, axis).contiguous()


def integers(weight, bits, group, sym, act, dtype):
    """Codes (in, out), zeros and scales (groups, out), and the groups of inputs."""
    w, top = weight.t().float(), 2**bits - 1
    inputs = w.shape[0]
    size = inputs if group < 0 else group
    groups = torch.arange(inputs) // size
    if act:
        groups = groups[torch.randperm(inputs)]
    scales, zeros = [], []
    for g in range(-(-inputs // size)):
        rows = w[groups == g]
        low, high = rows.amin(0), rows.amax(0)
        if sym:
            high = torch.maximum(high, -low)
            low = -high
        scales.append((high - low) / top)
        zeros.append(torch.full_like(low, (top + 1) // 2) if sym else (-low / scales[-1]).round().clamp(0, top))
    scales, zeros = torch.stack(scales).to(dtype), torch.stack(zeros)
    codes = (w / scales.float()[groups] + zeros[groups]).round().clamp(0, top).long().float()  # without a negative zero
    wide = ((codes - zeros[groups]) * scales.float()[groups]).to(dtype)  # exact before it is rounded
    return codes, zeros, scales, groups.to(torch.int32), wide.t()


def gptq(bits, group, sym, act, version, dtype=torch.float16):
    def quantise(weight):
        codes, zeros, scales, groups, wide = integers(weight, bits, group, sym, act, dtype)
        kept = zeros if version == "gptq_v2" else (zeros - 1) % 2**bits
        return {"qweight": words(codes, bits, 0), "qzeros": words(kept, bits, 1), "scales": scales, "g_idx": groups}, wide

    config = dict(quant_method="gptq", bits=bits, group_size=group, sym=sym, desc_act=act, checkpoint_format=version, damp_percent=0.1,
                  true_sequential=True, static_groups=False, lm_head=False, model_name_or_path=None, model_file_base_name="model")
    return quantise, config


def awq(group):
    def quantise(weight):
        codes, zeros, scales, _, wide = integers(weight, 4, group, False, False, torch.float16)
        order = [0, 2, 4, 6, 1, 3, 5, 7]
        return {"qweight": words(codes, 4, 1, order), "qzeros": words(zeros, 4, 1, order), "scales": scales}, wide

    return quantise, dict(quant_method="awq", bits=4, group_size=group, zero_point=True, version="gemm", modules_to_not_convert=None)


def float8(weight, rows, columns, scale_name, shape, dtype):
    grid = [-(-n // size) for n, size in zip(weight.shape, (rows, columns))]
    spread = lambda s: s.repeat_interleave(rows, 0)[: weight.shape[0]].repeat_interleave(columns, 1)[:, : weight.shape[1]]
    padded = torch.zeros(grid[0] * rows, grid[1] * columns)
    padded[: weight.shape[0], : weight.shape[1]] = weight.float()
    largest = padded.reshape(grid[0], rows, grid[1], columns).abs().amax((1, 3))
    scales = (largest / 448).to(dtype)
    codes = (weight.float() / spread(scales.float())).to(torch.float8_e4m3fn)
    wide = (codes.float() * spread(scales.float())).to(dtype)
    return {"weight": codes, scale_name: scales.reshape(shape) if shape is not None else scales}, wide


def fp8(block, static=False):
    def quantise(weight):
        rows, columns = block or weight.shape
        parts, wide = float8(weight, rows, columns, "weight_scale_inv", None if block else (), torch.float32)
        return parts | ({"activation_scale": torch.ones(())} if static else {}), wide

    return quantise, dict(quant_method="fp8", activation_scheme="static" if static else "dynamic", fmt="e4m3", weight_block_size=block)


def compressed(strategy):
    def quantise(weight):
        rows = 1 if strategy == "channel" else weight.shape[0]
        parts, wide = float8(weight, rows, weight.shape[1], "weight_scale", None if strategy == "channel" else (1,), torch.bfloat16)
        return parts | ({"input_scale": torch.ones(1)} if strategy == "tensor" else {}), wide

    half = dict(num_bits=8, type="float", symmetric=True, group_size=None, block_structure=None, actorder=None, observer_kwargs={})
    group = dict(targets=["Linear"], output_activations=None, weights=half | dict(strategy=strategy, dynamic=False, observer="minmax"),
                 input_activations=half | dict(strategy="token", dynamic=True, observer=None))
    return quantise, dict(quant_method="compressed-tensors", format="float-quantized", quantization_status="compressed", ignore=["lm_head"],
                          config_groups={"group_0": group}, kv_cache_scheme=None, global_compression_ratio=None)


def int8():
    def quantise(weight):
        largest = weight.float().abs().amax(1)
        codes = (weight.float() * 127 / largest[:, None]).round().to(torch.int8)
        wide = codes.float() * largest[:, None] * torch.tensor(1 / 127)
        return {"weight": codes, "SCB": largest, "weight_format": torch.tensor(0, dtype=torch.uint8)}, wide

    return quantise, dict(quant_method="bitsandbytes", load_in_8bit=True, load_in_4bit=False, llm_int8_threshold=6.0,
                          llm_int8_skip_modules=None, llm_int8_has_fp16_weight=False, llm_int8_enable_fp32_cpu_offload=False,
                          bnb_4bit_quant_type="fp4", bnb_4bit_compute_dtype="float32", bnb_4bit_use_double_quant=False)


folders = {
    "gptq-4": gptq(4, 16, sym=True, act=False, version="gptq"),
    "gptq-4-act": gptq(4, 8, sym=False, act=True, version="gptq_v2"),
    "gptq-4-odd": gptq(4, 20, sym=False, act=False, version="gptq"),  # the last group is shorter
    "gptq-8": gptq(8, -1, sym=True, act=False, version="gptq", dtype=torch.bfloat16),
    "gptq-2": gptq(2, 32, sym=False, act=True, version="gptq_v2"),
    "awq": awq(16),
    "fp8-blocks": fp8([20, 24]),
    "fp8-static": fp8(None, static=True),
    "compressed-channel": compressed("channel"),
    "compressed-tensor": compressed("tensor"),
    "int8": int8(),
}


def write(name, quantise, config):
    torch.manual_seed(len(name))
    shape = tf.LlamaConfig(
        vocab_size=48, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=32, initializer_range=0.1, tie_word_embeddings=True)
    model = tf.LlamaForCausalLM(shape).eval()
    folder = here / name
    shutil.rmtree(folder, ignore_errors=True)
    model.config.architectures = ["LlamaForCausalLM"]
    model.config.save_pretrained(folder)
    text = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(text | {"quantization_config": config}, indent=2) + "\n")
    tensors, digests = {}, {}
    for path, module in model.named_modules():
        if path == "lm_head" or not isinstance(getattr(module, "weight", None), torch.Tensor):
            continue
        if not isinstance(module, torch.nn.Linear):
            tensors[path + ".weight"] = module.weight.data
            continue
        parts, wide = quantise(module.weight.data)
        tensors |= {f"{path}.{part}": value.contiguous() for part, value in parts.items()}
        wide = wide.float().contiguous()
        digests[path + ".weight"] = hashlib.sha256(wide.numpy().tobytes()).hexdigest()
        module.weight.data = wide
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with torch.no_grad():
        logits = model(input_ids=torch.tensor(tokens)).logits.flatten().tolist()
    golden = dict(tokens=tokens, digests=digests, logits=[float(f"{x:.7g}") for x in logits])
    (folder / "golden.json").write_text(json.dumps(golden))


for name, (quantise, config) in folders.items():
    write(name, quantise, config)
