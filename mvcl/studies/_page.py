"""The page of the Gaussian study: Markdown from its numbers."""

import json
import math
from pathlib import Path
from typing import Any

from mvcl import _files, metrics
from mvcl.studies import _claims, _gaussian

_CLASSES = ((2, 2), (2, 8), (4, 8), (5, 2), (64, 8), (1024, 8))


def page(found: dict[str, Any], figure: str = "gaussian.svg") -> str:
    """Markdown of the whole study, from `numbers`: what was run, the tables, and what they say of the paper."""
    parts = [_head(found, figure), _gaps(found), _figure_2(found), _holding(found)]
    if found["of_batch"]:
        parts += [_multiplicity(found), _variance(found)]
    return "\n".join([*parts, _differences(found)])


def run(study: _gaussian.Gaussian, folder: Path) -> Path:
    """`numbers`, written as gaussian.json, gaussian.svg and gaussian.md into the folder; the path of the page."""
    found = _gaussian.numbers(study, folder)
    found = json.loads(json.dumps(_rounded(found)))
    _files.write_whole(folder / "gaussian.json", json.dumps(found, indent=1) + "\n")
    _gaussian.plot(found, folder / "gaussian.svg")
    file = folder / "gaussian.md"
    _files.write_whole(file, page(found))
    return file


def _ratio(found: dict[str, Any]) -> float:
    return (found["config"]["signal"] / found["config"]["noise"]) ** 2


def _head(found: dict[str, Any], figure: str) -> str:
    c = found["config"]
    widths = "-".join(str(width) for width in (1, *c["encoder"]["widths"]))
    every = found["runs"] + found["of_batch"]
    tested = c["evaluation_batches"] * c["instances"]
    missing = _missing(found)
    absent = f"\n\nNot trained: {'; '.join(missing)}." if missing else ""
    return f"""# The Gaussian study (Shidani 2024, Section 3.1, Figure 2)

    mvcl train configs/shidani/gaussian.py --seeds {c["seeds"]} --workdir runs/gaussian

writes this page, its figure and gaussian.json, and the folders of its {len(every)} runs of `mvcl.training`. Training
took {sum(run["seconds"] for run in every) / 60:.1f} minutes in all.{absent}

Each instance has M views x = c + noise, c ~ N(0, {c["signal"]:g}²), noise ~ N(0, {c["noise"]:g}²),
K = {c["instances"]} instances per batch. An MLP {widths} with {c["encoder"]["activation"].upper()} embeds each view;
unit vectors, temperature {c["temperature"]:g}. AdamW at {c["learning_rate"]:g}, weight decay {c["weight_decay"]:g},
{c["epochs"]} epochs of {c["steps_per_epoch"]} new batches, {c["seeds"]} seeds, whose networks are trained in one run.
Every number is the library's loss or bound on {tested} new instances per seed, in batches as in training:
mean ± standard deviation over seeds, in nats.

![Information and bounds, gap, truth by bound and loss against the number of views]({figure})

## Figure 2: the printed bounds

log(B - M + 1) - loss (Theorems 2.2 and 2.4), and log K - loss for Multi-Crop (Proposition 2.1). The ratio is the
paper's third panel, true information by bound.

{_gaussian.table(found)}
"""


def _missing(found: dict[str, Any]) -> list[str]:
    """The trainings of the config that the numbers lack."""
    wanted = {"runs": found["config"]["views"], "of_batch": found["config"]["batch_views"]}
    return [
        f"{_gaussian.OBJECTIVES[name].label}, M = {m}" + (" at fixed B" if part == "of_batch" else "")
        for part, views in wanted.items()
        for name in found["config"]["objectives"]
        for m in views
        if found[part] and not any(r["objective"] == name and r["views"] == m for r in found[part])
    ]


def _gaps(found: dict[str, Any]) -> str:
    return f"""The gap is the true one-vs-rest information minus the printed bound. Changes are given with their
standard error; a change of at most two standard errors counts as level.

{_gaussian.verdict(found)}
"""


