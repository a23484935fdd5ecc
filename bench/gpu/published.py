"""Fine-tuning and decoding of a published model's shape with transformers and peft on one GPU, to hold beside ours.

    published.py lora SHAPE...      LoRA of rank 8 on all matrices of the blocks: ms a step, tokens/s and memory
    published.py decode SHAPE...    one token after another behind a cache of 1,024: ms a token and tokens/s, of one and
                                    sixteen texts

Shapes are 1B and 8B, of Llama; weights are random numbers in bfloat16. Ours are BenchmarkStepOnTheDevice of train and
BenchmarkDecoderOnTheDevice of nn. Steps are forward, backward, clipping at 1 and fused AdamW over the adapters' float32,
with autocast and torch.compile; tokens have a static cache, torch.compile with CUDA graphs, and the choice of the largest
logit in them. Times are medians between two events. --eager compiles nothing.
"""
import argparse, statistics, time
import torch
import transformers

SHAPES = {  # layers, heads, key heads, width, hidden, vocabulary; rows and length of a step
    "1B": (22, 32, 4, 2048, 5632, 32000, 8, 1024),
    "8B": (32, 32, 8, 4096, 14336, 128256, 2, 4096),
    "small": (2, 4, 2, 64, 128, 256, 2, 64),
}
PROMPT, TOKENS = 1024, 64


def model_of(shape, device):
    layers, heads, key_heads, width, hidden, vocabulary = SHAPES[shape][:6]
    config = transformers.LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=key_heads, max_position_embeddings=8192, attn_implementation="sdpa")
    torch.manual_seed(0)
    kept = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = transformers.LlamaForCausalLM(config)
    torch.set_default_dtype(kept)
    return model


def times_of(step, device, warm, count):
    """The milliseconds of steps, each between two events."""
    for _ in range(warm):
        step()
    if device == "cpu":
        marks = [time.perf_counter()]
        for _ in range(count):
            step()
            marks.append(time.perf_counter())
        return [1e3 * (b - a) for a, b in zip(marks, marks[1:])]
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    for e in events[:-1]:
        e.record()
        step()
    events[-1].record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(events, events[1:])]


def peak(device):
    return torch.cuda.max_memory_allocated() / 2**30 if device != "cpu" else 0


def lora(shape, how, device):
    import peft

    rows, length = SHAPES[shape][6:]
    adapters = peft.LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    model = peft.get_peft_model(model_of(shape, device), adapters).train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, 2e-4, fused=True)
    run = torch.compile(model) if how == "compiled" else model
    x = torch.randint(0, SHAPES[shape][5], (rows, length), device=device)

    def step():
        with torch.autocast(device, torch.bfloat16):
            loss = run(input_ids=x, labels=x, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    ms = statistics.median(times_of(step, device, 5, 15))
    print(f"peft {peft.__version__}, PyTorch {torch.__version__}: LoRA {shape} {rows}×{length} {how}: {ms:.2f} ms/step "
          f"{rows * length / ms * 1e3:.0f} tokens/s {peak(device):.2f} GiB-peak", flush=True)


@torch.no_grad()
def decode(shape, how, device):
    model = model_of(shape, device).eval()
    for texts in 1, 16:
        cache = transformers.StaticCache(config=model.config, max_cache_len=PROMPT + 2 * TOKENS)
        token = torch.randint(0, SHAPES[shape][5], (texts, PROMPT), device=device)
        place = torch.arange(PROMPT, device=device)
        model(input_ids=token, past_key_values=cache, cache_position=place, logits_to_keep=1)

        def one(token, place):
            logits = model(input_ids=token, past_key_values=cache, cache_position=place, position_ids=place[None]).logits
            return logits[:, -1].argmax(-1, keepdim=True)

        run = torch.compile(one, mode="reduce-overhead", fullgraph=True) if how == "compiled" else one
        token, place = token[:, :1].contiguous(), torch.tensor([PROMPT], device=device)

        def step():
            token.copy_(run(token, place))
            place.add_(1)

        ms = statistics.median(times_of(step, device, 10, TOKENS))
        print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}: decode {shape}, {texts} texts {how}: "
              f"{ms:.3f} ms/token {texts / ms * 1e3:.0f} tokens/s", flush=True)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("what", choices=["lora", "decode"])
    arguments.add_argument("shapes", nargs="+", choices=list(SHAPES))
    arguments.add_argument("--eager", action="store_true")
    arguments.add_argument("--device", default="cuda")
    options = arguments.parse_args()
    for shape in options.shapes:
        {"lora": lora, "decode": decode}[options.what](shape, "eager" if options.eager else "compiled", options.device)
