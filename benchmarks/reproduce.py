"""The papers' comparison at a size that two CPU cores train: one budget, every objective, several seeds.

    python -m benchmarks.reproduce --data cifar10.npz --out runs/reproduce --write docs

Each line trains on the first images of CIFAR-10 for the same epochs at the same batch and learning rate, and measures
k-NN and linear accuracy of the frozen encoder on test images. A trial is one run of `training.train` in a folder under
--out; a second call continues what is unfinished. --write makes reproduction.md, .json and .svg.
"""

import argparse
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mvcl import _files, augment, data, evaluation, losses, methods, models, training
from mvcl.training import AdamW, Config, Train, Views

_XENT = partial(losses.nt_xent, temperature=0.5)
_QUEUE = partial(losses.info_nce, temperature=0.1, in_batch_negatives=False)
_SIMCLR = methods.Simclr()
_MOCO = methods.MocoV2(momentum=0.99, end_momentum=0.99, queue=1024, queue_keys="one")

# name -> (k, objective, method). Temperatures are the papers', for MoCo that of Jeon 2025's code for CIFAR.
LINES: dict[str, tuple[int, losses.Loss, methods.Method]] = {
    "nt_xent": (2, _XENT, _SIMCLR),
    "all_pairs(nt_xent)": (4, losses.all_pairs(_XENT), _SIMCLR),
    "one_vs_rest(nt_xent)": (4, losses.one_vs_rest(_XENT), _SIMCLR),
    "poly_view": (4, partial(losses.poly_view, temperature=0.5), _SIMCLR),
    "sufficient_statistics": (4, partial(losses.sufficient_statistics, temperature=0.5), _SIMCLR),
    "mv_infonce": (4, partial(losses.mv_infonce, temperature=0.5, negatives="all"), _SIMCLR),
    "mv_dhel": (4, partial(losses.mv_dhel, temperature=0.5), _SIMCLR),
    "m3g": (4, partial(losses.m3g, epsilon=0.2), _SIMCLR),
    "moco_v2": (2, losses.cross_pairs(_QUEUE), _MOCO),
    "moco_v2 loss_avg": (8, losses.cross_pairs(_QUEUE), _MOCO),
    "moco_v2 fea_avg": (8, losses.mean_pair(_QUEUE, renormalize=False), _MOCO),
    "moco_v2 dsf": (8, partial(losses.dsf, in_batch_negatives=False), _MOCO),
}
SIDE = 16  # of a view, pixels
# Linear accuracy on CIFAR-10 in per cent that the papers report, for ResNet-18 on all images.
PUBLISHED = {
    "nt_xent": "86.0 (Koromilas 2025, Table II)",
    "all_pairs(nt_xent)": "88.7 (Koromilas 2025, pwe)",
    "one_vs_rest(nt_xent)": "88.2 (Koromilas 2025, avg)",
    "poly_view": "88.0 (Koromilas 2025, PVC)",
    "mv_infonce": "88.8 (Koromilas 2025)",
    "mv_dhel": "89.5 (Koromilas 2025; 87.4 at k = 2)",
    "moco_v2": "88.10 (Jeon 2025, Table 1, 800 epochs)",
    "moco_v2 loss_avg": "88.58 (Jeon 2025, 250 epochs)",
    "moco_v2 fea_avg": "88.02 (Jeon 2025, 250 epochs)",
    "moco_v2 dsf": "91.21 (Jeon 2025, 250 epochs)",
}

# Of rows made at commit 2339cbe, which have no MoCo v2 with two views.
EARLIER_MOCO = """
The rows of MoCo v2 were measured before the benchmark had the methods of Jeon 2025. Their temperature was 0.2. All of
an instance's four keys entered the queue for `loss_avg`, which thus had 256 instances as negatives where the other two
had 1,024. `fea_avg` projected the means on the sphere again, in the queue too, which Algorithm 1 does not. DSF gave all
queued keys the mean concentration of the batch; now each has its own. Nothing follows from the order of these three
rows.
"""


