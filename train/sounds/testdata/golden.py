"""Writes the config of package sounds' test, and what transformers makes of a sound.

    python3 golden.py (in this directory; needs transformers 5)
"""

import json
import pathlib

import numpy as np
from transformers import WhisperFeatureExtractor

here = pathlib.Path(__file__).parent
p = WhisperFeatureExtractor(feature_size=7, hop_length=320, chunk_length=1, n_fft=400)
p.save_pretrained(here)
i = np.arange(9000, dtype=np.int64)
sound = (((i * i * 37) % 2001 - 1000) / 4000 + np.sin(i * 0.3) / 4).astype(np.float32)
out = p(sound, sampling_rate=16000, return_tensors="np")["input_features"][0].T
(here / "golden.json").write_text(json.dumps({"shape": list(out.shape), "values": [float(f"{x:.7g}") for x in out.flatten()]}))
