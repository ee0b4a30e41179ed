"""The tables of docs/design/transport.md that translate epsilon between the costs that Piran 2024 prints."""

import itertools
import re
from pathlib import Path

import numpy as np

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


def test_factors_between_the_scales():
    """The table has four digits. That the loss scales by `cost_scale` is tested with its values."""
    for k, row in table(HEADER).items():
        np.testing.assert_allclose(row, [reading(k) * k**2 for reading in READINGS.values()], rtol=1e-3)


def test_the_papers_epsilons_in_units_of_eq_12():
    header = "| k | 0.2 of Algorithm 2 | 0.05 of Algorithm 2 | 0.2 of the text on k = 2 | 0.05 of the text on k = 2 |"
    for k, row in table(header).items():
        scales = [READINGS[reading](k) * k**2 for reading in ("Algorithm 2", "text on k = 2")]
        expected = [epsilon / scale for scale in scales for epsilon in (0.2, 0.05)]
        np.testing.assert_allclose(row, expected, rtol=1e-3)
