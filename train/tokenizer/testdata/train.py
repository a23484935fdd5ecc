"""Writes train.json: the merges that tokenizers' BpeTrainer learns from a text, which TrainGPT2 is to learn as well.

    python3 train.py      (in this directory; needs tokenizers)
"""

import json
import random

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

random.seed(1)
words = "the of and theory there other others mother banana bananas ana nana aaaa aaaaaaa 1234 2345 don't won't we'll größe 你好 👋🏽 == != \t\t".split(" ")
text = ""
for _ in range(3000):
    text += random.choice(words) + random.choice([" ", " ", " ", "  ", "\n", ", ", ". "])

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
trainer = trainers.BpeTrainer(vocab_size=330, min_frequency=2, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
tokenizer.train_from_iterator([text], trainer)
merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]]
json.dump(dict(text=text, size=330, merges=merges), open("train.json", "w"), ensure_ascii=False, indent=0)
