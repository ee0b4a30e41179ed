"""Time and memory of the multi-marginal matching gap, beside ott's dense solver and bare matrix products.

    python -m benchmarks.transport                          # the table and the bars
    python -m benchmarks.transport --only 64,4 256,4        # some sizes
    python -m benchmarks.transport --parts                  # where the time goes, and what unequal weights cost
    python -m benchmarks.transport --scales                 # identical views with both costs of the paper
    python -m benchmarks.transport --plot docs/design/transport    # docs/design/transport.svg and .json, for the docs

Value and gradient in the embeddings, compiled, d = 256, epsilon = 0.2, tolerance 1e-3 in the summed L1 error
of the marginals for both solvers. ott checks its error after every sweep here (its default is every tenth),
so that it stops as early as it can. Times are the least of several rounds in which the programs take turns;
memory is what the compiler reserves for temporaries.

The floor is the time of a run's matrix products with nothing else: one (n^(k-2), n) times (n, n) for each of
its passes ("pass ms", in blocks of the solver's size) and three for the gradient, and three times the
k(k-1)/2 Gram matrices (n, d) times (d, n), once forward and twice backward. "/floor" is the run's time over
that.
"""

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mvcl import _numerics
from mvcl.losses import m3g, m3g_with_status
from mvcl.transport import multimarginal_sinkhorn, tuple_costs

# ott after mvcl, which silences what importing it warns of
from ott.experimental import mmsinkhorn  # isort: skip

BESIDE_OTT = [(64, 2), (64, 3), (32, 4), (64, 4), (16, 5), (12, 6)]
ALONE = [(128, 4), (256, 4), (512, 4), (512, 3), (64, 5), (128, 5), (64, 6)]
ON_ACCELERATOR = [(1024, 4)]
PLOT = {3: [16, 32, 64, 128, 256, 512], 4: [8, 16, 32, 64, 128, 256], 5: [8, 16, 32, 64], 6: [4, 8, 16, 32]}
# What value and gradient may take at most, in times of the floor, on a CPU.
OVER_FLOOR = {(128, 4): 2, (256, 4): 1.4, (512, 4): 2, (512, 3): 2, (128, 5): 2.5, (64, 6): 2.5}
PARTS = [(64, 4), (128, 4), (256, 4), (512, 3), (64, 6)]
DENSE_LIMIT = 2**24  # entries of ott's tensor in the plot: 1 GB of temporaries
DIMENSION, EPSILON, TOLERANCE = 256, 0.2, 1e-3
MIB = 2**20


def embeddings(n: int, k: int) -> jax.Array:
    """k noisy views of n random directions, on the sphere."""
    rng = np.random.default_rng(n * 100 + k)
    z = rng.normal(size=(1, n, DIMENSION)) + 0.5 * rng.normal(size=(k, n, DIMENSION))
    return jnp.asarray(z / np.linalg.norm(z, axis=-1, keepdims=True), jnp.float32)


def ours(z: jax.Array) -> tuple[jax.Array, Any]:
    return m3g_with_status(z, epsilon=EPSILON, tolerance=TOLERANCE)


def otts(z: jax.Array) -> tuple[jax.Array, Any]:
    """The same loss from ott's solver: its cost is k² times ours, and its value epsilon larger."""
    k, n, _ = z.shape
    z = _numerics.unit(z)
    solver = mmsinkhorn.MMSinkhorn(threshold=TOLERANCE, max_iterations=100, inner_iterations=1)
    out = solver(tuple(z), epsilon=k**2 * EPSILON)
    matched = jnp.mean(1 - jnp.sum(jnp.mean(z, axis=0) ** 2, axis=-1))
    assert out.ent_reg_cost is not None
    return matched - EPSILON * math.log(n) - out.ent_reg_cost / k**2, out


