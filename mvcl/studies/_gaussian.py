"""Shidani 2024, Section 3.1 and Figure 2: bounds on the information of a model where it is known.

x_αi = c_i + noise, one-dimensional Gaussians: M views of each of K instances. For each objective and each M, small
networks, one a seed, are trained side by side in one run of `mvcl.training`; then fresh batches give the loss, the
paper's bound on the one-vs-rest information, one that holds, and their gaps. The second part holds B = M K fixed.
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax

from mvcl import losses, metrics, models, training
from mvcl._progress import Progress
from mvcl.studies import _claims, _grid, _networks


@dataclasses.dataclass(frozen=True)
class Objective:
    """An objective of the study.

    Attributes:
      label: its name in the table.
      at: temperature -> the library's loss of (M, K, d) embeddings.
      on_grid: the same of inputs and a network, its sums over negatives on a grid.
      bound: (loss, K, M) -> the paper's bound, in nats.
      critic: aggregation of the scores of the bound that holds, see `metrics.group_scores`.
    """

    label: str
    at: Callable[[float], losses.Loss]
    on_grid: losses.Loss
    bound: Callable[[float, int, int], jax.Array]
    critic: Literal["geometric", "arithmetic", "sufficient_statistics"]


OBJECTIVES = {
    "geometric": Objective(
        "Poly-view, geometric",
        lambda t: partial(losses.poly_view, temperature=t, aggregation="geometric"),
        _grid.geometric_on_grid,
        metrics.printed_poly_view_bound,
        "geometric",
    ),
    "arithmetic": Objective(
        "Poly-view, arithmetic",
        lambda t: partial(losses.poly_view, temperature=t, aggregation="arithmetic"),
        _grid.arithmetic_on_grid,
        metrics.printed_poly_view_bound,
        "arithmetic",
    ),
    "sufficient_statistics": Objective(
        "Sufficient statistics",
        lambda t: partial(losses.sufficient_statistics, temperature=t),
        _grid.sufficient_statistics_on_grid,
        metrics.printed_poly_view_bound,
        "sufficient_statistics",
    ),
    "multi_crop": Objective(
        "Multi-Crop (InfoNCE)",
        lambda t: losses.all_pairs(partial(losses.info_nce, temperature=t), pairs="ordered"),
        _grid.multi_crop_on_grid,
        lambda loss, instances, _: metrics.multi_crop_bound(loss, instances),
        "geometric",
    ),
}
# Geometric and Multi-Crop lie on each other; dashes over a wide line show both.
_STYLES = (("#0072b2", "-", 3.0), ("#d55e00", "-", 1.4), ("#00805c", "-", 1.4), ("#e8b500", "--", 1.4))
_MEASURES = ("loss", "bound", "gap", "ratio")
_HOLDING = ("valid", "valid gap", "two sets")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gaussian:
    """The one-dimensional Gaussian study."""

    objectives: tuple[str, ...] = tuple(OBJECTIVES)
    """Which of geometric, arithmetic, sufficient_statistics, multi_crop."""
    views: tuple[int, ...] = (2, 4, 8, 10)
    """M, one training each."""
    instances: int = 1024
    """K, instances of a batch; each has M views."""
    batch: int = 0
    """B, vectors of a batch of the second part, in which K = B / M; 0: no second part."""
    batch_views: tuple[int, ...] = (2, 4, 8, 16, 32)
    """M of the second part, one training each."""
    epochs: int = 200
    """Length of a training."""
    steps_per_epoch: int = 3
    """Batches of an epoch; all are fresh draws from the model."""
    seeds: int = 16
    """Networks, each with data of its own, trained side by side."""
    seed: int = 0
    """Seed of all of them."""
    signal: float = 1.0
    """Standard deviation of what an instance's views share."""
    noise: float = 0.5
    """Standard deviation of what each view adds."""
    temperature: float = 0.1
    """Divisor of the inner products of unit vectors."""
    encoder: models.MLP = dataclasses.field(
        default_factory=lambda: models.MLP(widths=(32, 32), activation="gelu")
    )
    """The network; its input is one number."""
    learning_rate: float = 5e-4
    """AdamW's, constant."""
    weight_decay: float = 5e-3
    """AdamW's, of weights and not of biases."""
    grid: int = 64
    """Nodes of the grid on which training sums over negatives, see `geometric_on_grid`; batches of no more vectors
    than nodes are summed exactly. 0 trains on the losses of `mvcl.losses` themselves always, which takes hours. The
    reported numbers never come from the grid."""
    evaluation_batches: int = 4
    """Fresh batches of each seed behind every reported number."""

    @property
    def variance_ratio(self) -> float:
        """Variance of the signal by that of the noise."""
        return (self.signal / self.noise) ** 2


