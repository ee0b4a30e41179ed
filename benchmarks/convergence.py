"""Where the solver converges, and in how many passes, beside ott's: data, numbers of views, epsilons.

    python -m benchmarks.convergence                # both solvers on the same problems
    python -m benchmarks.convergence --schedules    # passes by where epsilon starts and how it decays
    python -m benchmarks.convergence --views 2 3    # some numbers of views

The cost is the sum of the squared distances of the pairs, epsilon a share of the standard deviation of the costs of all
tuples, and the threshold 1e-3 with 2000 sweeps at most, in float32; the number of points is such that ott's tensor has
some thousand entries. `spread` is max - min of the costs of the pair where it is largest, over epsilon. A sweep of k views is two passes
here and k for ott. The gap is `out.gap`, over epsilon, of the potentials of either solver; the error is measured for both from
the marginals.
"""

import argparse
import dataclasses
import itertools
import statistics
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from mvcl.transport import Epsilon, Geometry, MMSinkhorn, Problem, SinkhornOutput, SqEuclidean, Status

# ott after mvcl, which silences what importing it warns of
from ott.experimental import mmsinkhorn  # isort: skip

SIZES = {2: 40, 3: 16, 4: 9, 5: 6, 6: 4}
EPSILONS = (1.0, 0.1, 0.05, 0.01, 0.001)
SOLVER = MMSinkhorn(inner_iterations=1)
OTT = mmsinkhorn.MMSinkhorn(inner_iterations=1)
Points = Callable[[np.random.Generator, int, int], np.ndarray]


def normal(dimension: int, scale: float = 1.0) -> Points:
    return lambda rng, k, n: scale * rng.normal(size=(k, n, dimension))


def clusters(rng: np.random.Generator, k: int, n: int) -> np.ndarray:
    """Three of deviation 1, 50 apart, with other shares in each view."""
    return rng.normal(size=(k, n, 10)) + 50 * rng.integers(3, size=(k, n, 1))


def duplicates(rng: np.random.Generator, k: int, n: int) -> np.ndarray:
    """Every point is there twice, and all views are the same."""
    return np.broadcast_to(np.repeat(rng.normal(size=(n // 2 + 1, 5)), 2, axis=0)[:n], (k, n, 5))


DATA: dict[str, Points] = {
    "normal in R^2": normal(2),
    "normal in R^50": normal(50),
    "normal in R^500": normal(500),
    "times 1e-6": normal(2, 1e-6),
    "times 1e6": normal(2, 1e6),
    "clusters": clusters,
    "duplicates": duplicates,
}


def problems(views: list[int]) -> "itertools.chain[tuple[str, int, float, Geometry]]":
    """Name, k, epsilon over the deviation and the costs."""
    for (name, points), k in itertools.product(DATA.items(), views):
        z = jnp.asarray(points(np.random.default_rng(k), k, SIZES[k]), jnp.float32)
        for epsilon in EPSILONS:
            yield name, k, epsilon, Geometry.from_points(z, SqEuclidean())


def spread(geometry: Geometry, epsilon: jax.Array) -> float:
    return max(float(jnp.ptp(matrix)) for matrix in geometry.arrays) / float(epsilon)


def line(out: SinkhornOutput) -> tuple[float, float]:
    """The error, and the gap over epsilon."""
    error = sum(float(jnp.sum(jnp.abs(m - a))) for m, a in zip(out.marginals, out.a_s))
    return error, float(out.gap / out.epsilon)


@jax.jit
def otts(tensor: jax.Array, epsilon: jax.Array) -> mmsinkhorn.MMSinkhornOutput:
    uniform = tuple(jnp.full(n, 1 / n) for n in tensor.shape)
    return mmsinkhorn.run((tensor, uniform, epsilon), OTT, OTT.init_state(tensor.shape))


def both(views: list[int]) -> None:
    print(
        "data              k  epsilon   spread  status          passes   error  gap/eps | ott passes   error  gap/eps"
    )
    found: dict[float, list[tuple[bool, bool, int, int]]] = {}
    for name, k, relative, geometry in problems(views):
        epsilon = relative * jnp.std(geometry.tensor())
        out = SOLVER.solve(Problem(geometry, epsilon=epsilon))
        theirs = otts(geometry.tensor(), epsilon)
        dual = theirs.ent_reg_cost - epsilon
        other = dataclasses.replace(out, potentials=theirs.potentials, dual=dual)
        passes, other_passes = int(out.n_passes), k * int(theirs.n_iters)
        (error, gap), (other_error, other_gap) = line(out), line(other)
        found.setdefault(relative, []).append((bool(out.converged), other_error < 1e-3, passes, other_passes))
        print(
            f"{name:16s} {k:2d} {relative:8.3f} {spread(geometry, epsilon):8.0f}  {Status(int(out.status)).name:15s} "
            f"{passes:6d} {error:7.0e} {gap:8.0e} | {other_passes:10d} {other_error:7.0e} {other_gap:8.0e}",
            flush=True,
        )
    print("\nepsilon  problems  converged     ott's  median passes     ott's")
    for relative, rows in found.items():
        here, there, passes, others = zip(*rows)
        print(
            f"{relative:7.3f} {len(rows):9d} {sum(here):10d} {sum(there):9d} {statistics.median(passes):14.0f} "
            f"{statistics.median(others):9.0f}"
        )


def schedules(views: list[int]) -> None:
    """Passes; `-` where they do not suffice, `=` where epsilon would not start larger."""
    tried = [(None, 1.0), (5, 0.5), (5, 0.75), (5, 0.9), (20, 0.75), (60, 0.75)]
    print(
        "data              k  epsilon   spread   constant" + "".join(f"{f:>6}, {d:4}" for f, d in tried[1:])
    )
    for name, k, relative, geometry in problems(views):
        epsilon = relative * jnp.std(geometry.tensor())
        wide, row = spread(geometry, epsilon), ""
        for first, decay in tried:
            multiple = 1.0 if first is None else wide / first
            if multiple <= 1 and first is not None:
                row += f"{'=':>12s}"
                continue
            out = SOLVER.solve(Problem(geometry, epsilon=Epsilon(float(epsilon), max(multiple, 1.0), decay)))
            row += f"{int(out.n_passes) if out.converged else '-':>12}"
        print(f"{name:16s} {k:2d} {relative:8.3f} {wide:8.0f}{row[1:]}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--views", nargs="+", type=int, default=list(SIZES), help="numbers of views")
    parser.add_argument(
        "--schedules", action="store_true", help="passes by the start of epsilon and its decay"
    )
    arguments = parser.parse_args()
    (schedules if arguments.schedules else both)(arguments.views)
