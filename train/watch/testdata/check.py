"""Reads testdata/tensorboard with TensorBoard's own reader and compares it with what the Go test wrote.

    pip install tensorboard==2.21.0
    go test ./train/watch -run TensorBoardGolden -update
    python train/watch/testdata/check.py
"""

import math
import pathlib

from tensorboard.backend.event_processing import event_accumulator

folder = pathlib.Path(__file__).parent / "tensorboard"
reader = event_accumulator.EventAccumulator(str(folder))
reader.Reload()

steps = range(1, 7)
want = {
    "loss/train": {n: 2 + 2 / n for n in steps},
    "learning_rate": {n: 1e-3 / n for n in steps},
    "gradient_norm": {n: 1 + 1 / n for n in steps},
    "tokens_per_second": {n: 768 / 0.02 for n in steps},
    "loss/validation": {0: 4.25, 4: 2.75},
}
assert set(reader.Tags()["scalars"]) == set(want), reader.Tags()
for tag, series in want.items():
    got = {e.step: e.value for e in reader.Scalars(tag)}
    assert len(got) == len(reader.Scalars(tag)), f"{tag} has a step twice"
    assert got.keys() == series.keys(), (tag, got)
    for n, value in series.items():
        assert math.isclose(got[n], value, rel_tol=1e-6), (tag, n, got[n], value)
assert reader.FirstEventTimestamp() > 1.7e9

# By itself, the interrupted run has its numbers that are not finite.
alone = event_accumulator.EventAccumulator(str(folder / "events.out.tfevents.1.interrupted"))
alone.Reload()
assert [e.step for e in alone.Scalars("loss/train")] == [1, 2, 3, 4, 5]
assert math.isnan(alone.Scalars("loss/train")[3].value)
assert math.isinf(alone.Scalars("gradient_norm")[3].value)
assert [e.step for e in alone.Scalars("tokens_per_second")] == [1, 2, 3, 4]
print("TensorBoard reads all of it:", {tag: len(series) for tag, series in want.items()})