def bare_products(n: int, k: int) -> Callable[[jax.Array], jax.Array]:
    """The matrix products of one pass and nothing else, in blocks of the solver's size."""
    rows = n ** max(k - 2, 1)
    block = max(d for d in range(1, min(rows, max(2**18 // n, n)) + 1) if rows % d == 0)

    def run(matrix: jax.Array) -> jax.Array:
        left = jnp.tile(matrix, (-(-block // n), 1))[:block]

        def body(total: jax.Array, _: None) -> tuple[jax.Array, None]:
            # The operand depends on the step before, or the product would be taken out of the loop.
            product = jnp.matmul(left, matrix + 0 * total, precision="highest")
            return product[:1, :1], None

        return jax.lax.scan(body, jnp.zeros((1, 1)), None, length=rows // block)[0]

    return run


def gram_products(z: jax.Array) -> list[jax.Array]:
    """The products that make the cost matrices."""
    return [
        jnp.matmul(z[l], z[m].T, precision="highest") for l, m in itertools.combinations(range(z.shape[0]), 2)
    ]


def measure(programs: dict[str, tuple[Callable[..., Any], Any]], budget: float) -> dict[str, dict[str, Any]]:
    """Least seconds, temporaries in bytes and result of every program, run in turns for about `budget`
    seconds."""
    found: dict[str, dict[str, Any]] = {}
    compiled = {}
    for name, (function, argument) in programs.items():
        compiled[name] = jax.jit(function).lower(argument).compile()
        found[name] = {
            "seconds": math.inf,
            "bytes": compiled[name].memory_analysis().temp_size_in_bytes,  # type: ignore[union-attr]
        }
    end = time.perf_counter() + budget
    rounds = 0
    while rounds < 2 or (rounds < 30 and time.perf_counter() < end):
        for name, (_, argument) in programs.items():
            if rounds == 1 and found[name]["seconds"] > budget:
                continue  # once is enough for what takes that long
            start = time.perf_counter()
            found[name]["result"] = jax.block_until_ready(compiled[name](argument))
            found[name]["seconds"] = min(found[name]["seconds"], time.perf_counter() - start)
        rounds += 1
    return found


def measure_case(n: int, k: int, *, with_ott: bool, budget: float = 4.0) -> dict[str, Any]:
    z = embeddings(n, k)
    programs: dict[str, tuple[Callable[..., Any], Any]] = {
        "ours": (jax.value_and_grad(ours, has_aux=True), z),
        "pass": (bare_products(n, k), z[0] @ z[1].T),
        "gram": (gram_products, z),
    }
    if with_ott:
        programs["ott"] = (jax.value_and_grad(otts, has_aux=True), z)
    found = measure(programs, budget)
    (loss, status), gradient = found["ours"]["result"]
    sweeps = int(status.n_iters)
    # Passes: two a sweep, and the one that measures the last iterate.
    floor = (2 * sweeps + 1 + 3) * found["pass"]["seconds"] + 3 * found["gram"]["seconds"]
    row = {
        "n": n,
        "k": k,
        "seconds": found["ours"]["seconds"],
        "bytes": found["ours"]["bytes"],
        "pass_seconds": found["pass"]["seconds"],
        "floor_seconds": floor,
        "over_floor": found["ours"]["seconds"] / floor,
        "sweeps": sweeps,
        "error": float(status.error),
        "converged": bool(status.converged),
        "loss": float(loss),
    }
    if with_ott:
        (other, other_status), other_gradient = found["ott"]["result"]
        row |= {
            "ott_seconds": found["ott"]["seconds"],
            "ott_bytes": found["ott"]["bytes"],
            "ott_sweeps": int(other_status.n_iters),
            "loss_difference": float(abs(loss - other)),
            "gradient_difference": float(
                jnp.linalg.norm(gradient - other_gradient) / jnp.linalg.norm(gradient)
            ),
        }
    return row


def line(row: dict[str, Any]) -> str:
    text = (
        f"{row['n']:5d} {row['k']:2d} {row['n'] ** row['k']:9.1e} {row['sweeps']:3d} {row['error']:8.1e} "
        f"{row['seconds'] * 1e3:10.2f} {row['bytes'] / MIB:8.2f} "
        f"{row['pass_seconds'] * 1e3:8.3f} {row['floor_seconds'] * 1e3:9.3f} {row['over_floor']:6.2f}"
    )
    if "ott_seconds" in row:
        text += (
            f" {row['ott_seconds'] * 1e3:9.2f} {row['ott_bytes'] / MIB:8.2f} {row['ott_sweeps']:3d} "
            f"{row['ott_seconds'] / row['seconds']:6.1f}x {row['ott_bytes'] / row['bytes']:6.1f}x "
            f"{row['loss_difference']:8.1e} {row['gradient_difference']:8.1e}"
        )
    return text


HEADER = (
    "    n  k    tuples swp    error    ours ms      MiB  pass ms  floor ms /floor"
    "    ott ms      MiB swp    time  memory    Δloss    Δgrad"
)


def bars(rows: dict[tuple[int, int], dict[str, Any]]) -> list[tuple[str, bool]]:
    """What the solver is held to, of the sizes that were run; the limits are for CPU."""
    found = [
        (
            f"({n},{k}) takes {r['ott_seconds'] / r['seconds']:.1f}x less time than ott, at least 1",
            r["ott_seconds"] >= r["seconds"],
        )
        for (n, k), r in rows.items()
        if "ott_seconds" in r and k > 2  # of two views, ott's tensor is our matrix
    ]
    found += [
        (f"({n},{k}) takes {r['over_floor']:.2f}x the floor, at most {limit}", r["over_floor"] <= limit)
        for (n, k), r in rows.items()
        if (limit := OVER_FLOOR.get((n, k))) is not None
    ]
    if (64, 4) in rows:
        r = rows[64, 4]
        time_ratio, memory_ratio = r["ott_seconds"] / r["seconds"], r["ott_bytes"] / r["bytes"]
        found.append((f"(64,4) is {time_ratio:.1f}x faster than ott, at least 20", time_ratio >= 20))
        found.append((f"(64,4) takes 1/{memory_ratio:.1f} of ott's memory, at most 1/20", memory_ratio >= 20))
    for size, limit in (((256, 4), 32), ((64, 6), 32)):
        if size in rows:
            mib = rows[size]["bytes"] / MIB
            found.append((f"({size[0]},{size[1]}) takes {mib:.0f} MiB, at most {limit}", mib <= limit))
    return found


def table(sizes: list[tuple[int, int]]) -> int:
    device = jax.devices()[0].device_kind
    print(f"jax {jax.__version__} on {device}; value and gradient, d={DIMENSION}, epsilon={EPSILON}")
    print(HEADER, flush=True)
    rows = {}
    for n, k in sizes:
        rows[n, k] = measure_case(n, k, with_ott=(n, k) in BESIDE_OTT)
        print(line(rows[n, k]), flush=True)
    results = bars(rows)
    results += [
        (f"({n},{k}) has converged", r["converged"]) for (n, k), r in rows.items() if not r["converged"]
    ]
    for text, holds in results:
        print("holds " if holds else "FAILS ", text)
    return 0 if all(holds for _, holds in results) else 1


def parts() -> int:
    """What of a run are the matrices of costs, the passes and the gradient, and what unequal weights take more.

    Weights of a view are uniform random numbers; a point in four has weight 0. Both solve in one sweep, so that
    the passes are as many.
    """
    print("shares of value and gradient; weighted: its time over that of uniform weights")
    print("    n  k   costs  passes  gradient  weighted")
    worst = 0.0
    for n, k in PARTS:
        z, rng = embeddings(n, k), np.random.default_rng(0)
        weights = rng.uniform(size=(k, n)) * (rng.uniform(size=(k, n)) < 0.75)
        weights = jnp.asarray(weights / weights.sum(axis=1, keepdims=True), jnp.float32)

        def dual(z: jax.Array, a_s: Sequence[jax.Array] | None = None) -> jax.Array:
            # A threshold that is never met, so that both make the same passes: one sweep, and the measuring.
            return multimarginal_sinkhorn(
                z, a_s=a_s, epsilon=EPSILON, threshold=0.0, max_iterations=1, pair_spread=4 / len(z) ** 2
            ).dual

        found = measure(
            {
                "costs": (lambda z: tuple_costs(z).arrays, z),
                "value": (dual, z),
                "all": (jax.value_and_grad(dual), z),
                "weighted": (lambda given: jax.value_and_grad(dual)(given[0], tuple(given[1])), (z, weights)),
            },
            4.0,
        )
        costs, value, whole, weighted = (
            found[name]["seconds"] for name in ("costs", "value", "all", "weighted")
        )
        worst = max(worst, weighted / whole)
        print(
            f"{n:5d} {k:2d} {costs / whole:7.0%} {(value - costs) / whole:7.0%} {(whole - value) / whole:9.0%} "
            f"{weighted / whole:8.2f}x",
            flush=True,
        )
    print(
        "holds " if worst <= 1.3 else "FAILS ", f"unequal weights cost {worst:.2f}x uniform ones, at most 1.3"
    )
    return 0 if worst <= 1.3 else 1


def scales() -> None:
    """The loss of identical views as a share of chance, with the cost of Eq. 12 and that of Algorithm 2."""
    print("    n  k  scale of Algorithm 2    Eq. 12  Algorithm 2")
    for n, k in [(64, 2), (64, 3), (64, 4), (16, 5), (16, 6)]:
        z = jnp.broadcast_to(embeddings(n, 1), (k, n, DIMENSION))
        scale, chance = (2 * k / (k - 1)) ** 2, (k - 1) * EPSILON * math.log(n)
        options = {"epsilon": EPSILON, "tolerance": 1e-4, "max_iterations": 2000}
        share = [float(m3g(z, cost_scale=s, **options)) / chance for s in (1.0, scale)]
        print(f"{n:5d} {k:2d} {scale:21.2f} {share[0]:9.1%} {share[1]:12.1%}", flush=True)


def measure_for_plot() -> list[dict[str, Any]]:
    rows = []
    for k, sizes in PLOT.items():
        for n in sizes:
            rows.append(measure_case(n, k, with_ott=n**k <= DENSE_LIMIT, budget=1.0))
            print(line(rows[-1]), flush=True)
    return rows


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Time and memory against n, ours and the dense solver's."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for axis, quantity, scale, label in (
        (axes[0], "seconds", 1e3, "value and gradient [ms]"),
        (axes[1], "bytes", 1 / MIB, "temporaries [MiB]"),
    ):
        for color, k in enumerate(PLOT):
            of_k = [r for r in rows if r["k"] == k]
            dense = [r for r in of_k if f"ott_{quantity}" in r]
            axis.plot(
                [r["n"] for r in of_k],
                [r[quantity] * scale for r in of_k],
                "o-",
                color=f"C{color}",
                label=f"k = {k}",
            )
            axis.plot(
                [r["n"] for r in dense],
                [r[f"ott_{quantity}"] * scale for r in dense],
                "x--",
                color=f"C{color}",
            )
        axis.plot([], [], "x--", color="gray", label="dense (ott)")
        axis.set_xscale("log", base=2)
        axis.set(yscale="log", xlabel="n", ylabel=label)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.savefig(path)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="n,k", help="sizes to run in place of all")
    parser.add_argument("--parts", action="store_true", help="where the time goes, and what weights cost")
    parser.add_argument("--scales", action="store_true", help="identical views with both costs of the paper")
    parser.add_argument("--plot", type=Path, help="measure for the plot and write it here")
    arguments = parser.parse_args()
    if arguments.plot is not None:
        rows = measure_for_plot()
        arguments.plot.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
        plot(rows, arguments.plot.with_suffix(".svg"))
        return 0
    if arguments.parts:
        return parts()
    if arguments.scales:
        scales()
        return 0
    sizes = BESIDE_OTT + ALONE
    if jax.default_backend() != "cpu":
        sizes = sizes + ON_ACCELERATOR
    if arguments.only:
        sizes = [(int(n), int(k)) for n, k in (size.split(",") for size in arguments.only)]
    return table(sizes)


if __name__ == "__main__":
    sys.exit(main())