def config_of(name: str, seed: int, path: Path, epochs: float) -> Config:
    """One trial."""
    k, objective, method = LINES[name]
    # Images in [0, 1], as SimCLR's code has them: the recorded numbers were measured so.
    policy = augment.simclr(0.5, image_size=SIDE, blur_probability=0.0, mean=(0.0,), std=(1.0,))
    return Config(
        data=data.Arrays(path=str(path)),
        views=Views(k=k, policy=policy),
        encoder=models.ConvNet(widths=(32, 64, 128)),
        head=models.koromilas_head(),
        objective=objective,
        method=method,
        optimizer=AdamW(learning_rate=2e-3, weight_decay=1e-4, warmup_epochs=0.5),
        train=Train(seed=seed, epochs=epochs, batch_size=128, evaluate_every=0),
        evaluation=evaluation.Classification(labels_per_class=()),
    )


def check_cifar10(splits: Mapping[str, data.Split]) -> None:
    """Raise `ValueError` for anything but CIFAR-10, which the page and the published numbers are about."""
    for name, each in (("train", 5_000), ("test", 1_000)):
        split = splits[name]
        counts = np.bincount(split.labels, minlength=1)
        if split.spec.shapes != ((32, 32, 3),) or len(counts) != 10 or (counts != each).any():
            raise ValueError(
                f"--data must be CIFAR-10, {each:,} {name} images of 32x32x3 in each of 10 classes, got {len(split):,} "
                f"of {split.spec.shapes[0]} in {len(counts)} classes of {counts.min():,} to {counts.max():,}"
            )


def part_of(source: Path, folder: Path, train: int, test: int) -> Path:
    """The first images of both splits of CIFAR-10, decoded once into the folder."""
    splits = data.Arrays(path=str(source)).open()
    check_cifar10(splits)
    path = folder / f"part_{train}_{test}.npz"
    if not path.is_file():
        arrays: dict[str, np.ndarray] = {"class_names": np.asarray(splits["train"].class_names)}
        for name, count in (("train", train), ("test", test)):
            split = splits[name]
            arrays[f"{name}_images"] = split.take(np.arange(min(count, len(split))))[0]
            arrays[f"{name}_labels"] = split.labels[:count]
        with _files.replacing(path) as beside, open(beside, "wb") as file:
            np.savez(file, **arrays)
    return path


