"""Multi-marginal Sinkhorn written plainly: the whole tensor, float64, numpy, until nothing changes."""

import itertools

import numpy as np


def circular_variance(points: np.ndarray) -> float:
    return 1.0 - float(np.sum(np.mean(points, axis=0) ** 2))


def circular_standard_deviation(points: np.ndarray) -> float:
    return -float(np.log(np.sum(np.mean(points, axis=0) ** 2)))


def tensor(z: np.ndarray, cost) -> np.ndarray:
    k, n, _ = z.shape
    out = np.empty((n,) * k)
    for index in itertools.product(range(n), repeat=k):
        out[index] = cost(np.stack([z[l, i] for l, i in enumerate(index)]))
    return out


def solve(cost: np.ndarray, epsilon: float, tolerance: float = 1e-12, sweeps: int = 20000):
    """Potentials (k, n), the plan and h(P) = <P, C> + ε <P, log P - 1>, summed over the tensor."""
    k, n = cost.ndim, cost.shape[0]
    f = np.zeros((k, n))

    def exponent():
        total = -cost / epsilon
        for l in range(k):
            total = total + (f[l] / epsilon).reshape([-1 if a == l else 1 for a in range(k)])
        return total

    for _ in range(sweeps):
        for l in range(k):
            e = np.moveaxis(exponent(), l, 0).reshape(n, -1)
            top = e.max(axis=1)
            f[l] -= epsilon * (top + np.log(np.exp(e - top[:, None]).sum(axis=1)) + np.log(n))
        plan = np.exp(exponent())
        if error(plan) < tolerance:
            break
    # P log P from the exponent: it is 0 where P underflows
    value = np.sum(plan * cost) + epsilon * np.sum(plan * (exponent() - 1))
    return f, plan, value


def error(plan: np.ndarray) -> float:
    k, n = plan.ndim, plan.shape[0]
    return sum(np.abs(plan.sum(axis=tuple(a for a in range(k) if a != l)) - 1 / n).sum() for l in range(k))
