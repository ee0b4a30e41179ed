"""Time and memory of the multi-marginal matching gap, beside ott's dense solver and bare matrix products.

    python -m benchmarks.transport                          # the table and the bars
    python -m benchmarks.transport --only 64,4 256,4        # some sizes
    python -m benchmarks.transport --only 64,4 256,4 512,3 64,6    # the sizes whose speed is held
    python -m benchmarks.transport --structure              # penalties, chains, stars and landmarks: time, bytes, error
    python -m benchmarks.transport --scales                 # identical views with both costs of the paper
    python -m benchmarks.transport --plot docs/design/transport    # docs/design/transport.svg and .json, for the docs

Value and gradient in the embeddings, compiled, d = 256, epsilon = 0.2, threshold 1e-3 in the summed L1 error
of the marginals for both solvers. ott checks its error after every sweep here (its default is every tenth),
so that it stops as early as it can. Times are medians of rounds in which the programs take turns; memory is what the
compiler reserves for temporaries.

The floor is the time of a run's matrix products with nothing else: one (n^(k-2), n) times (n, n) for each of
its passes ("pass ms", in blocks of the solver's size) and three for the gradient, and three times the
k(k-1)/2 Gram matrices (n, d) times (d, n), once forward and twice backward. "/floor" is the run's time over
that, the median over the rounds.
"""

import itertools
import json
import math
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.cluster import KMeans

from benchmarks import harness
from benchmarks.harness import MIB, milliseconds, program_of, ratio, repeated, turns
from mvcl import _numerics
from mvcl.losses import m3g, m3g_with_status
from mvcl.transport import Barycenter, Geometry, MMSinkhorn, Problem

# ott after mvcl, which silences what importing it warns of
from ott.experimental import mmsinkhorn  # isort: skip

BESIDE_OTT = [(64, 2), (64, 3), (32, 4), (64, 4), (16, 5), (12, 6)]
ALONE = [(128, 4), (256, 4), (512, 4), (512, 3), (64, 5), (128, 5), (64, 6)]
PLOT = {3: [16, 32, 64, 128, 256, 512], 4: [8, 16, 32, 64, 128, 256], 5: [8, 16, 32, 64], 6: [4, 8, 16, 32]}
# What value and gradient may take at most, in times of the floor, on a CPU.
OVER_FLOOR = {(128, 4): 2, (256, 4): 1.3, (512, 4): 2, (512, 3): 1.35, (128, 5): 2.5, (64, 6): 1.7}
DENSE_LIMIT = 2**24  # entries of ott's tensor in the plot: 1 GB of temporaries
DIMENSION, EPSILON, THRESHOLD = 256, 0.2, 1e-3


def embeddings(n: int, k: int) -> jax.Array:
    """(k, n, d), on the sphere."""
    return _numerics.unit(jnp.asarray(harness.embeddings((k, n, DIMENSION), seed=n * 100 + k)))


def ours(z: jax.Array) -> tuple[jax.Array, Any]:
    return m3g_with_status(z, epsilon=EPSILON, threshold=THRESHOLD)


def otts(z: jax.Array) -> tuple[jax.Array, Any]:
    """The same loss from ott's solver: its cost is k² times ours, and its value epsilon larger."""
    k, n, _ = z.shape
    z = _numerics.unit(z)
    solver = mmsinkhorn.MMSinkhorn(threshold=THRESHOLD, max_iterations=100, inner_iterations=1)
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
    return [jnp.matmul(x, y.T, precision="highest") for x, y in itertools.combinations(z, 2)]


def measure_case(n: int, k: int, *, with_ott: bool, rounds: int = 15, budget: float = 4.0) -> dict[str, Any]:
    """Value and gradient of a size: seconds, bytes, ratios to the floor and to ott's, what the solver says."""
    z = embeddings(n, k)
    ours_, mib = program_of(jax.value_and_grad(ours, has_aux=True), z)
    runs = {"ours": ours_}
    runs["pass"], _ = program_of(bare_products(n, k), z[0] @ z[1].T)
    runs["gram"], _ = program_of(gram_products, z)
    if with_ott:
        runs["ott"], ott_mib = program_of(jax.value_and_grad(otts, has_aux=True), z)
    found = turns({name: repeated(run) for name, run in runs.items()}, rounds, budget)
    (loss, status), gradient = runs["ours"]()
    sweeps = int(status.n_iters)
    # Passes: two a sweep, and the one that measures the last iterate; three for the gradient.
    floor = [(2 * sweeps + 1 + 3) * a + 3 * b for a, b in zip(found["pass"], found["gram"], strict=True)]
    row = {
        "n": n,
        "k": k,
        "seconds": statistics.median(found["ours"]),
        "bytes": mib * MIB,
        "pass_seconds": statistics.median(found["pass"]),
        "floor_seconds": statistics.median(floor),
        "over_floor": ratio(found["ours"], floor),
        "sweeps": sweeps,
        "error": float(status.error),
        "converged": bool(status.converged),
        "loss": float(loss),
    }
    if with_ott:
        (other, other_status), other_gradient = runs["ott"]()
        row |= {
            "ott_seconds": statistics.median(found["ott"]),
            "ott_over_ours": ratio(found["ott"], found["ours"]),
            "ott_bytes": ott_mib * MIB,
            "ott_sweeps": int(other_status.n_iters),
            "loss_difference": float(abs(loss - other)),
            "gradient_difference": harness.difference(other_gradient, gradient),
        }
    return row