def trial(name: str, seed: int, path: Path, epochs: float, out: Path) -> list[dict[str, Any]]:
    """Train one line with one seed and measure it; beside the first, the untrained encoder and the pixels."""
    folder = out / name.replace(" ", "_") / str(seed)
    results = training.train(config_of(name, seed, path, epochs), folder)
    scores = {row: {r.name: r.value for r in found} for row, found in results.items()}
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    log = [line for line in lines if "loss" in line]  # the others are scores
    last = [row for row in log if row["epoch"] > log[-1]["epoch"] - 1]
    row = {
        "line": name,
        "seed": seed,
        "k": LINES[name][0],
        "epochs": epochs,
        "steps": log[-1]["step"],
        "loss": float(np.mean([row["loss"] for row in last])),
        "chance": log[-1].get("chance"),
        "seconds": log[-1]["seconds"],
        **scores["trained encoder"],
    }
    if name != next(iter(LINES)) or seed:
        return [row]
    return [
        {"line": f"pixels, {SIDE}x{SIDE}", "seed": 0, **scores["raw input"]},
        {"line": "untrained encoder", "seed": 0, **scores["untrained encoder"]},
        row,
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """Mean and deviation over seeds, one line an objective."""
    lines = [
        "| objective | k | seeds | k-NN | linear | loss (chance) | published |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for name in dict.fromkeys(row["line"] for row in rows):
        of = [row for row in rows if row["line"] == name]
        cells = []
        for column in ("k-NN", "linear"):
            values = 100 * np.asarray([row[column] for row in of])
            spread = f" ± {values.std(ddof=1):.1f}" if len(values) > 1 else ""
            cells.append(f"{values.mean():.1f}{spread}")
        loss = ""
        if "loss" in of[0]:
            chance = "" if of[0]["chance"] is None else f" ({of[0]['chance']:.3f})"
            loss = f"{np.mean([row['loss'] for row in of]):.3f}{chance}"
        k, published = of[0].get("k", ""), PUBLISHED.get(name, "")
        lines.append(f"| {name} | {k} | {len(of)} | {' | '.join(cells)} | {loss} | {published} |")
    return "\n".join(lines)


def picture(rows: list[dict[str, Any]], file: Path) -> None:
    """Linear and k-NN accuracy of each line, a point a seed."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["line"] for row in rows))
    with rc_context({"svg.hashsalt": "mvcl", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(7, 0.34 * len(names) + 1.1), layout="constrained")
        axes = figure.subplots()
        for column, marker, shift in (("linear", "o", -0.13), ("k-NN", "s", 0.13)):
            places = [names.index(row["line"]) + shift for row in rows]
            axes.scatter([100 * row[column] for row in rows], places, marker=marker, s=18, label=column)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlabel("test accuracy, %")
        axes.grid(axis="x", alpha=0.3)
        axes.legend(loc="lower right")
        figure.savefig(file, metadata={"Date": None})


def page(rows: list[dict[str, Any]], train: int, test: int, epochs: float) -> str:
    """The part of reproduction.md that follows from the rows."""
    minutes = sum(row.get("seconds", 0.0) for row in rows) / 60
    earlier = "" if "moco_v2" in {row["line"] for row in rows} else EARLIER_MOCO
    return f"""# Comparison of the objectives at small scale

Made by `make reproduce-small CIFAR10=cifar10.npz` (`python -m benchmarks.reproduce`): the first {train:,} training and
{test:,} test images of CIFAR-10, views of 16x16 (SimCLR's policy at strength 0.5 without blur), a ConvNet of widths
32, 64 and 128 with BatchNorm, the head of two layers with BatchNorm, AdamW at 2e-3, batch 128, {epochs:g} epochs. Every
row has the same images, epochs, batch size and learning rate, so a row with k views processes k / 2 times the views of
k = 2. The temperature is 0.5, for MoCo 0.1; M3G has ε = 0.2; MoCo v2 has momentum 0.99 and a queue of 1,024 instances,
one row for each. Accuracy in per cent on frozen features of the encoder, mean and standard deviation over seeds.
Training took {minutes:.0f} minutes in total.
{earlier}
{table(rows)}

Published: linear accuracy in the papers, at the k of the row, of ResNet-18 on all of CIFAR-10, in Koromilas 2025 after
200 epochs; compare the order of the rows, not the values.

![accuracy by objective](reproduction.svg)
"""


def write(rows: list[dict[str, Any]], folder: Path, train: int, test: int, epochs: float) -> None:
    """reproduction.md, .json and .svg; the page's part from "## Results" on is written by hand and stays."""
    path = folder / "reproduction.md"
    _, heading, results = (path.read_text() if path.is_file() else "").partition("\n## Results")
    path.write_text(page(rows, train, test, epochs) + heading + results)
    (folder / "reproduction.json").write_text(json.dumps(rows, indent=1) + "\n")
    picture(rows, folder / "reproduction.svg")


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="CIFAR-10 as .npz, as data:arrays reads it")
    parser.add_argument("--out", type=Path, default=Path("runs/reproduce"), help="folder of the trials")
    parser.add_argument("--write", type=Path, help="folder for reproduction.md, .json and .svg")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=5.0)
    parser.add_argument("--train", type=int, default=10_000, help="training images")
    parser.add_argument("--test", type=int, default=2_000, help="test images")
    options = parser.parse_args()
    training.compilation_cache()
    # Runs of other sizes have another folder.
    out = options.out / f"{options.train}_{options.test}_{options.epochs:g}"
    out.mkdir(parents=True, exist_ok=True)
    path = part_of(options.data, out, options.train, options.test)
    rows = []
    for seed in range(options.seeds):
        for number, name in enumerate(LINES, 1):
            print(f"seed {seed}, line {number} of {len(LINES)}: {name}", flush=True)
            rows += trial(name, seed, path, options.epochs, out)
    lines = list(dict.fromkeys(row["line"] for row in rows))
    rows.sort(key=lambda row: (lines.index(row["line"]), row["seed"]))
    print(table(rows))
    if options.write is not None:
        write(rows, options.write, options.train, options.test, options.epochs)


if __name__ == "__main__":
    main()
