"""Shidani 2024, Section 3.1 and Figure 2: what objectives prove about a model whose information is known.

x_αi = c_i + noise, one-dimensional Gaussians: M views of each of K instances. One small network a seed is
trained with each objective at each M, all seeds under one `vmap`; then fresh batches give the loss, the bound on
the one-vs-rest information that it proves, and the gap between the two.
"""

import dataclasses
import itertools
import json
import math
import runpy
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.scipy.special import logsumexp

from mvcl import _numerics, losses, metrics, models

OBJECTIVES = {
    "geometric": "Poly-view, geometric",
    "arithmetic": "Poly-view, arithmetic",
    "sufficient_statistics": "Sufficient statistics",
    "multi_crop": "Multi-Crop (InfoNCE)",
}
# Geometric and Multi-Crop lie on each other; dashes over a wide line show both.
_STYLES = (("#0072b2", "-", 3.0), ("#d55e00", "-", 1.4), ("#00805c", "-", 1.4), ("#e8b500", "--", 1.4))
_TINY = 1e-30

Embed = Callable[[jax.Array], jax.Array]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gaussian:
    """The one-dimensional Gaussian study."""

    objectives: tuple[str, ...] = tuple(OBJECTIVES)
    """Which of geometric, arithmetic, sufficient_statistics, multi_crop."""
    views: tuple[int, ...] = (2, 4, 8, 10)
    """M, one training each."""
    instances: int = 1024
    """K, instances of a batch; each has M views."""
    epochs: int = 200
    """Length of a training."""
    steps_per_epoch: int = 3
    """Batches of an epoch; all are fresh draws from the model."""
    seeds: int = 16
    """Networks and data trained together."""
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
    """Nodes of the grid on which training sums over negatives, see `through_grid`; 0 trains on the losses of
    `mvcl.losses` themselves, which takes hours. The reported numbers never come from the grid."""
    evaluation_batches: int = 4
    """Fresh batches of each seed behind every reported number."""

    @property
    def variance_ratio(self) -> float:
        """Variance of the signal by that of the noise."""
        return (self.signal / self.noise) ** 2


def objective_loss(name: str, temperature: float) -> Callable[[jax.Array], jax.Array]:
    """The library's loss of (M, K, d) embeddings behind a name of `OBJECTIVES`."""
    if name == "geometric":
        return partial(losses.poly_view, temperature=temperature, aggregation="geometric")
    if name == "arithmetic":
        return partial(losses.poly_view, temperature=temperature, aggregation="arithmetic")
    if name == "sufficient_statistics":
        return partial(losses.sufficient_statistics, temperature=temperature)
    if name == "multi_crop":
        return losses.all_pairs(partial(losses.info_nce, temperature=temperature), pairs="ordered")
    raise ValueError(f"objectives must be among {', '.join(OBJECTIVES)}, got {name!r}")


