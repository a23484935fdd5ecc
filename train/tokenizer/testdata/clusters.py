"""Writes clusters.json: texts of marks, joiners, pictures and new characters, and what Python's tokenizers makes of them.

    python3 clusters.py    (in this directory; needs tokenizers 0.23.3, whose characters are those of Unicode 17)

The tokenizer is that of huggingface/precompiled.json, whose normaliser replaces short clusters as a whole.
"""

import json
import pathlib
import random

from tokenizers import Tokenizer

from huggingface import in_bytes

here = pathlib.Path(__file__).parent
first = ["e", "A", "o", "\u00a8", "\u00b4", "\u00bd", "\u2122", "\u203c", "\u2194", "\u2190", "\u00a9", "\u2764", "\U0001f600", "\ufb01", "\u2460"]
behind = ["\u0301", "\u0308", "\u0338", "\u0345", "\u0483", "\u0591", "\u0897", "\u1aeb", "\u1ac7", "\u1038", "\u102b", "\u0e33", "\u200d", "\u200c",
          "\U00010d69", "\U0001e5ee", "\U0001f3fd", "\u0600", "\u06dd", "\U000111c2", "\U00011f02", "\r", "\n", "\u00ad"]


def main():
    t = Tokenizer.from_str(json.dumps(json.loads((here / "huggingface" / "precompiled.json").read_text())["tokenizer"]))
    r, cases = random.Random(1), []
    while len(cases) < 300:
        text = "".join(r.choice(behind if r.random() < .6 else first) for _ in range(r.randint(2, 7)))
        e = t.encode(text, add_special_tokens=False)
        cases.append(dict(text=text, ids=e.ids, offsets=in_bytes(text, e.offsets)))
    (here / "clusters.json").write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
