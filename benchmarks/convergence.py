"""Where the solver converges, and in how many passes, beside ott's: data, numbers of views, epsilons.

    python -m benchmarks.convergence

The cost is the sum of the squared distances of the pairs, epsilon a share of the standard deviation of the costs of all
tuples, and the threshold 1e-3 with 2000 sweeps at most, in float32. `spread` is the largest max - min of the costs of a
pair, over epsilon. A sweep of k views is two passes here and k for ott. Error and gap over epsilon are of the
potentials of either solver, measured by our output.
"""

import dataclasses
import itertools
import statistics
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from mvcl.transport import Geometry, MMSinkhorn, Problem, SinkhornOutput, SqEuclidean, Status

# ott after mvcl, which silences what importing it warns of
from ott.experimental import mmsinkhorn  # isort: skip

SIZES = {2: 40, 3: 16, 4: 9, 5: 6, 6: 4}
EPSILONS = (1.0, 0.1, 0.05, 0.01, 0.001)
SOLVER = MMSinkhorn(inner_iterations=1)
OTT = mmsinkhorn.MMSinkhorn(inner_iterations=1)
Made = Callable[[np.random.Generator, int, int], np.ndarray]


def normal(dimension: int, scale: float = 1.0) -> Made:
    return lambda rng, k, n: scale * rng.normal(size=(k, n, dimension))


DATA: dict[str, Made] = {
    "normal in R^2": normal(2),
    "normal in R^50": normal(50),
    "normal in R^500": normal(500),
    "times 1e-6": normal(2, 1e-6),
    "times 1e6": normal(2, 1e6),
    # three clusters 50 apart, with other shares in each view
    "clusters": lambda rng, k, n: rng.normal(size=(k, n, 10)) + 50 * rng.integers(3, size=(k, n, 1)),
    # every point twice, and all views the same
    "duplicates": lambda rng, k, n: np.stack(
        [np.repeat(rng.normal(size=(n // 2 + 1, 5)), 2, axis=0)[:n]] * k
    ),
}


def problems() -> Iterator[tuple[str, int, float, Geometry, jax.Array, float]]:
    """Data, k, epsilon over the deviation of the costs, costs, epsilon and spread."""
    for (name, points), k in itertools.product(DATA.items(), SIZES):
        z = jnp.asarray(points(np.random.default_rng(k), k, SIZES[k]), jnp.float32)
        geometry = Geometry.from_points(z, SqEuclidean())
        for relative in EPSILONS:
            epsilon = relative * jnp.std(geometry.tensor())
            widest = max(float(jnp.ptp(matrix)) for matrix in geometry.arrays)
            yield name, k, relative, geometry, epsilon, widest / float(epsilon)


def measures(out: SinkhornOutput) -> tuple[float, float]:
    """The error, and the gap over epsilon."""
    error = sum(float(jnp.sum(jnp.abs(m - a))) for m, a in zip(out.marginals, out.a_s))
    return error, float(out.gap / out.epsilon)


@jax.jit
def otts(tensor: jax.Array, epsilon: jax.Array) -> mmsinkhorn.MMSinkhornOutput:
    uniform = tuple(jnp.full(n, 1 / n) for n in tensor.shape)
    return mmsinkhorn.run((tensor, uniform, epsilon), OTT, OTT.init_state(tensor.shape))


def main() -> None:
    print("data              k  epsilon   spread  status          passes", end="   ")
    print("error  gap/eps | ott's   error  gap/eps")
    found: dict[float, list[tuple[bool, bool, int, int]]] = {}
    for name, k, relative, geometry, epsilon, spread in problems():
        out = SOLVER.solve(Problem(geometry, epsilon=epsilon))
        theirs = otts(geometry.tensor(), epsilon)
        dual = theirs.ent_reg_cost - epsilon
        other = dataclasses.replace(out, potentials=theirs.potentials, dual=dual)
        passes, other_passes = int(out.n_passes), k * int(theirs.n_iters)
        (error, gap), (other_error, other_gap) = measures(out), measures(other)
        fits = bool(theirs.errors[theirs.n_iters - 1, 0] < OTT.threshold)
        found.setdefault(relative, []).append((bool(out.converged), fits, passes, other_passes))
        print(
            f"{name:16s} {k:2d} {relative:8.3f} {spread:8.0f}  {Status(int(out.status)).name:15s} "
            f"{passes:6d} {error:7.0e} {gap:8.0e} | {other_passes:5d} {other_error:7.0e} {other_gap:8.0e}",
            flush=True,
        )
    print("\nepsilon  problems  converged     ott's  median passes     ott's")
    for relative, rows in found.items():
        here, there, passes, others = zip(*rows)
        print(
            f"{relative:7.3f} {len(rows):9d} {sum(here):10d} {sum(there):9d} {statistics.median(passes):14.0f} "
            f"{statistics.median(others):9.0f}"
        )


if __name__ == "__main__":
    main()