def through_grid(
    name: str, embed: Embed, x: jax.Array, *, temperature: float, nodes: int, reach: float
) -> jax.Array:
    """`objective_loss` of scalar inputs, its sums over negatives taken on a grid of inputs.

    An anchor's sum over negatives, E(x) = Σ_j exp(<f(x), f(x_j)> / temperature), is a smooth function of one
    number, and so are every term in x_j and the embedding f. All are interpolated by cubic polynomials through
    four nodes, whose weights do not depend on the parameters: E at the nodes is one (nodes, nodes) matrix of
    exponentials by the weights summed over the batch (for sufficient statistics (nodes, M K), whose negatives
    are no function of one number). What an anchor's own instance adds is summed term by term. Cost
    O(M K nodes) and not O(M² K²); the error falls with the fourth power of the distance of nodes.

    Args:
      name: one of `OBJECTIVES`.
      embed: (m,) numbers to (m, d) embeddings.
      x: (M, K) inputs, beyond +-`reach` as if there.
      temperature: positive divisor of the inner products of unit vectors.
      nodes: of the grid, at least 4.
      reach: the grid spans [-reach, reach].

    Returns:
      Scalar.
    """
    k, n = x.shape
    scale = temperature**-0.5
    at_nodes = scale * _numerics.unit(embed(jnp.linspace(-reach, reach, nodes)))
    weights = _cubic_weights(x.reshape(-1), nodes, reach)  # (k n, nodes)
    z = (weights @ at_nodes).reshape(k, n, -1)
    top = 1 / temperature  # the largest inner product there is
    off_diagonal = ~np.eye(k, dtype=bool)

    def total(energy: jax.Array) -> jax.Array:
        """Sums at the nodes (nodes, c), to their logarithms at the batch's inputs (k, n, c)."""
        return (weights @ jnp.log(jnp.maximum(energy, _TINY))).reshape(k, n, -1) + top

    def without(every: jax.Array, own: jax.Array) -> jax.Array:
        """log(e^every - Σ_γ e^own): the negatives without the anchor's own instance."""
        share = jnp.exp(logsumexp(own, axis=0) - every)
        return every + jnp.log1p(-jnp.minimum(share, 1 - 1e-6))

    if name == "sufficient_statistics":
        q = scale * _numerics.unit(z.sum(0)[None] - z)
        energy = jnp.exp(at_nodes @ q.reshape(k * n, -1).T - top).sum(1, keepdims=True)
        own = jnp.einsum("aid,gid->gai", z, q)
        positive = jnp.sum(z * q, axis=-1)  # (k, n)
        return jnp.mean(jnp.logaddexp(positive, without(total(energy)[..., 0], own)) - positive)
    kernel = jnp.exp(at_nodes @ at_nodes.T - top)
    same = jnp.einsum("aid,bid->abi", z, z)
    if name == "multi_crop":
        crowd = weights.reshape(k, n, nodes).sum(1)  # (k, nodes)
        every = jnp.moveaxis(total(kernel @ crowd.T), -1, 1)  # (k anchors, k views, n)
        terms = jnp.mean(every - same, axis=-1)
        return jnp.sum(jnp.where(off_diagonal, terms, 0)) / (k * (k - 1))
    every = total(kernel @ weights.sum(0)[:, None])[..., 0]
    negative = without(every, same)  # (k, n): by β
    log_likelihood = same - jnp.logaddexp(same, negative[None])  # [α, β, i]
    if name == "geometric":
        return -jnp.sum(jnp.where(off_diagonal[..., None], log_likelihood, 0)) / (k * (k - 1) * n)
    mean = logsumexp(log_likelihood, axis=1, where=off_diagonal[..., None]) - math.log(k - 1)
    return -jnp.mean(mean)


def _cubic_weights(x: jax.Array, nodes: int, reach: float) -> jax.Array:
    """(m, nodes): row j interpolates at x[j] by the cubic through the four nodes around it."""
    place = (jnp.clip(x, -reach, reach) + reach) * ((nodes - 1) / (2 * reach))
    # Within a cell of the border the outer node is missing; no batch's draws come there.
    place = jnp.clip(place, 1.0, nodes - 2.0)
    t = jnp.abs(place[:, None] - jnp.arange(nodes, dtype=x.dtype)[None])
    near = (1 - t * t) * (2 - t) / 2
    far = (1 - t) * (2 - t) * (3 - t) / 6
    return jnp.where(t < 1, near, jnp.where(t < 2, far, 0))


def _init(config: Gaussian, key: jax.Array) -> Any:
    return nnx.state(config.encoder.build((1,), dtype=jnp.float32, rngs=nnx.Rngs(key)), nnx.Param)


def _embed(config: Gaussian) -> Callable[[Any, jax.Array], jax.Array]:
    """(parameters, (m,) inputs) -> (m, d)."""
    graph, _ = nnx.split(config.encoder.build((1,), dtype=jnp.float32, rngs=nnx.Rngs(0)))
    return lambda params, x: nnx.merge(graph, params)(x[:, None])


def _draw(config: Gaussian, views: int, key: jax.Array) -> jax.Array:
    """(M, K) inputs."""
    shared, own = jax.random.split(key)
    c = config.signal * jax.random.normal(shared, (1, config.instances))
    return c + config.noise * jax.random.normal(own, (views, config.instances))