def config_of(study: Gaussian, name: str, views: int, instances: int) -> training.Config:
    """The training of one objective with M views.

    Args:
      study: the study.
      name: one of `OBJECTIVES`.
      views: M.
      instances: K.
    """
    objective = OBJECTIVES[name]
    exact = objective.at(study.temperature)
    of_inputs: losses.Loss = partial(_grid.of_inputs, objective=exact)
    # With few instances the grid's error is as large as the loss, and a network can be trained to enlarge it.
    if study.grid and views * instances > study.grid:
        of_inputs = partial(
            objective.on_grid,
            temperature=study.temperature,
            nodes=study.grid,
            reach=6 * math.hypot(study.signal, study.noise),
        )
    return training.Config(
        data=_networks.GaussianViews(
            views=views,
            networks=study.seeds,
            instances=study.epochs * study.steps_per_epoch * instances,
            test_instances=study.evaluation_batches * (study.instances // instances) * instances,
            signal=study.signal,
            noise=study.noise,
            seed=study.seed,
        ),
        views=training.Views(k=views),
        encoder=study.encoder,
        head=models.IdentityHead(),
        objective=of_inputs,
        method=_networks.SideBySide(),
        optimizer=training.AdamW(
            learning_rate=study.learning_rate,
            end_learning_rate=study.learning_rate,
            weight_decay=study.weight_decay,
        ),
        # Every draw is seen once: the study's epochs are one pass over them.
        train=training.Train(
            seed=study.seed,
            epochs=1,
            batch_size=instances,
            precision="float32",
            log_every=min(10, study.epochs * study.steps_per_epoch),
            evaluate_every=0,
        ),
        mesh=training.Mesh(data=1),
        checkpoint=training.Checkpoint(keep=1),
        evaluation=_networks.InformationBound(
            objective=exact,
            views=views,
            networks=study.seeds,
            instances=instances,
            chance=float(objective.bound(0.0, instances, views)),
            information=metrics.gaussian_information(views, study.variance_ratio),
            temperature=study.temperature,
            critic=objective.critic,
        ),
    )


def check(study: Gaussian) -> None:
    """Raise a `ValueError` about the first field that cannot work."""
    if unknown := sorted(set(study.objectives) - set(OBJECTIVES)):
        raise ValueError(f"objectives must be among {', '.join(OBJECTIVES)}, got {unknown[0]!r}")
    if not study.objectives or not study.views or min(study.views) < 2:
        raise ValueError(f"objectives and views must not be empty, views >= 2, got {study.views}")
    for field in ("epochs", "steps_per_epoch", "seeds", "evaluation_batches"):
        if getattr(study, field) < 1:
            raise ValueError(f"{field} must be at least 1, got {getattr(study, field)}")
    if study.instances < 2:
        raise ValueError(f"instances must be at least 2, got {study.instances}")
    if study.batch and not all(4 <= 2 * m <= study.batch for m in study.batch_views or (0,)):
        raise ValueError(
            f"batch_views must be from 2 to batch / 2 = {study.batch // 2}, so that a batch has 2 instances, got "
            f"{study.batch_views}"
        )
    if study.batch and study.batch > 2 * study.instances:
        raise ValueError(f"batch must be at most 2 instances = {2 * study.instances}, got {study.batch}")
    if study.encoder.widths[-1] < 2:
        raise ValueError(f"encoder.widths must end with at least 2, got {study.encoder.widths}")
    if study.grid != 0 and study.grid < 8:
        raise ValueError(f"grid must be 0 or at least 8 nodes, got {study.grid}")
    for field in ("signal", "noise", "temperature", "learning_rate"):
        if not getattr(study, field) > 0:
            raise ValueError(f"{field} must be positive, got {getattr(study, field)}")


def numbers(study: Gaussian, folder: Path) -> dict[str, Any]:
    """Train and measure what the folder lacks, one run of `training.train` for each objective and M.

    Args:
      study: the study.
      folder: of the runs, one folder OBJECTIVE_M each; of the second part, OBJECTIVE_M_of_B.

    Returns:
      "config"; "runs" and "of_batch", those of the second part: for each objective and M the instances, the true
      information, mean and standard deviation over seeds (0 of one seed) of `InformationBound`'s measures, in nats, and
      the seconds of the training; and "multi_crop_variance", see `claims.multi_crop_variance`.

    Raises:
      ValueError: a field is out of range, or the folder holds another study.
      training.Diverged: a loss is not finite.
    """
    check(study)
    growing = [(m, study.instances, str(m)) for m in sorted(study.views)]
    fixed = [(m, study.batch // m, f"{m}_of_{study.batch}") for m in sorted(study.batch_views)]
    parts = {"of_batch": fixed if study.batch else [], "runs": growing}  # the shorter part first
    found: dict[str, Any] = {"config": dataclasses.asdict(study)} | {part: [] for part in parts}
    trainings = [
        (part, name, views, instances, folder / f"{name}_{place}")
        for part, of_part in parts.items()
        for name, (views, instances, place) in itertools.product(study.objectives, of_part)
    ]
    progress = Progress(silent=jax.process_index() > 0)
    tracked = progress(trainings, "training", len(trainings), "trainings")
    for part, name, views, instances, workdir in tracked:
        found[part].append(_trained(study, name, views, instances, workdir, progress))
    with progress.during("measuring the variance of Multi-Crop"):
        found["multi_crop_variance"] = _claims.multi_crop_variance(study.seed) if study.batch else []
    return found


def _trained(
    study: Gaussian, name: str, views: int, instances: int, workdir: Path, progress: Progress
) -> dict[str, Any]:
    """One training: what `numbers` reports of it."""
    progress.line(f"{OBJECTIVES[name].label}, M = {views}, K = {instances}")
    table = training.train(config_of(study, name, views, instances), workdir, progress=progress)
    results = table["trained encoder"]
    last = json.loads((workdir / "metrics.jsonl").read_text().splitlines()[-1])
    return {
        "objective": name,
        "views": views,
        "instances": instances,
        "information": metrics.gaussian_information(views, study.variance_ratio),
        **{result.name: [result.value or 0.0, result.deviation or 0.0] for result in results},
        "seconds": last["seconds"],
    }


def table(found: dict[str, Any]) -> str:
    """Markdown: mean and standard deviation over seeds of every measure, one row for each objective and M."""
    lines = [
        "| objective | M | true information | loss | printed bound | gap | truth / bound |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for run in found["runs"]:
        cells = [f"{mean:.4f} ± {deviation:.4f}" for mean, deviation in (run[name] for name in _MEASURES)]
        lines.append(
            f"| {OBJECTIVES[run['objective']].label} | {run['views']} | {run['information']:.4f} | "
            + " | ".join(cells)
            + " |"
        )
    return "\n".join(lines)


def verdict(found: dict[str, Any]) -> str:
    """Markdown: for each objective, how its gap changes from each M to the next and in all.

    A change of no more than two standard errors is level.
    """
    lines = [
        "| objective | gap by M | from each M to the next | from the least M to the largest | falls with M |",
        "| --- | --- | --- | ---: | --- |",
    ]
    for name, objective in OBJECTIVES.items():
        gaps = [run["gap"] for run in _of(found, name)]
        if len(gaps) < 2:
            continue
        seeds = found["config"]["seeds"]
        steps = [_direction(*pair, seeds)[0] for pair in itertools.pairwise(gaps)]
        whole, change, error = _direction(gaps[0], gaps[-1], seeds)
        answer = "yes" if whole == "falls" and "rises" not in steps else "no"
        sequence = ", ".join(f"{mean:.4f}" for mean, _ in gaps)
        lines.append(
            f"| {objective.label} | {sequence} | {', '.join(steps)} | {change:+.4f} ± {error:.4f} | {answer} |"
        )
    return "\n".join(lines)


def _of(found: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The runs of one objective by M."""
    return sorted((run for run in found["runs"] if run["objective"] == name), key=lambda run: run["views"])


def _direction(before: list[float], after: list[float], seeds: int) -> tuple[str, float, float]:
    """falls, rises or level, from mean and deviation over seeds; the change of the mean, and its standard error."""
    change = after[0] - before[0]
    # Networks and data of two values of M share nothing, so their errors add.
    error = math.sqrt((before[1] ** 2 + after[1] ** 2) / seeds)
    return "level" if abs(change) <= 2 * error else "falls" if change < 0 else "rises", change, error


def plot(found: dict[str, Any], file: Path) -> None:
    """Figure 2's four panels against M: information and bounds, gap, ratio, loss; bars are one deviation."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "mvcl", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(12, 3.3), layout="constrained")
        panels = figure.subplots(1, 4)
        truth = dict(sorted((r["views"], r["information"]) for r in found["runs"]))
        panels[0].plot(list(truth), list(truth.values()), "k-", label="true one-vs-rest information")
        for (colour, line, width), (name, objective) in zip(_STYLES, OBJECTIVES.items()):
            if not (mine := _of(found, name)):
                continue
            style: dict[str, Any] = {"marker": "o", "ms": 3, "ls": line, "lw": width, "capsize": 2}
            for panel, measure in zip(panels, ("bound", "gap", "ratio", "loss")):
                means, deviations = zip(*(run[measure] for run in mine))
                x = [run["views"] for run in mine]
                panel.errorbar(x, means, deviations, color=colour, label=objective.label, **style)
        titles = ("Information, printed bounds (nats)", "Gap (nats)", "Truth / bound", "Loss (nats)")
        for panel, title in zip(panels, titles):
            panel.set(title=title, xlabel="views M", xticks=list(truth))
            panel.grid(alpha=0.3)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
        figure.savefig(file, format="svg", metadata={"Date": None})


def dry_run(study: Gaussian) -> str:
    """What the study costs: parameters, and steps with FLOPs and memory from XLA's analysis of the largest."""
    check(study)
    views = max(study.views)
    values = len(study.views) + (len(study.batch_views) if study.batch else 0)
    lines = [
        f"trainings: {len(study.objectives)} objectives x {values} values of M, {study.seeds} networks each",
        f"steps of a training: {study.epochs * study.steps_per_epoch:,}",
    ]
    one_batch = dataclasses.replace(study, epochs=1, steps_per_epoch=1, evaluation_batches=1)
    for name in study.objectives:
        cost = training.estimate(config_of(one_batch, name, views, study.instances))
        if not lines[0].startswith("parameters"):
            lines.insert(0, f"parameters of a network: {cost.encoder_parameters:,}")
        lines.append(
            f"{name} at M = {views}: {cost.flops:.3g} FLOPs a step of all networks, "
            f"{cost.temporary_bytes / 2**20:.0f} MiB of temporaries"
        )
    return "\n".join(lines)
