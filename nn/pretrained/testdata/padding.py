"""Writes padding.json: the norms of the gradients of the embeddings where padding stands in a text, by the small models.

    python3 padding.py [NAME...]

Each model has two: with 5, which the texts hold, as pad_token_id, and without that field, so that the family's usual one counts.
transformers gives no gradient to the vector of padding, in most families. None stands where it refuses to load the model.
"""

import json
import os
import pathlib
import sys
import tempfile

import torch
import transformers as tf

from golden import here, models as decoders
from seq2seq import models as writers

PADDING = 5


def norm(name, change):
    golden = json.loads((here / name / "golden.json").read_text())
    config = change(json.loads((here / name / "config.json").read_text()))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "config.json").write_text(json.dumps(config))
        for file in (here / name).glob("model*"):
            os.symlink(file.resolve(), folder / file.name)
        try:
            model = getattr(tf, config["architectures"][0]).from_pretrained(folder, dtype=torch.float32).eval()
        except AssertionError:  # the usual padding is no token of so few
            return None
    ids = torch.tensor(golden["tokens"])
    if "sources" in golden:
        logits = model(input_ids=torch.tensor(golden["sources"]), attention_mask=torch.tensor(golden["mask"]), decoder_input_ids=ids).logits
    elif "images" in golden:
        logits = model(input_features=torch.tensor(golden["images"]).reshape(2, 12, 5).transpose(1, 2), decoder_input_ids=ids).logits
    if name in decoders:
        loss = model(input_ids=ids, labels=ids).loss
    else:
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    embeddings = model.model.decoder.embed_tokens if name == "whisper" else model.get_input_embeddings()
    return float(f"{embeddings.weight.grad.double().norm().item():.7g}")


def write(names):
    tf.logging.set_verbosity_error()
    tf.logging.disable_progress_bar()
    found = {} if not names else json.loads((here / "padding.json").read_text())
    for name in names or [*(n for n in decoders if n != "llama-longrope"), *writers]:
        found[name] = [norm(name, lambda c: c | dict(pad_token_id=PADDING)), norm(name, lambda c: {k: v for k, v in c.items() if k != "pad_token_id"})]
    (here / "padding.json").write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items()) + "\n}\n")


if __name__ == "__main__":
    write(sys.argv[1:])