def _keys(config: Gaussian, what: int, views: int) -> jax.Array:
    """(seeds,) keys. All objectives start from the same networks and see the same batches."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(config.seed), what), views)
    return jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(config.seeds))


def _optimizer(config: Gaussian) -> optax.GradientTransformation:
    def mask(tree: Any) -> Any:
        return jax.tree.map(lambda a: a.ndim > 1, tree)

    return optax.adamw(config.learning_rate, weight_decay=config.weight_decay, mask=mask)


def _step(config: Gaussian, name: str, views: int) -> Callable[..., tuple[Any, Any, jax.Array]]:
    """(params, optimiser state, key) -> the next two and the loss, of one seed."""
    embed, rule, exact = _embed(config), _optimizer(config), objective_loss(name, config.temperature)
    reach = 6 * math.hypot(config.signal, config.noise)

    def loss(params: Any, x: jax.Array) -> jax.Array:
        if config.grid:
            return through_grid(
                name,
                partial(embed, params),
                x,
                temperature=config.temperature,
                nodes=config.grid,
                reach=reach,
            )
        return exact(embed(params, x.reshape(-1)).reshape(*x.shape, -1))

    def step(params: Any, opt: Any, key: jax.Array) -> tuple[Any, Any, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(params, _draw(config, views, key))
        updates, opt = rule.update(gradient, opt, params)
        return optax.apply_updates(params, updates), opt, value

    return step


def _train(config: Gaussian, name: str, views: int) -> tuple[Any, jax.Array]:
    """Parameters of every seed, and (epochs, seeds) mean losses."""
    step, rule = _step(config, name, views), _optimizer(config)

    @jax.jit
    def training(keys: jax.Array, batches: jax.Array) -> tuple[Any, jax.Array]:
        params = jax.vmap(partial(_init, config))(keys)
        opt = jax.vmap(rule.init)(params)

        def one(carry: Any, number: jax.Array) -> tuple[Any, jax.Array]:
            key = jax.vmap(lambda k: jax.random.fold_in(k, number))(batches)
            params, opt, value = jax.vmap(step)(*carry, key)
            return (params, opt), value

        numbers = jnp.arange(config.epochs * config.steps_per_epoch)
        (params, _), values = jax.lax.scan(one, (params, opt), numbers)
        return params, values.reshape(config.epochs, -1, config.seeds).mean(1)

    return training(_keys(config, 0, views), _keys(config, 1, views))


def _measure(config: Gaussian, name: str, views: int, params: Any) -> jax.Array:
    """(seeds, batches) losses of fresh batches, by the library's own loss."""
    embed, exact = _embed(config), objective_loss(name, config.temperature)

    def one(params: Any, key: jax.Array) -> jax.Array:
        x = _draw(config, views, key)
        return exact(embed(params, x.reshape(-1)).reshape(*x.shape, -1))

    @jax.jit
    def measuring(params: Any, keys: jax.Array) -> jax.Array:
        numbers = jnp.arange(config.evaluation_batches)

        def of_seed(given: Any) -> jax.Array:
            params, key = given
            return jax.lax.map(lambda i: one(params, jax.random.fold_in(key, i)), numbers)

        return jax.lax.map(of_seed, (params, keys))

    return measuring(params, _keys(config, 2, views))


def _check(config: Gaussian) -> None:
    for name in config.objectives:
        objective_loss(name, config.temperature)
    if not config.objectives or not config.views or min(config.views) < 2:
        raise ValueError(f"objectives and views must not be empty, views >= 2, got {config.views}")
    for field in ("epochs", "steps_per_epoch", "seeds", "evaluation_batches"):
        if getattr(config, field) < 1:
            raise ValueError(f"{field} must be at least 1, got {getattr(config, field)}")
    if config.instances < 2:
        raise ValueError(f"instances must be at least 2, got {config.instances}")
    if config.grid != 0 and config.grid < 8:
        raise ValueError(f"grid must be 0 or at least 8 nodes, got {config.grid}")
    for field in ("signal", "noise", "temperature", "learning_rate"):
        if not getattr(config, field) > 0:
            raise ValueError(f"{field} must be positive, got {getattr(config, field)}")


def numbers(config: Gaussian, report: Callable[[str], None] = print) -> dict[str, Any]:
    """Train and measure everything.

    Args:
      config: the study.
      report: called with a line after each training.

    Returns:
      "config", "seconds", "cpu_seconds", and "runs": for each objective and M the true information, and loss, bound,
      gap and ratio (bound by truth) of every seed, in nats, and the mean training loss of every epoch.

    Raises:
      ValueError: a field is out of range, or a loss is not finite.
    """
    _check(config)
    began, worked = time.perf_counter(), time.process_time()

    def one(job: tuple[int, str]) -> dict[str, Any]:
        views, name = job
        start = time.perf_counter()
        params, curve = _train(config, name, views)
        # The seeds' batches have been averaged; what is left is a network's own spread.
        loss = np.asarray(_measure(config, name, views, params), np.float64).mean(1)
        if not np.isfinite(loss).all():
            raise ValueError(f"the loss of {name} at M = {views} is not finite: {loss}")
        if name == "multi_crop":
            bound = np.asarray(metrics.multi_crop_bound(loss, config.instances), np.float64)
        else:
            bound = np.asarray(metrics.poly_view_bound(loss, config.instances, views), np.float64)
        truth = metrics.gaussian_information(views, config.variance_ratio)
        seconds = time.perf_counter() - start
        report(
            f"M = {views:2d}  {name:21s}  truth {truth:.4f}  bound {bound.mean():.4f}  "
            f"gap {truth - bound.mean():+.4f}  {seconds:.1f} s"
        )
        return {
            "objective": name,
            "views": views,
            "information": truth,
            "loss": loss.tolist(),
            "bound": bound.tolist(),
            "gap": (truth - bound).tolist(),
            "ratio": (bound / truth).tolist(),
            "training_loss": np.asarray(curve, np.float64).mean(1).tolist(),
            "seconds": seconds,
        }

    # XLA's loops over such small arrays keep one core busy; two trainings at a time keep two.
    jobs = [(views, name) for views in sorted(config.views, reverse=True) for name in config.objectives]
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(one, jobs))
    runs.sort(key=lambda r: (config.objectives.index(r["objective"]), r["views"]))
    return {
        "config": dataclasses.asdict(config),
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - worked,
        "runs": runs,
    }


