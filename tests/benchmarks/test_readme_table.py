"""The table of objectives in README.md."""

import json

import pytest

from docs import readme
from mvcl import losses

RESULTS = json.loads(readme.NUMBERS.read_text(encoding="utf-8"))


def test_table_is_up_to_date():
    page = readme.PAGE.read_text(encoding="utf-8")
    assert page == readme.written(page, RESULTS), "run python -m docs.readme"


def test_table_has_every_public_objective_once():
    listed = [losses.name(objective) for group in readme.GROUPS for objective in group.objectives]
    assert sorted(listed) == sorted(losses.objectives())


@pytest.mark.parametrize(
    ("ours", "released", "text"),
    [(2.0, 25.2, " 13x"), (2.0, 9.9, " 5.0x"), (4.0, 2.0, " 0.5x"), (1.0, None, "")],
)
def test_speed_is_the_time_of_released_code_by_ours(ours, released, text):
    assert readme.speed({"ours_ms": ours, "released_ms": released}) == text


def test_objective_without_released_code_has_no_speed():
    assert readme.speed(None) == ""


def test_page_without_its_place_raises():
    with pytest.raises(ValueError, match=r"one part '<!-- objectives -->', got 0"):
        readme.written("text", RESULTS)