def line(row: dict[str, Any]) -> str:
    text = (
        f"{row['n']:5d} {row['k']:2d} {row['n'] ** row['k']:9.1e} {row['sweeps']:3d} {row['error']:8.1e} "
        f"{row['seconds'] * 1e3:10.2f} {row['bytes'] / MIB:8.2f} "
        f"{row['pass_seconds'] * 1e3:8.3f} {row['floor_seconds'] * 1e3:9.3f} {row['over_floor']['median']:6.2f}"
    )
    if "ott_seconds" in row:
        text += (
            f" {row['ott_seconds'] * 1e3:9.2f} {row['ott_bytes'] / MIB:8.2f} {row['ott_sweeps']:3d} "
            f"{row['ott_over_ours']['median']:6.1f}x {row['ott_bytes'] / row['bytes']:6.1f}x "
            f"{row['loss_difference']:8.1e} {row['gradient_difference']:8.1e}"
        )
    return text


HEADER = (
    "    n  k    tuples swp    error    ours ms      MiB  pass ms  floor ms /floor"
    "    ott ms      MiB swp    time  memory    Δloss    Δgrad"
)


def bars(rows: dict[tuple[int, int], dict[str, Any]]) -> list[tuple[str, bool]]:
    """What the solver is held to, of the sizes that were run; the limits are for CPU."""
    found = []
    for (n, k), r in rows.items():
        where = f"({n},{k})"
        found.append((f"{where} has converged", r["converged"]))
        if "ott_seconds" in r and k > 2:  # of two views, ott's tensor is our matrix
            faster, smaller = r["ott_over_ours"]["median"], r["ott_bytes"] / r["bytes"]
            least = 25 if (n, k) == (64, 4) else 1
            found.append((f"{where} is {faster:.1f}x faster than ott, at least {least}", faster >= least))
            if least > 1:
                found.append((f"{where} takes 1/{smaller:.1f} of ott's memory, at most 1/25", smaller >= 25))
        if limit := OVER_FLOOR.get((n, k)):
            over = r["over_floor"]["median"]
            found.append((f"{where} takes {over:.2f}x the floor, at most {limit}", over <= limit))
        if (n, k) in ((256, 4), (64, 6)):
            mib = r["bytes"] / MIB
            found.append((f"{where} takes {mib:.0f} MiB, at most 32", mib <= 32))
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
    for text, holds in results:
        print("holds " if holds else "FAILS ", text)
    return 0 if all(holds for _, holds in results) else 1


def scales() -> None:
    """The loss of identical views as a share of chance, with the cost of Eq. 12 and that of Algorithm 2."""
    print("    n  k  scale of Algorithm 2    Eq. 12  Algorithm 2")
    for n, k in [(64, 2), (64, 3), (64, 4), (16, 5), (16, 6)]:
        z = jnp.broadcast_to(embeddings(n, 1), (k, n, DIMENSION))
        scale, chance = (2 * k / (k - 1)) ** 2, (k - 1) * EPSILON * math.log(n)
        options = {"epsilon": EPSILON, "threshold": 1e-4, "max_iterations": 2000}
        share = [float(m3g(z, cost_scale=s, **options)) / chance for s in (1.0, scale)]
        print(f"{n:5d} {k:2d} {scale:21.2f} {share[0]:9.1%} {share[1]:12.1%}", flush=True)


SWEEPS = 10
STRUCTURES = {  # name: k and numbers of points
    "weights": ((3, 64), (3, 128), (4, 64)),
    "tau": ((3, 64), (3, 128), (4, 64)),
    "unmatched": ((3, 64), (3, 128), (4, 64)),
    "chain": ((3, 1000), (3, 2000), (6, 1000)),
    "chain with tau": ((3, 1000), (3, 2000), (6, 1000)),
    "256 landmarks": ((3, 1000), (3, 3000), (3, 10000), (6, 3000)),
}


def clouds(n: int, k: int, d: int = 2) -> list[jax.Array]:
    """Normal points, the view's number times 1/2 apart."""
    rng = np.random.default_rng(n + k)
    return [jnp.asarray(rng.normal(size=(n, d)) + view / 2, jnp.float32) for view in range(k)]