def table(found: dict[str, Any]) -> str:
    """Markdown: mean and standard deviation over seeds of every measure, one row for each objective and M."""
    lines = [
        "| objective | M | true information | loss | bound | gap | bound / truth |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for run in found["runs"]:
        cells = [_mean_and_deviation(run[name]) for name in ("loss", "bound", "gap", "ratio")]
        lines.append(
            f"| {OBJECTIVES[run['objective']]} | {run['views']} | {run['information']:.4f} | "
            + " | ".join(cells)
            + " |"
        )
    return "\n".join(lines)


def _mean_and_deviation(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.4f}"
    return f"{np.mean(values):.4f} ± {np.std(values, ddof=1):.4f}"


def verdict(found: dict[str, Any]) -> str:
    """Markdown: for each objective, how its gap changes from each M to the next and in all.

    A change of no more than two standard errors is level.
    """
    lines = [
        "| objective | gap by M | from each M to the next | from the least M to the largest | falls with M |",
        "| --- | --- | --- | ---: | --- |",
    ]
    for name, label in OBJECTIVES.items():
        mine = sorted((r for r in found["runs"] if r["objective"] == name), key=lambda r: r["views"])
        if len(mine) < 2:
            continue
        gaps = [np.asarray(r["gap"]) for r in mine]
        steps = [_direction(*pair)[0] for pair in itertools.pairwise(gaps)]
        whole, change, error = _direction(gaps[0], gaps[-1])
        answer = "yes" if whole == "falls" and "rises" not in steps else "no"
        sequence = ", ".join(f"{gap.mean():.4f}" for gap in gaps)
        lines.append(
            f"| {label} | {sequence} | {', '.join(steps)} | {change:+.4f} ± {error:.4f} | {answer} |"
        )
    return "\n".join(lines)


def _direction(before: np.ndarray, after: np.ndarray) -> tuple[str, float, float]:
    """falls, rises or level; the change of the mean over seeds, and its standard error."""
    change = float(after.mean() - before.mean())
    # Networks and data of two values of M share nothing, so their errors add.
    error = math.sqrt(sum(g.var(ddof=1) / len(g) for g in (before, after))) if len(before) > 1 else 0.0
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
        for (colour, line, width), (name, label) in zip(_STYLES, OBJECTIVES.items()):
            mine = sorted((r for r in found["runs"] if r["objective"] == name), key=lambda r: r["views"])
            if not mine:
                continue
            x = [r["views"] for r in mine]
            for panel, measure in zip(panels, ("bound", "gap", "ratio", "loss")):
                y = [np.mean(r[measure]) for r in mine]
                spread = [np.std(r[measure], ddof=1) if len(r[measure]) > 1 else 0.0 for r in mine]
                panel.errorbar(
                    x, y, spread, marker="o", ms=3, ls=line, lw=width, capsize=2, color=colour, label=label
                )
        titles = ("Information and its bounds (nats)", "Gap (nats)", "Bound / truth", "Loss (nats)")
        for panel, title in zip(panels, titles):
            panel.set(title=title, xlabel="views M", xticks=list(truth))
            panel.grid(alpha=0.3)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
        figure.savefig(file, format="svg", metadata={"Date": None})


def page(found: dict[str, Any], figure: str = "gaussian.svg") -> str:
    """Markdown of the whole study: what was run, the figure, the table, and whether the gaps fall with M."""
    c = found["config"]
    pairwise = metrics.gaussian_information(2, (c["signal"] / c["noise"]) ** 2)
    widths = "-".join(str(width) for width in (1, *c["encoder"]["widths"]))
    ceiling, most = f"{pairwise:.4f}", max(c["views"])
    growth = f"{metrics.gaussian_information(most, (c['signal'] / c['noise']) ** 2) - pairwise:.4f}"
    return f"""# The Gaussian study (Shidani 2024, Figure 2)

    mvcl train configs/shidani/gaussian.py --workdir docs

writes this page, its figure and gaussian.json; {found["cpu_seconds"] / 60:.1f} minutes of CPU time, with two
trainings at a time; {found["seconds"] / 60:.1f} minutes on the clock of a machine that other work shared.

Each instance has M views x = c + noise, c ~ N(0, {c["signal"]:g}²), noise ~ N(0, {c["noise"]:g}²), K = {c["instances"]}
instances a batch. An MLP {widths} with {c["encoder"]["activation"].upper()} embeds each view; unit vectors, temperature
{c["temperature"]:g}. AdamW at {c["learning_rate"]:g}, weight decay {c["weight_decay"]:g}, {c["epochs"]} epochs of
{c["steps_per_epoch"]} fresh batches, {c["seeds"]} seeds under one `vmap`. Every number below is the library's own loss
on {c["evaluation_batches"]} fresh batches a seed: mean ± standard deviation over seeds, in nats.

![Information and bounds, gap, ratio and loss against the number of views]({figure})

{table(found)}

## Does the gap fall with M?

Gap: true one-vs-rest information minus the bound. Changes are given with their standard error, and one of no more than
two is level.

{verdict(found)}

Shidani 2024, Theorem 2.3, says that the gap of the poly-view bounds falls with M. Two things act on it here. What there
is to know grows with M, from {ceiling} nats. And a likelihood of one pair of views, in the mean of its logarithm over
pairs (geometric, Multi-Crop), is the InfoNCE bound on what two views share, {ceiling} nats whatever M is: such a gap is
expected to grow as I(M) - I(2), {growth} nats at M = {most}. The mean of likelihoods over the other views (arithmetic),
and of their embeddings (sufficient statistics), are not held to that.

## What is ours and not the paper's

The network, optimiser, K, M, epochs and seeds are the paper's. Chosen here: both deviations of the model, the
temperature, and that an epoch is {c["steps_per_epoch"]} batches of fresh draws. Training sums over negatives
on a grid of {c["grid"]} inputs (`through_grid` in `mvcl/studies/_gaussian.py`; 5e-5 at most from the library's
loss on trained networks), because 16 seeds of M K = 10240 vectors against each other take hours on two cores;
`--grid 0` trains on the library's losses directly. Measurements always use the latter.
"""


def run(config: Gaussian, folder: Path, report: Callable[[str], None] = print) -> Path:
    """`numbers`, written as gaussian.json, gaussian.svg and gaussian.md into a folder; the path of the page."""
    found = numbers(config, report)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gaussian.json").write_text(json.dumps(_rounded(found), indent=1) + "\n")
    plot(found, folder / "gaussian.svg")
    file = folder / "gaussian.md"
    file.write_text(page(found))
    return file


def dry_run(config: Gaussian) -> str:
    """What the study costs: parameters, and steps with FLOPs and memory from XLA's analysis of the largest."""
    _check(config)
    views = max(config.views)
    params = jax.eval_shape(partial(_init, config), jax.random.key(0))
    lines = [
        f"parameters of a network: {sum(math.prod(a.shape) for a in jax.tree.leaves(params)):,}",
        f"trainings: {len(config.objectives)} objectives x {len(config.views)} values of M, {config.seeds} seeds each",
        f"steps of a training: {config.epochs * config.steps_per_epoch:,}",
    ]
    keys = jax.ShapeDtypeStruct((config.seeds,), jax.random.key(0).dtype)
    for name in config.objectives:
        state = jax.eval_shape(jax.vmap(partial(_init, config)), keys)
        opt = jax.eval_shape(jax.vmap(_optimizer(config).init), state)
        compiled = jax.jit(jax.vmap(_step(config, name, views))).lower(state, opt, keys).compile()
        analysis: Any = compiled.cost_analysis()
        allocated: Any = compiled.memory_analysis()
        flops, memory = analysis.get("flops", math.nan), allocated.temp_size_in_bytes / 2**20
        lines.append(
            f"{name} at M = {views}: {flops:.3g} FLOPs a step of all seeds, {memory:.0f} MiB of temporaries"
        )
    return "\n".join(lines)


def load(path: str | Path) -> Gaussian | None:
    """The study of a Python file whose `get_config()` returns one; None for any other file."""
    path = Path(path)
    if path.suffix != ".py" or not path.is_file():
        return None
    try:
        config = runpy.run_path(str(path))["get_config"]()
    except (SyntaxError, KeyError):  # `training.load` has the words for it
        return None
    return config if isinstance(config, Gaussian) else None


def _rounded(value: Any) -> Any:
    """Six digits are more than the spread over seeds leaves standing, and make a file that can be read."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return value
