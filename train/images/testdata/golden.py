"""Writes the configs of package images' tests, a picture, and what transformers makes of it with Pillow.

    python3 golden.py (in this directory; needs transformers 5 and Pillow 12 or older:
    13 makes columns before rows where that is less work)
"""

import json
import pathlib

import numpy as np
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

here = pathlib.Path(__file__).parent
rng = np.random.default_rng(5)
pixels = rng.integers(0, 256, (11, 17, 3), dtype=np.uint8)
pixels[2:6, 3:12] = 250  # so that overshoots are cut
processors = {
    "clip": CLIPImageProcessorPil(size={"shortest_edge": 7}, crop_size={"height": 6, "width": 5}),
    "clip-larger": CLIPImageProcessorPil(size={"shortest_edge": 13}, crop_size={"height": 9, "width": 10}, resample=1),
    "clip-padded": CLIPImageProcessorPil(size={"shortest_edge": 7}, crop_size={"height": 12, "width": 8}),
    "siglip": SiglipImageProcessorPil(size={"height": 5, "width": 9}),
    "vit": ViTImageProcessorPil(size={"height": 8, "width": 6}, resample=2),
}
golden = {"height": 11, "width": 17, "pixels": pixels.flatten().tolist(), "processed": {}}
for name, p in processors.items():
    (here / name).mkdir(exist_ok=True)
    p.save_pretrained(here / name)
    out = p(Image.fromarray(pixels), return_tensors="np")["pixel_values"]
    golden["processed"][name] = {"shape": list(out.shape), "values": [float(f"{x:.8g}") for x in out.flatten()]}
(here / "golden.json").write_text(json.dumps(golden))
