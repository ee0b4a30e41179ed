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
IN_UNITS = "0.2 of Algorithm 2 | 0.05 of Algorithm 2 | 0.2 of the text on k = 2 | 0.05 of the text on k = 2"


def table(header):
    """The rows of a table of the page, as {k: numbers}."""
    lines = PAGE.read_text().split(f"| k | {header} |\n")[1].splitlines()[1:]
    rows = [re.findall(r"[\d.]+", line) for line in itertools.takewhile(lambda l: l.startswith("|"), lines)]
    return {int(row[0]): [float(x) for x in row[1:]] for row in rows}


def test_factors_between_the_scales_and_the_papers_epsilons_in_units_of_eq_12():
    """The tables have four digits. That the loss scales by `cost_scale` is tested with its values."""
    units = table(IN_UNITS)
    for k, row in table(" | ".join(READINGS)).items():
        scales = {name: reading(k) * k**2 for name, reading in READINGS.items()}
        np.testing.assert_allclose(row, list(scales.values()), rtol=1e-3)
        expected = [e / scales[name] for name in ("Algorithm 2", "text on k = 2") for e in (0.2, 0.05)]
        np.testing.assert_allclose(units[k], expected, rtol=1e-3)
