"""What an objective adds to a whole training step: views, encoder, loss, gradient and update, as in Piran 2024, Fig. 4.

    python -m benchmarks.overhead                    # every size
    python -m benchmarks.overhead --only 64,4 16,5   # some sizes, n,k
    python -m benchmarks.overhead --passes           # the solver's passes, from zeros and warm

The programs are the library's own training steps (`mvcl.training.prepare`) of a ConvNet on digits enlarged to 32 x
32, in float32, with AdamW. For one size they take turns, a step each, in one run. "ratio" is the median over the
turns of the ratio of a step's time to that of `all_pairs(info_nce)` in the same turn and with the same method; beside
it the quartiles. Times are seconds of computation by the process on a CPU, those of a clock on other devices.
"sweeps" and "saved" are from the log of the last step: the sweeps of the problem that took most, and those that the
later problems of the step took less than the first, in all. "one by one" is M3G whose k problems of a step all start
from zeros.

`--passes` trains student and teacher with M3G on digits of 8 x 8 and counts, at some steps, the passes of the solver
over half of the views for the k problems of a step: each started from zeros, and each from the potentials of the one
before.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from mvcl import _configs, augment, data, losses, methods, models, training
from mvcl.losses import m3g_with_status
from mvcl.training import AdamW, Config, Mesh, Train, Views

# Runs whose steps take turns, as in the study of step times.
STEPS: Any = training.config_module(_configs.STUDIES / "piran_figure4.py")
SIZES = [(64, 2), (64, 3), (64, 4), (16, 5), (128, 4)]
EPSILON, PASSES_EPSILON, PASSES_STEPS = 0.2, (0.2, 0.05), (0, 100, 1000)

m3g = partial(losses.m3g, epsilon=EPSILON)


@losses.declare(measured=losses.takes(losses.m3g).measured)
def one_by_one(z: jax.Array, epsilon: float = EPSILON) -> jax.Array:
    """M3G whose problems all start from zeros: it declares no `successive`."""
    return losses.m3g(z, epsilon)


PLAIN: dict[str, losses.Loss] = {
    "all_pairs(info_nce)": losses.all_pairs(losses.info_nce),
    "one_vs_rest(info_nce)": losses.one_vs_rest(losses.info_nce),
    "mv_infonce": losses.mv_infonce,
    "mv_dhel": losses.mv_dhel,
    "m3g": m3g,
}
STUDENT_TEACHER: dict[str, losses.Loss] = {
    "all_pairs(info_nce)": losses.all_pairs(losses.info_nce),
    "m3g": m3g,
    "m3g one by one": one_by_one,
}
TEACHER = methods.StudentTeacher(predictor=models.MLPHead())
METHODS: tuple[tuple[str, methods.Method, dict[str, losses.Loss]], ...] = (
    ("one network", methods.Simclr(), PLAIN),
    ("student and teacher", TEACHER, STUDENT_TEACHER),
)


def config(
    n: int,
    k: int,
    method: methods.Method,
    objective: losses.Loss,
    folder: str,
    *,
    image_size: int = 32,
) -> Config:
    """A run on digits of this size; the singular values for its log are never due."""
    return Config(
        data=data.Digits(),
        views=Views(k=k, policy=augment.digits(image_size=image_size)),
        encoder=models.ConvNet(),
        head=models.MLPHead(norm="batch"),
        objective=objective,
        method=method,
        optimizer=AdamW(learning_rate=1e-3),
        train=Train(steps=10**6, batch_size=n, log_every=10**9, evaluate_every=0, precision="float32"),
        mesh=Mesh(data=1),
    )


def of_size(n: int, k: int, folder: str, budget: float) -> None:
    """Print the ratios of one size."""
    runs = {
        f"{title}: {name}": STEPS.running(config(n, k, method, objective, folder))
        for title, method, objectives in METHODS
        for name, objective in objectives.items()
    }
    found = STEPS.turns(runs, budget)
    for title, _, objectives in METHODS:
        reference = found[f"{title}: all_pairs(info_nce)"]
        for name in objectives:
            seconds = found[f"{title}: {name}"]
            ratios = [a / b for a, b in zip(seconds, reference, strict=True)]
            low, ratio, high = statistics.quantiles(ratios, n=4, method="inclusive")
            _, values = runs[f"{title}: {name}"].step()
            solver = [float(values[m]) for m in ("solver_iterations", "solver_sweeps_saved") if m in values]
            print(
                f"{n:5d} {k:2d}  {title:<20} {name:<21} {ratio:6.2f} {low:6.2f} {high:6.2f} "
                f"{statistics.median(seconds) * 1e3:9.1f}" + "".join(f" {number:6.1f}" for number in solver),
                flush=True,
            )


@partial(jax.jit, static_argnames=("epsilon", "warm"))
def passes(problems: jax.Array, epsilon: float, *, warm: bool) -> list[jax.Array]:
    """Passes of each of the (p, k, n, d) problems."""
    found, start = [], None
    for z in problems:
        _, out = m3g_with_status(z, epsilon=epsilon, max_iterations=1000, init=start)
        start = out.potentials if warm else None
        found.append(out.n_passes)
    return found


def problems_of(run: Any) -> jax.Array:
    """(k, k, n, d): the problems that the method makes at this state."""

    def seen(z: jax.Array, **_: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        return jnp.zeros(()), {"problems": z}

    draw: Callable[[Any], Any] = run.program.views
    params, statistics = run.state["params"], run.state["statistics"]
    _, (_, _, measures) = run.program.learner.loss(params, statistics, run.batch, draw, seen)
    return measures["problems"]


def count_passes(sizes: list[tuple[int, int]], folder: str) -> None:
    """Print the solver's passes for the k problems of a step, cold and warm."""
    print("    n  k epsilon  step  from zeros           from the one before   saved")
    for n, k in sizes:
        for epsilon in PASSES_EPSILON:
            objective = partial(losses.m3g, epsilon=epsilon, max_iterations=1000)
            run = STEPS.running(config(n, k, TEACHER, objective, folder, image_size=8))
            for step in PASSES_STEPS:
                while run.steps < step:
                    run.step()
                problems = problems_of(run)
                cold, warm = (
                    [int(p) for p in passes(problems, epsilon, warm=warm)] for warm in (False, True)
                )
                print(
                    f"{n:5d} {k:2d} {epsilon:7g} {step:5d}  {' '.join(map(str, cold)):<20} "
                    f"{' '.join(map(str, warm)):<20} {1 - sum(warm) / sum(cold):6.0%}",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="n,k", help="sizes to run in place of all")
    parser.add_argument("--seconds", type=float, default=30.0, help="time for the turns of one size")
    parser.add_argument("--passes", action="store_true", help="count the solver's passes instead")
    arguments = parser.parse_args()
    sizes = SIZES
    if arguments.only:
        sizes = [(int(n), int(k)) for n, k in (size.split(",") for size in arguments.only)]
    with tempfile.TemporaryDirectory() as folder:
        if arguments.passes:
            count_passes(sizes, folder)
            return
        print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}; a training step with a ConvNet")
        print(
            "    n  k  method               objective              ratio  quartiles       step ms sweeps  saved"
        )
        for n, k in sizes:
            of_size(n, k, folder, arguments.seconds)


if __name__ == "__main__":
    main()
