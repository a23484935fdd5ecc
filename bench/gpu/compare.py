"""Times our attention and matrix products beside PyTorch's on one GPU, in one run, and prints ratios.

    compare.py PROGRAM [--set main|options|float32|any|matmul|matmul-any] [--flex]

PROGRAM is bench/gpu, built with -tags gpu. It runs as a child that takes turns with PyTorch: every cell of a table times ours
and each peer within a second or two of each other. All times are medians over batches of calls between two events, with
inputs that take turns. Cells give TFLOP/s (forward 4·B·H·S²·D, half of it causal; backward 2.5 times that) and ours over
the peer. --set main: 16,384 tokens, hidden size 2,048, bfloat16, every head size and length, forward and backward. options:
what GQA, windows, packed lengths, soft cap, slopes, dropout, bias and determinism cost per visible pair. float32: Float32 and TF32 beside
PyTorch's memory-efficient kernel. any: the kernels for any device since Ampere beside FlashAttention-2. matmul: the products of
linear layers beside cuBLAS, through PyTorch, before and after ours. matmul-any: those of the kernels for any device beside the quickest
algorithm of cuBLAS that uses no more of the device than they do.
"""
import argparse, json, os, statistics, subprocess, sys, time
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

arguments = argparse.ArgumentParser()
arguments.add_argument("program")
arguments.add_argument("--set", default="main", choices=["main", "options", "float32", "any", "matmul", "matmul-any"])
arguments.add_argument("--flex", action="store_true", help="FlexAttention too, which takes a minute to compile")
arguments.add_argument("--sizes", default="64,128,256")
arguments.add_argument("--lengths", default="512,1024,2048,4096,8192,16384")
options = arguments.parse_args()
environment = dict(os.environ, **({"STHENO_CUDA_SM80": "1"} if options.set in ("any", "matmul-any") else {}))
child = subprocess.Popen([options.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
TOKENS, HIDDEN, SETS = 16384, 2048, 3


def ours(**case):
    child.stdin.write(json.dumps(case) + "\n")
    child.stdin.flush()
    answer = json.loads(child.stdout.readline())
    if answer.get("Error"):
        print("ours:", case, answer["Error"], file=sys.stderr)
        return float("nan")
    return answer["Milliseconds"]


def median(run, together=4, rounds=11, warm=0.015):
    start = time.time()
    while time.time() - start < warm:  # the clocks follow the load
        for _ in range(together):
            run()
        torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        for _ in range(together):
            run()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) / together)
    return statistics.median(times)


def peer(attend, heads, key_heads, length, size, dtype, backward):
    """Times one way of PyTorch's. attend takes q, k and v."""
    batch = TOKENS // length
    def new(h):
        return torch.randn(batch, h, length, size, device="cuda", dtype=dtype, requires_grad=backward)
    sets, turn = [[new(heads), new(key_heads), new(key_heads)] for _ in range(SETS)], [0]
    def forward():
        turn[0] += 1
        return attend(*sets[turn[0] % SETS])
    try:
        if not backward:
            with torch.no_grad():
                return median(forward)
        outs = [attend(*s) for s in sets]
        d_out = torch.randn_like(outs[0])
        def run():
            turn[0] += 1
            n = turn[0] % SETS
            torch.autograd.grad(outs[n], sets[n], d_out, retain_graph=True)
        return median(run)
    except (RuntimeError, torch.cuda.OutOfMemoryError) as e:
        print("peer:", str(e).splitlines()[0], file=sys.stderr)
        return float("nan")
    finally:
        torch.cuda.empty_cache()


def with_backend(backend, causal, **more):
    def attend(q, k, v):
        with sdpa_kernel(backend):
            return sdpa(q, k, v, is_causal=causal, **more)
    return attend


def flex(causal, length):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    compiled = torch.compile(flex_attention)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length) if causal else None
    return lambda q, k, v: compiled(q, k, v, block_mask=mask)


