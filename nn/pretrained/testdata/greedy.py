"""Writes greedy.json: 100 greedy tokens behind each of two prompts, as transformers chooses them, and the token that it
expects most behind each of a text of 100; see golden.py.

    python3 greedy.py [NAME...]

The models are those of golden.py, with room for longer texts. Where positions are learned, the rows of their tables are
repeated for it. Of the prompts that are tried, those with the most different tokens stand, whose most probable token is
never nearly another. Where it is nearly another behind the text, it stands as -1.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers as tf
from safetensors.torch import load_file, save_file

from golden import here, models

LONGEST, STEPS, LENGTHS, CLEAR = 128, 100, (5, 9), 1e-4
lengths = {  # what the configs call it
    "gpt2": dict(n_positions=LONGEST), "gpt2-untied": dict(n_positions=LONGEST), "mpt-clip": dict(max_seq_len=LONGEST),
    "gpt_bigcode": dict(n_positions=LONGEST), "gpt_bigcode-heads": dict(n_positions=LONGEST), "gptj": dict(n_positions=LONGEST),
    "bloom": {}, "bloom-streams": {}, "mpt": dict(max_seq_len=LONGEST), "mpt-steep": dict(max_seq_len=LONGEST),
    "phi3": dict(max_position_embeddings=LONGEST, original_max_position_embeddings=LONGEST),
    "llama-longrope": dict(max_position_embeddings=2 * LONGEST, rope_parameters=dict(
        rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.1, 1.2], long_factor=[2.0, 3.0, 4.0], original_max_position_embeddings=LONGEST)),
}
tables = {name: "transformer.wpe.weight" for name in ("gpt2", "gpt2-untied", "gpt_neo", "gpt_bigcode", "gpt_bigcode-heads")}
tables |= {name: "model.decoder.embed_positions.weight" for name in models if "opt" in name}


def longer(name, fields):
    """The folder of a model with another config, and repeated positions."""
    folder = pathlib.Path(tempfile.mkdtemp()) / name
    shutil.copytree(here / name, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= fields
    (folder / "config.json").write_text(json.dumps(config))
    if name in tables:
        file = folder / "model.safetensors"
        tensors = load_file(file)
        table = tensors[tables[name]]
        rows = LONGEST + (2 if "opt" in name else 0)
        tensors[tables[name]] = table[torch.arange(rows) % len(table)].contiguous()
        save_file(tensors, file, metadata={"format": "pt"})
    return folder


def expected(model, ids):
    """The most probable tokens behind each of a text's, and by how much, of the largest logit."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    best = logits.topk(2)
    return best.indices[:, 0], (best.values[:, 0] - best.values[:, 1]) / logits.abs().max()


def text(model, prompt):
    """The prompt with its greedy tokens, and whether all are clear choices."""
    ids = model.generate(
        torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False, num_beams=1, max_new_tokens=STEPS,
        eos_token_id=None, pad_token_id=0)[0].tolist()
    best, by = (x[len(prompt) - 1:-1] for x in expected(model, ids))
    clear = by.min().item() > CLEAR
    assert not clear or best.tolist() == ids[len(prompt):], "the cache of transformers chooses others"
    return ids, clear


def write(names):
    golden = {} if not names else json.loads((here / "greedy.json").read_text())
    for name in names or models:
        fields = lengths.get(name, dict(max_position_embeddings=LONGEST))
        folder = longer(name, fields)
        model = tf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        model.generation_config = tf.GenerationConfig()
        texts = []
        for length in LENGTHS:
            tried = []
            for seed in range(8):
                torch.manual_seed(100 * length + seed)
                ids, clear = text(model, torch.randint(0, 48, (length,)).tolist())
                if clear:
                    tried.append((len(set(ids[length:])), ids))
            texts.append(max(tried)[1])
        read = torch.randint(0, 48, (STEPS,)).tolist()
        best, by = expected(model, read)
        best[by <= CLEAR] = -1
        print(name, "different tokens:", *(len(set(t)) for t in (*texts, best.tolist())), flush=True)
        shutil.rmtree(folder.parent)
        golden[name] = dict(config=fields, prompts=LENGTHS, texts=texts, read=read, expected=best.tolist()) | (dict(repeated=tables[name]) if name in tables else {})
    (here / "greedy.json").write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in golden.items()) + "\n}\n")


if __name__ == "__main__":
    write(sys.argv[1:])
