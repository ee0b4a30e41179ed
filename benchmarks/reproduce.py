"""The papers' comparison at a size that two CPU cores train: one budget, every objective, several seeds.

    python -m benchmarks.reproduce --data cifar10.npz --out runs/reproduce --write docs

Each line trains on the first images of CIFAR-10 for the same epochs at the same batch and learning rate, and measures
k-NN and linear accuracy of the frozen encoder on test images. A trial is one line of RESULTS in the folder --out; a
second call does only those that are missing. --write makes reproduction.md, .json and .svg.
"""

import argparse
import dataclasses
import itertools
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mvcl import _files, augment, data, evaluation, methods, models, training
from mvcl.training import AdamW, Config, Train, Views

RESULTS = "results.jsonl"
PENALTIES = (1e-2, 1e-3)  # of the linear probe, chosen on a held-out fifth of the training images
_PAIR = methods.PAIR_OBJECTIVES
_OBJECTIVE = methods.OBJECTIVES
_XENT = _PAIR["nt_xent"](temperature=0.5)
_QUEUE = _PAIR["info_nce"](temperature=0.2, in_batch_negatives=False)

# name -> (k, objective, method); temperatures are the papers'.
LINES: dict[str, tuple[int, methods.Objective, methods.Method]] = {
    "nt_xent": (2, _OBJECTIVE["nt_xent"](temperature=0.5), methods.Simclr()),
    "all_pairs(nt_xent)": (4, _OBJECTIVE["all_pairs"](pair=_XENT), methods.Simclr()),
    "one_vs_rest(nt_xent)": (4, _OBJECTIVE["one_vs_rest"](pair=_XENT), methods.Simclr()),
    "poly_view": (4, _OBJECTIVE["poly_view"](temperature=0.5), methods.Simclr()),
    "sufficient_statistics": (4, _OBJECTIVE["sufficient_statistics"](temperature=0.5), methods.Simclr()),
    "mv_infonce": (4, _OBJECTIVE["mv_infonce"](temperature=0.5, negatives="all"), methods.Simclr()),
    "mv_dhel": (4, _OBJECTIVE["mv_dhel"](temperature=0.5), methods.Simclr()),
    "m3g": (4, _OBJECTIVE["m3g"](epsilon=0.2), methods.Simclr()),
    "moco_v2 loss_avg": (8, _OBJECTIVE["cross_pairs"](pair=_QUEUE), methods.MocoV2(momentum=0.99)),
    "moco_v2 fea_avg": (8, _OBJECTIVE["mean_pair"](pair=_QUEUE), methods.MocoV2(momentum=0.99)),
    "moco_v2 dsf": (8, _OBJECTIVE["dsf"](in_batch_negatives=False), methods.MocoV2(momentum=0.99)),
}
# Linear accuracy on CIFAR-10 in per cent that the papers report, for ResNet-18 after 200 epochs of all images.
PUBLISHED = {
    "mv_dhel": "89.5 (Koromilas 2025, k = 4; 87.4 at k = 2)",
    "nt_xent": "86.0 (Koromilas 2025, best baseline at k = 2)",
    "all_pairs(nt_xent)": "at most 88.7 (Koromilas 2025, best baseline at k = 4)",
    "one_vs_rest(nt_xent)": "at most 88.7 (the same)",
    "poly_view": "at most 88.7 (the same)",
}


def config_of(name: str, seed: int, path: Path, epochs: float) -> Config:
    """One trial."""
    k, objective, method = LINES[name]
    if isinstance(method, methods.MocoV2):
        method = dataclasses.replace(method, end_momentum=0.99, queue=1024)
    return Config(
        data=data.Arrays(path=str(path)),
        views=Views(k=k, policy=augment.simclr(strength=0.5, image_size=16, blur_probability=0.0)),
        encoder=models.ConvNet(widths=(32, 64, 128)),
        head=models.HEADS["koromilas"](),
        objective=objective,
        method=method,
        optimizer=AdamW(learning_rate=2e-3, weight_decay=1e-4, warmup_epochs=0.5),
        train=Train(seed=seed, epochs=epochs, batch_size=128),
    )


def part_of(source: Path, folder: Path, train: int, test: int) -> Path:
    """The first images of both splits, decoded once into the folder."""
    path = folder / f"part_{train}_{test}.npz"
    if not path.is_file():
        splits = data.Arrays(path=str(source)).open()
        arrays: dict[str, np.ndarray] = {"class_names": np.asarray(splits["train"].class_names)}
        for name, count in (("train", train), ("test", test)):
            split = splits[name]
            arrays[f"{name}_images"] = split.take(np.arange(min(count, len(split))))[0]
            arrays[f"{name}_labels"] = split.labels[:count]
        with _files.replacing(path) as beside, open(beside, "wb") as file:
            np.savez(file, **arrays)
    return path


def measured(run: training.Run, features: Mapping[str, np.ndarray]) -> dict[str, float]:
    """k-NN and linear accuracy on the test images."""
    train, test = run.splits["train"], run.splits["test"]
    scored = run.config.evaluation.score(features, run.splits)
    assert scored is not None
    linear, _ = evaluation.linear_probe(
        features["train"],
        train.labels,
        features["test"],
        test.labels,
        num_classes=len(train.class_names),
        penalties=PENALTIES,
    )
    return {"k-NN": scored[1], "linear": linear}


