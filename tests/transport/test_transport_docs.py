"""The example at the head of docs/design/transport.md runs."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_example_at_the_head():
    page = (DOCS / "design" / "transport.md").read_text(encoding="utf-8")
    names: dict = {}
    exec(re.findall(r"```python\n(.*?)```", page[: page.index("## The problem")], re.DOTALL)[0], names)
    assert names["out"].converged
    assert names["warm"].converged
    assert names["warm"].potentials[1][0] == -float("inf")
    assert names["loss"] > 0
    assert names["share"] > 0.5
