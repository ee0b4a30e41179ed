"""Parameters of which the fast suite runs some, and `make test-all` the rest."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def some(values: Iterable[Any], *, fast: Collection[Any]) -> list[Any]:
    """All values as parameters of a test; those that are not in `fast` are marked `exhaustive`."""
    values = list(values)
    unknown = [value for value in fast if value not in values]
    assert not unknown, f"not among the values: {unknown}"
    return [v if v in fast else pytest.param(v, marks=pytest.mark.exhaustive) for v in values]
