"""The tables of docs/design/transport.md that translate epsilon between the costs that Piran 2024 prints."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from parametrize import some

from mvcl.losses import m3g, m3g_with_status
from tests.transport import tensors

PAGE = Path(__file__).parents[2] / "docs" / "design" / "transport.md"
# Factors of Σ_{l<m} ||z_l - z_m||² as printed.
READINGS = {
    "Eq. 12": lambda k: 1 / k**2,
    "Algorithm 2": lambda k: (2 / (k - 1)) ** 2,
    "text on k = 2": lambda k: 1,
    "line before Eq. 12": lambda k: 2 * k / (k - 1),
}
HEADER = "| k | " + " | ".join(READINGS) + " |"


def table(header):
    """The rows of a table of the page, as {k: numbers}."""
    lines = PAGE.read_text().split(header + "\n")[1].splitlines()[1:]
    rows = [re.findall(r"[\d.]+", line) for line in itertools.takewhile(lambda l: l.startswith("|"), lines)]
    return {int(row[0]): [float(x) for x in row[1:]] for row in rows}


@pytest.mark.parametrize("k", some(range(2, 7), fast=[]))
def test_plans_are_equal_at_the_epsilons_of_the_table(x64, rng, k):
    n, epsilon = 3, 0.3
    z = rng.normal(size=(k, n, 3))
    z /= np.linalg.norm(z, axis=-1, keepdims=True)
    spread = np.zeros((n,) * k)
    for index in np.ndindex(*spread.shape):
        points = [z[l, i] for l, i in enumerate(index)]
        spread[index] = sum(np.sum((a - b) ** 2) for a, b in itertools.combinations(points, 2))
    factors = dict(zip(READINGS, table(HEADER)[k]))
    uniform = [np.full(n, 1 / n)] * k
    _, expected, _ = tensors.solve(READINGS["Eq. 12"](k) * spread, uniform, epsilon)
    solver = {"tolerance": 1e-12, "max_iterations": 3000}
    loss = m3g(z, epsilon, **solver)
    for reading, of_distances in READINGS.items():
        _, plan, _ = tensors.solve(of_distances(k) * spread, uniform, factors[reading] * epsilon)
        np.testing.assert_allclose(plan, expected, rtol=2e-3)  # the table has four digits
        exact = of_distances(k) * k**2
        scaled, _ = m3g_with_status(z, epsilon=exact * epsilon, cost_scale=exact, **solver)
        np.testing.assert_allclose(scaled, exact * loss, rtol=1e-9)
        np.testing.assert_allclose(factors[reading], exact, rtol=1e-3)


def test_the_papers_epsilons_in_units_of_eq_12():
    header = "| k | 0.2 of Algorithm 2 | 0.05 of Algorithm 2 | 0.2 of the text on k = 2 | 0.05 of the text on k = 2 |"
    for k, row in table(header).items():
        scales = [READINGS[reading](k) * k**2 for reading in ("Algorithm 2", "text on k = 2")]
        expected = [epsilon / scale for scale in scales for epsilon in (0.2, 0.05)]
        np.testing.assert_allclose(row, expected, rtol=1e-3)