def tflops(ms, heads, length, size, causal, backward):
    return 4 * (TOKENS // length) * heads * length**2 * size * (0.5 if causal else 1) * (2.5 if backward else 1) / ms / 1e9


def table(title, peers, dtype, name, precision=""):
    print(f"\n{title}\n{'D':>4} {'S':>6} {'mask':>7} {'pass':>9} {'ours':>8} " + " ".join(f"{p:>18}" for p in peers))
    for size in map(int, options.sizes.split(",")):
        for causal in (False, True):
            for backward in (False, True):
                for length in map(int, options.lengths.split(",")):
                    heads = HIDDEN // size
                    rate = lambda ms: tflops(ms, heads, length, size, causal, backward)
                    mine = rate(ours(Pass="backward" if backward else "forward", DType=name, Precision=precision, Batch=TOKENS // length,
                                     Heads=heads, KeyHeads=heads, Length=length, Size=size, Causal=causal))
                    cells = []
                    for p, make in peers.items():
                        theirs = rate(peer(make(causal, length), heads, heads, length, size, dtype, backward))
                        cells.append(f"{theirs:8.0f} ({mine / theirs:7.2f})")
                    print(f"{size:>4} {length:>6} {'causal' if causal else 'full':>7} {'backward' if backward else 'forward':>9} {mine:>8.0f} "
                          + " ".join(f"{c:>18}" for c in cells), flush=True)


def option_table():
    """What an option costs: its rate per visible pair over that of the plain kernel with the same pass and size."""
    print(f"\nrate per visible pair over the plain kernel's, bfloat16\n{'D':>4} {'case':>34} {'pass':>9} {'ours':>8} {'share':>6}")
    for size in map(int, options.sizes.split(",")):
        heads, rng = HIDDEN // size, torch.Generator().manual_seed(1)
        cuts = sorted(torch.randint(1, 16383, (15,), generator=rng).tolist())
        lens = [0] + cuts + [16384]
        packed = sum((b - a) ** 2 for a, b in zip(lens, lens[1:]))
        window = sum(min(i, 1024) + 1 for i in range(16384))
        cases = [  # name, case, visible pairs of all heads, and the case that it is compared with
            ("plain 8k", dict(Length=8192), 2 * 8192**2 * heads, None),
            ("causal 8k", dict(Length=8192, Causal=True), 8192 * 8193 * heads, None),
            ("GQA, an eighth of the key heads", dict(Length=8192, KeyHeads=max(1, heads // 8)), 2 * 8192**2 * heads, "plain 8k"),
            ("causal window 1024 of 16k", dict(Length=16384, Causal=True, Window=1024), window * heads, "causal 8k"),
            ("packed, mean 1k of 16k", dict(Length=16384, Lens=lens), packed * heads, "plain 1k"),
            ("plain 1k", dict(Length=1024), 16 * 1024**2 * heads, None),
            ("soft cap 8k", dict(Length=8192, SoftCap=30), 2 * 8192**2 * heads, "plain 8k"),
            ("slopes 8k", dict(Length=8192, Slopes=True), 2 * 8192**2 * heads, "plain 8k"),
            ("slopes causal 8k", dict(Length=8192, Slopes=True, Causal=True), 8192 * 8193 * heads, "causal 8k"),
            ("dropout 0.1", dict(Length=8192, Dropout=0.1), 2 * 8192**2 * heads, "plain 8k"),
            ("bias and its gradient 4k", dict(Length=4096, Batch=1, Bias=True), 4096**2 * heads, "plain 4k, batch 1"),
            ("plain 4k, batch 1", dict(Length=4096, Batch=1), 4096**2 * heads, None),
            ("deterministic 8k", dict(Length=8192, Deterministic=True), 2 * 8192**2 * heads, "plain 8k"),
            ("deterministic causal 8k", dict(Length=8192, Causal=True, Deterministic=True), 8192 * 8193 * heads, "causal 8k"),
        ]
        for backward in (False, True):
            rates = {}
            for name, case, pairs, _ in cases:
                full = dict(Pass="backward" if backward else "forward", DType="bfloat16", Batch=TOKENS // case["Length"], Heads=heads, KeyHeads=heads, Size=size)
                full.update(case)
                rates[name] = 4 * pairs * size * (2.5 if backward else 1) / ours(**full) / 1e9
            for name, _, _, beside in cases:
                share = f"{rates[name] / rates[beside]:6.2f}" if beside else ""
                print(f"{size:>4} {name:>34} {'backward' if backward else 'forward':>9} {rates[name]:>8.0f} {share}", flush=True)


LAYERS = [  # of GPT-2-124M, GPT-2-1.5B and Llama-8B: in, out, and rows of x
    (768, 768, 32768), (768, 2304, 32768), (768, 3072, 32768), (3072, 768, 32768), (768, 50304, 8192), (1600, 1600, 8192),
    (1600, 4800, 8192), (1600, 6400, 8192), (6400, 1600, 8192), (4096, 4096, 8192), (4096, 14336, 8192), (14336, 4096, 8192)]


def products():
    """Products of layers, forward and the gradients of x and w, and then others, beside cuBLAS."""
    any_device = options.set == "matmul-any"
    if any_device:
        import cublaslt
        peer = cublaslt.Product()
    print(f"\nproducts, TFLOP/s, in brackets ours over the peer's\n{'rows':>6} {'columns':>7} {'depth':>6} {'case':>26} {'ours':>8} {'cuBLAS':>16}")

    def case(name, rows, columns, depth, ta=False, tb=False, bias=False, gelu=False, pre=False, wide=False, dtype="bfloat16", precision=""):
        kind = getattr(torch, dtype)
        torch.backends.cuda.matmul.allow_tf32 = precision == "TF32"
        matrix = lambda r, c, t: torch.randn(c, r, device="cuda", dtype=kind).t() if t else torch.randn(r, c, device="cuda", dtype=kind)
        copies = 1 + min(5, (128 << 20) // (kind.itemsize * (rows * depth + depth * columns + rows * columns)))
        sets = [(matrix(rows, depth, ta), matrix(depth, columns, tb), torch.empty(rows, columns, device="cuda", dtype=kind)) for _ in range(copies)]
        added, turn = torch.randn(columns, device="cuda", dtype=kind), [0]

        def run():
            a, b, out = sets[turn[0] % copies]
            turn[0] += 1
            if gelu:
                torch.ops.aten._addmm_activation.out(added, a, b, use_gelu=True, out=out)
            elif bias:
                torch.addmm(added, a, b, out=out)
            else:
                torch.mm(a, b, out=out)
        mine = lambda: ours(Pass="matmul", DType=dtype, Precision=precision, MatMul=dict(
            Rows=rows, Columns=columns, Depth=depth, TransposeA=ta, TransposeB=tb, Bias=bias, GELU=gelu, Pre=pre, Wide=wide))
        if any_device:
            theirs, form = peer.fastest(sets, lambda run, **how: median(run, **dict(dict(together=8), **how)))
            milliseconds = mine()
        else:
            before, milliseconds, after = median(run, together=8), mine(), median(run, together=8)
            theirs, form = (before + after) / 2, ""
        rate = lambda ms: 2 * rows * columns * depth / ms / 1e9
        print(f"{rows:>6} {columns:>7} {depth:>6} {name:>26} {rate(milliseconds):>8.0f} {rate(theirs):8.0f} ({theirs / milliseconds:5.3f}) {form}", flush=True)
        del sets
        torch.cuda.empty_cache()
        return theirs / milliseconds

    passes = {"forward": [], "dx": [], "dw": []}
    for size, out, tokens in LAYERS:
        passes["forward"].append(case("forward", tokens, out, size))
        passes["dx"].append(case("dx", tokens, size, out, tb=True))
        passes["dw"].append(case("dw", size, out, tokens, ta=True))
    for name, ratios in dict(passes, all=sum(passes.values(), [])).items():
        print(f"{name}: median {statistics.median(ratios):.3f}, least {min(ratios):.3f}")
    if any_device:
        return
    case("bias, GELU", 32768, 3072, 768, bias=True, gelu=True)
    case("bias, GELU and what it had", 32768, 3072, 768, bias=True, gelu=True, pre=True)
    for size, out, tokens in LAYERS:
        case("dw in float32", size, out, tokens, ta=True, wide=True)
    for size, out, tokens in LAYERS:
        case("forward, w transposed", tokens, out, size, tb=True)
        case("forward, bias", tokens, out, size, bias=True)
    for n in (1024, 2048, 4096, 8192):
        case("square", n, n, n)
    for n in (2048, 8192):
        case("float32", n, n, n, dtype="float32")
        case("float32 as TF32", n, n, n, dtype="float32", precision="TF32")


print(torch.cuda.get_device_name(), "PyTorch", torch.__version__, "cuDNN", torch.backends.cudnn.version())
cudnn = lambda causal, length: with_backend(SDPBackend.CUDNN_ATTENTION, causal)
flash = lambda causal, length: with_backend(SDPBackend.FLASH_ATTENTION, causal)
efficient = lambda causal, length: with_backend(SDPBackend.EFFICIENT_ATTENTION, causal)
if options.set == "main":
    peers = {"cuDNN": cudnn, "FlashAttention-2": flash, "memory-efficient": efficient}
    if options.flex:
        peers["FlexAttention"] = flex
    table("TFLOP/s, bfloat16, in brackets ours over the peer", peers, torch.bfloat16, "bfloat16")
elif options.set == "any":
    table("TFLOP/s, bfloat16, kernels for any device, in brackets ours over the peer", {"FlashAttention-2": flash}, torch.bfloat16, "bfloat16")
elif options.set == "float32":
    torch.backends.cuda.matmul.allow_tf32 = False
    table("TFLOP/s, float32 with an error like float32's", {"memory-efficient": efficient}, torch.float32, "float32")
    table("TFLOP/s, float32 as TF32", {"memory-efficient": efficient}, torch.float32, "float32", "TF32")
elif options.set in ("matmul", "matmul-any"):
    products()
else:
    option_table()
child.stdin.close()