def _figure_2(found: dict[str, Any]) -> str:
    most = max(found["config"]["views"])
    pair = metrics.gaussian_information(2, _ratio(found))
    growth = metrics.gaussian_information(most, _ratio(found)) - pair
    return f"""## Where this contradicts the paper

The paper's Figure 2 and Section 3.1: the gap of geometric, arithmetic and sufficient statistics falls with M, that of
Multi-Crop rises, and geometric has the smallest. {_order(found)}
The printed losses cannot give the printed order:

- For any fixed network the arithmetic bound is at least the geometric one, because log mean ℓ >= mean log ℓ. So a
  geometric bound above the arithmetic one can only come from better trained networks, not from the bound.
- A term of the geometric mean compares one pair of views, as Multi-Crop's does. In expectation it is bounded by what
  two views share, {pair:.4f} nats for every M, up to the excess of the next section. So its gap is expected to rise
  as I(M) - I(2), {growth:.4f} nats at M = {most}, and Theorem 2.3, whose gap falls with M, cannot hold for it. The mean
  of likelihoods over the other views (arithmetic) and of their embeddings (sufficient statistics) do not have this
  limit.

Two things in the paper could explain the figure; neither can be checked, as its code, its deviations of the model and
its temperature are not published. Algorithm 1's "arithmetic" is +logsumexp of the losses, the logarithm of a harmonic
mean of the likelihoods (`poly_view` with aggregation "harmonic"), which is below the geometric one. And it subtracts
log(k), k the instances, where the mean over the other views is log(M - 1).
"""


def _order(found: dict[str, Any]) -> str:
    """The gaps at the largest M of each objective, in order, as a sentence."""
    last = {run["objective"]: run for run in found["runs"]}
    gaps = sorted(
        (run["gap"][0], _gaussian.OBJECTIVES[name].label, run["views"]) for name, run in last.items()
    )
    return (
        f"Here, from the smallest gap: {', '.join(f'{label} {gap:.4f} (M = {m})' for gap, label, m in gaps)}."
    )