def trial(name: str, seed: int, path: Path, epochs: float) -> dict[str, Any]:
    """Train one line with one seed, and measure it."""
    config = config_of(name, seed, path, epochs)
    run = training.prepare(config)
    program, started = run.program, time.monotonic()
    stream = data.to_devices(
        data.batches(run.splits["train"], batch_size=config.examples, seed=seed), program.batch_sharding
    )
    state, losses = program.init(), []
    for batch in itertools.islice(stream, program.steps):
        state, values = program.step(state, batch)
        losses.append(values["loss"])
    last = float(np.mean(losses[-10:]))
    trained = time.monotonic() - started
    scores = measured(run, training.encode(run, state)[0])
    return {
        "line": name,
        "seed": seed,
        "k": config.views.k,
        "epochs": epochs,
        "steps": program.steps,
        "loss": last,
        # It is the same for every seed, and takes as long to compile as a step.
        "chance": float(program.chance()) if program.chance and seed == 0 else None,
        "seconds": trained,
        **scores,
    }


def baselines(path: Path, epochs: float) -> list[dict[str, Any]]:
    """The untrained encoder and the pixels."""
    run = training.prepare(config_of("nt_xent", 0, path, epochs))
    raw = {
        name: run.splits[name].take(np.arange(len(run.splits[name])))[0].reshape(len(run.splits[name]), -1)
        / 255.0
        for name in ("train", "test")
    }
    fresh = training.encode(run, run.program.init())[0]
    return [
        {"line": "untrained encoder", "seed": 0, "epochs": epochs, **measured(run, fresh)},
        {"line": "pixels", "seed": 0, "epochs": epochs, **measured(run, raw)},
    ]


def done(folder: Path) -> list[dict[str, Any]]:
    """What was finished before."""
    path = folder / RESULTS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


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
            loss = f"{np.mean([row['loss'] for row in of]):.3f} ({of[0]['chance']:.3f})"
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


def write(rows: list[dict[str, Any]], folder: Path, train: int, test: int, epochs: float) -> None:
    """reproduction.md, .json and .svg."""
    minutes = sum(row.get("seconds", 0.0) for row in rows) / 60
    text = f"""# The papers' comparison, small

Made by `make reproduce-small CIFAR10=cifar10.npz` (`python -m benchmarks.reproduce`): the first {train:,} training and
{test:,} test images of CIFAR-10, views of 16x16 (SimCLR's policy at strength 0.5 without blur), a ConvNet of widths
32, 64 and 128 with BatchNorm, the head of two layers with BatchNorm, AdamW at 2e-3, batch 128, {epochs:g} epochs. Every
line has the same images, epochs, batch and learning rate; a line of k views therefore sees k / 2 times the views of
k = 2. The temperature is 0.5, for MoCo 0.2; M3G has ε = 0.2; MoCo v2 has momentum 0.99 and a queue of 1,024. Accuracy
in per cent on frozen features of the encoder, mean and standard deviation over seeds. Training took {minutes:.0f}
minutes in all.

{table(rows)}

Published: linear accuracy in the papers, ResNet-18 on all of CIFAR-10 for 200 epochs; it stands here for the order of
the lines, not for their height.

![accuracy by objective](reproduction.svg)
"""
    page = folder / "reproduction.md"
    _, heading, said = (page.read_text() if page.is_file() else "").partition("\n## What came out")
    page.write_text(text + heading + said)  # what was written by hand stays
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
    options.out.mkdir(parents=True, exist_ok=True)
    path = part_of(options.data, options.out, options.train, options.test)
    rows = done(options.out)
    have = {(row["line"], row["seed"]) for row in rows if row["epochs"] == options.epochs}
    with open(options.out / RESULTS, "a", buffering=1) as file:

        def keep(row: dict[str, Any]) -> None:
            rows.append(row)
            file.write(json.dumps(row) + "\n")

        if ("pixels", 0) not in have:
            for row in baselines(path, options.epochs):
                keep(row)
        wanted = [(n, s) for s in range(options.seeds) for n in LINES if (n, s) not in have]
        started = time.monotonic()
        for i, (name, seed) in enumerate(wanted):
            row = trial(name, seed, path, options.epochs)
            keep(row)
            left = (time.monotonic() - started) / (i + 1) * (len(wanted) - i - 1) / 60
            print(
                f"{i + 1}/{len(wanted)}  {name}, seed {seed}: k-NN {row['k-NN']:.3f}, linear {row['linear']:.3f}, "
                f"{row['seconds']:.0f} s; {left:.0f} min left",
                flush=True,
            )
    order = {name: i for i, name in enumerate(["pixels", "untrained encoder", *LINES])}
    rows = sorted(
        (row for row in rows if row["epochs"] == options.epochs), key=lambda r: (order[r["line"]], r["seed"])
    )
    print(table(rows))
    if options.write is not None:
        write(rows, options.write, options.train, options.test, options.epochs)


if __name__ == "__main__":
    main()