def problem_of(name: str, x: list[jax.Array], landmarks: jax.Array, epsilon: float = 0.1) -> Problem:
    """Squared distances to the barycentre, or along the edges of a tree."""
    k = len(x)
    if "landmarks" in name:
        geometry = Geometry.from_landmarks(x, landmarks, epsilon)
        return Problem(geometry, epsilon=epsilon, tau=(1.0,) * k + (0.0,))
    if "chain" in name:
        edges = [(view - 1, view) for view in range(1, k)]
        matrices = [Geometry.from_points([x[l], x[m]], Barycenter()).arrays[0] for l, m in edges]
        geometry = Geometry.from_pairs(matrices, edges)
    else:
        geometry = Geometry.from_points(x, Barycenter())
    tau = (0.95,) * k if "tau" in name else None
    return Problem(geometry, None, epsilon, tau, (0.2,) * k if name == "unmatched" else None)


def structure() -> None:
    """The cost laws of penalties and structures, and the error of landmarks against exact costs."""
    print(f"value and gradient by the points, {SWEEPS} sweeps")
    print("structure            k      n         ms      MiB")
    solver = MMSinkhorn(threshold=0.0, inner_iterations=SWEEPS, max_iterations=SWEEPS)
    for name, sizes in STRUCTURES.items():
        for k, n in sizes:
            x = clouds(n, k)
            landmarks = jnp.concatenate(x)[:: max(k * n // 256, 1)][:256]
            value = lambda x: solver.solve(problem_of(name, x, landmarks)).dual  # noqa: B023, E731
            run, mib = program_of(jax.value_and_grad(value), x)
            found = turns({name: repeated(run)}, 5, 2.0)[name]
            print(f"{name:18s} {k:3d} {n:6d} {milliseconds(found):10.1f} {mib:8.1f}", flush=True)
    sizes = "k = 3, n = 256: relative epsilon is over the costs' deviation"
    print(f"\nlandmarks of K-means beside exact costs, {sizes}")
    print("  d  relative epsilon    r  sweeps (exact)   value, epsilon  total variation  projection")
    for d, relative in itertools.product((2, 5, 16), (0.5, 0.1)):
        landmark_errors(d, relative)


def landmark_errors(d: int, relative: float) -> None:
    """Differences of values over epsilon, of pair marginals, and of conditional means over the points' deviation."""
    x, solver = clouds(256, 3, d), MMSinkhorn(threshold=1e-4, inner_iterations=1)
    points, geometry = np.concatenate(x), Geometry.from_points(x, Barycenter())
    epsilon = 20 * relative * float(MMSinkhorn(max_iterations=1).solve(Problem(geometry)).epsilon)
    exact = solver.solve(Problem(geometry, epsilon=epsilon))
    for r in (64, 256):
        centres = jnp.asarray(KMeans(r, n_init=1, random_state=0).fit(points).cluster_centers_)
        found = solver.solve(problem_of("landmarks", x, centres, epsilon))
        values = float(found.dual - exact.dual) / epsilon
        plans = float(jnp.abs(found.pair_marginal(0, 2) - exact.pair_marginal(0, 2)).sum()) / 2
        means = found.conditional_means(0)[2] - exact.conditional_means(0)[2]
        away = float(jnp.sqrt(jnp.mean(jnp.square(means)) / jnp.mean(jnp.var(x[2], 0))))
        print(
            f"{d:3d} {relative:17.1f} {r:4d} {int(found.n_iters):7d} {int(exact.n_iters):8d} {values:16.3f} "
            f"{plans:16.3f} {away:11.3f}",
            flush=True,
        )


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
            for name, style, label_of in ((quantity, "o-", f"k = {k}"), (f"ott_{quantity}", "x--", None)):
                of_k = [r for r in rows if r["k"] == k and name in r]
                points = [r["n"] for r in of_k], [r[name] * scale for r in of_k]
                axis.plot(*points, style, color=f"C{color}", label=label_of)
        axis.plot([], [], "x--", color="gray", label="dense (ott)")
        axis.set_xscale("log", base=2)
        axis.set(yscale="log", xlabel="n", ylabel=label)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.savefig(path)


def main() -> int:
    parser = harness.parser_of(__doc__)
    of_all = "sizes to run in place of all"
    parser.add_argument("--only", nargs="+", type=harness.size, metavar="n,k", help=of_all)
    parser.add_argument("--scales", action="store_true", help="identical views with both costs of the paper")
    parser.add_argument("--structure", action="store_true", help="penalties, trees and landmarks")
    parser.add_argument("--plot", type=Path, help="measure for the plot and write it here")
    arguments = parser.parse_args()
    if arguments.plot is not None:
        rows = []
        for n, k in [(n, k) for k, sizes in PLOT.items() for n in sizes]:
            rows.append(measure_case(n, k, with_ott=n**k <= DENSE_LIMIT, budget=1.0))
            print(line(rows[-1]), flush=True)
        arguments.plot.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
        plot(rows, arguments.plot.with_suffix(".svg"))
        return 0
    if arguments.scales or arguments.structure:
        (scales if arguments.scales else structure)()
        return 0
    return table(arguments.only or BESIDE_OTT + ALONE)


if __name__ == "__main__":
    sys.exit(main())