def _holding(found: dict[str, Any]) -> str:
    classes = [
        f"| {k} | {m} | 0.6931 | {printed:.4f} | {valid:.4f} |"
        for (k, m), (printed, valid) in ((km, _claims.two_classes(*km)) for km in _CLASSES)
    ]
    rows = []
    for run in found["runs"]:
        m = run["views"]
        cells = [f"{mean:.4f} ± {deviation:.4f}" for mean, deviation in (run[n] for n in ("bound", "valid"))]
        sets = metrics.gaussian_information(m, _ratio(found), m // 2)
        label = _gaussian.OBJECTIVES[run["objective"]].label
        rows.append(
            f"| {label} | {m} | {run['information']:.4f} | {' | '.join(cells)} | "
            f"{sets:.4f} | {run['two sets'][0]:.4f} ± {run['two sets'][1]:.4f} |"
        )
    return "\n".join(
        [
            """## A bound that holds

The printed theorems are no lower bounds. Their proof takes the M views of another instance for exchangeable negatives,
and they are correlated. Two equally likely classes, every view its class, the information is log 2 for any M:

| K | M | information | printed (Theorem 2.2) | groups contrasted |
| ---: | ---: | ---: | ---: | ---: |""",
            *classes,
            """
`metrics.info_nce_bound` of `metrics.group_scores` contrasts whole groups of views, which are exchangeable between
instances: a lower bound in expectation for any score, K and M, at most log K. Of the same networks, with the
objective's aggregation as score (geometric for Multi-Crop); and between the first half of the views and the second, the
two-set information of Appendix E.1:

| objective | M | I(one; rest) | printed bound | bound that holds | I(half; half) | bound that holds |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |""",
            *rows,
            "",
        ]
    )


def _multiplicity(found: dict[str, Any]) -> str:
    c, ratio = found["config"], _ratio(found)
    b, candidates = c["batch"], tuple(sorted(c["batch_views"]))
    rows, best = [], []
    ours = metrics.best_gaussian_multiplicity(b, ratio, candidates)
    right: dict[str, list[str]] = {"Eq. 154": [], "Eq. 155": [], "ours": []}
    for name, objective in _gaussian.OBJECTIVES.items():
        mine = [run for run in found["of_batch"] if run["objective"] == name]
        if not mine:
            continue
        for run in mine:
            limit = metrics.expected_info_nce(run["instances"], run["information"])
            rows.append(
                f"| {objective.label} | {run['views']} | {run['instances']} | {run['information']:.4f} | "
                f"{run['bound'][0]:.4f} ± {run['bound'][1]:.4f} | {run['valid'][0]:.4f} ± {run['valid'][1]:.4f} | "
                f"{limit:.4f} |"
            )
        valid, printed = (max(mine, key=lambda run: run[of][0])["views"] for of in ("valid", "bound"))
        ahead = f"{valid} ({_lead(mine, c['seeds'])})"
        two = min(mine, key=lambda run: run["views"])
        if two["views"] != 2 or name == "multi_crop":
            best.append(f"| {objective.label} | {ahead} | {printed} | - | - | {ours} |")
            continue
        predicted: dict[str, float] = {
            f"Eq. {e}": metrics.optimal_multiplicity(b, two["loss"][0], e) for e in (154, 155)
        }
        cells = " | ".join(f"{m:.1f}" for m in predicted.values())
        best.append(f"| {objective.label} | {ahead} | {printed} | {cells} | {ours} |")
        for rule, m in {**predicted, "ours": ours}.items():
            if min(candidates, key=lambda candidate: abs(candidate - m)) == valid:
                right[rule].append(objective.label)
    finds = "\n".join(f"- {rule}: {', '.join(labels) or 'none'}" for rule, labels in right.items())
    return "\n".join(
        [
            f"""## The best M at fixed B = M K = {b}

Fewer instances as the views grow, down to K = {b // max(candidates)}. The last column is the expectation of the bound
under the best score for this K and M (`metrics.expected_info_nce`).

| objective | M | K | information | printed bound | bound that holds | its limit |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |""",
            *rows,
            """
The M with the largest measured bound, beside what is predicted: Eqs. 154 and 155 from the measured loss at M = 2
(`metrics.optimal_multiplicity`), and ours, the M with the largest limit (`metrics.best_gaussian_multiplicity`). In
brackets the lead over the next M, in standard errors of the difference; a lead of at most two does not say which is
best:

| objective | best M, bound that holds | largest printed bound | Eq. 154 | Eq. 155 | ours |
| --- | ---: | ---: | ---: | ---: | ---: |""",
            *best,
            f"""
The rules, rounded to the nearest M that was trained, find the best M of the bound that holds of these objectives:

{finds}

With few instances the printed bound rises above the information, so its largest value says nothing about it. At a loss
of a few nats p = e^-loss is small, and Eqs. 154 and 155 are about sqrt(2 B) and 1 + sqrt(B), whatever the data.
""",
        ]
    )


def _lead(runs: list[dict[str, Any]], seeds: int) -> str:
    """How far the largest valid bound is ahead of the next one, in standard errors; "+0.0123" of one seed."""
    first, second = sorted((run["valid"] for run in runs), reverse=True)[:2]
    error = math.hypot(first[1], second[1]) / math.sqrt(seeds)
    lead = first[0] - second[0]
    return f"{lead / error:.1f}" if error else f"+{lead:.4f}"


def _variance(found: dict[str, Any]) -> str:
    measured = found["multi_crop_variance"]
    rows = [f"| {row['views']} | {row['measured']:.3f} | {row['printed']:.3f} |" for row in measured]
    above = [str(row["views"]) for row in measured if row["measured"] > row["printed"]]
    less = f"less than the factor says at M = {', '.join(above)}" if above else "as much as the factor says"
    return "\n".join(
        [
            f"""## Proposition 2.2, measured

Variance of Multi-Crop's loss over batches by that of one pair of views (32 instances, the embedding (cos x, sin x),
temperature 0.5), and Eq. 3's factor. More views lower the variance {less}. The factor's proof counts a third of the
pairs of pairs that share a view, and gives pairs without a common view no covariance, although they share their
instances.

| M | measured | Eq. 3: 2 (2M - 1) / (3 M (M - 1)) |
| ---: | ---: | ---: |""",
            *rows,
            "",
        ]
    )


def _differences(found: dict[str, Any]) -> str:
    c = found["config"]
    return f"""## Differences from the paper

The network, optimiser, K, M and epochs are the paper's, whose runs are 16. Chosen here: both deviations of the model,
the temperature, and an epoch of {c["steps_per_epoch"]} new batches. Training sums over negatives on a grid of
{c["grid"]} inputs (`mvcl/studies/_grid.py`; 5e-5 at most from the library's loss on trained networks), because all
pairs of M K = 10240 vectors take hours on two cores; `--grid 0` trains on the library's losses directly. Batches of at
most {c["grid"]} vectors, as those of the second part, are trained on the library's losses. Measurements always use
them.
"""


def _rounded(value: Any) -> Any:
    """Six digits are more than the spread over seeds justifies."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return value
