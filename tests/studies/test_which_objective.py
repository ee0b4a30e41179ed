"""The study of all objectives, its heat map and its page."""

from docs import which
from mvcl import metrics
from mvcl.studies import _page


def content(**means):
    """Numbers of a study of one kind of views; values are (shared, unique) of three networks."""
    cells = []
    for objective, (shared, unique) in means.items():
        seeds = {str(s): {"shared": shared + 0.01 * s, "unique": unique - 0.01 * s} for s in range(3)}
        missing = {"mean": None, "low": None, "high": None, "seeds": 0}
        intervals = dict.fromkeys(("pair", "part", "synergy"), missing)
        for name in ("shared", "unique"):
            intervals[name] = metrics.interval(v[name] for v in seeds.values())._asdict()
        factors = {"objective": objective, "views": "k = 2"}
        cell = {"name": objective, "factors": factors, "seeds": seeds, "intervals": intervals}
        cells.append(cell | {"instances": None if objective == "untrained" else 128})
    measures = [{"name": name, "label": name} for name in ("shared", "unique", "pair", "part", "synergy")]
    return {"title": "toy", "columns": "views", "measures": measures, "cells": cells}


def test_an_objective_of_fewer_instances_is_named_and_not_the_best():
    numbers = content(untrained=(0.5, 0.5), good=(0.9, 0.2), fair=(0.8, 0.5), also=(0.8, 0.5))
    numbers["cells"][1]["instances"] = 16
    few, shared, _ = which.sentences(numbers, "k = 2")
    assert few == "Compare fewer instances than the others, and are not among the best: `good` 16."
    assert "3 of 3 objectives keep it" in shared
    assert shared.endswith("Best, and not told apart from the best: `fair` 0.81, `also` 0.81.")


def test_the_page_says_what_was_compared_and_tuned_and_ends_with_what_to_use():
    pairs = "all_pairs(info_nce)"
    means = {"untrained": (0.5, 0.5), pairs: (0.8, 0.3), "good": (0.9, 0.3), "autoencoder": (0.8, 0.9)}
    numbers = content(**means)
    numbers["cells"][2]["intervals"]["temperature"] = {"mean": 0.2}
    numbers["cells"] += [{"name": "later", "factors": {"objective": "later", "views": "k = 2"}, "seeds": {}}]
    lines = which.page({"which_objective": numbers}).splitlines()
    assert "| good | 128 | temperature 0.2 | 0.91 [0.89, 0.93] | 0.29 [0.27, 0.31] |" in lines
    assert "Not run: `later`." in lines
    advice = f"| k = 2 (1 not run) | 3 | `good` (temperature 0.2) 0.91; `{pairs}` 0.81; untrained 0.51"
    advice += " | none keeps it; autoencoder 0.89; untrained 0.49 |  |"
    assert lines[-1] == advice


def test_an_objective_that_is_hardly_better_than_pairs_is_not_recommended():
    pairs = "all_pairs(info_nce)"
    numbers = content(**{"untrained": (0.5, 0.5), pairs: (0.89, 0.3), "good": (0.9, 0.6)})
    for seed, of in numbers["cells"][2]["seeds"].items():  # the same difference for each network
        of |= {"shared": 0.905 + 0.01 * int(seed), "unique": 0.6 + 0.001 * int(seed)}
    advice = which.page({"which_objective": numbers}).splitlines()[-1]
    assert advice.startswith(f"| k = 2 | 3 | `{pairs}` 0.90; untrained 0.51 | `good` ")


def test_the_last_table_is_written_before_pairs_have_run():
    numbers = content(untrained=(0.5, 0.5), good=(0.9, 0.6))
    last = "| k = 2 | 3 | `good` 0.91; untrained 0.51 | `good` 0.59; untrained 0.49 |  |\n"
    assert which.page({"which_objective": numbers}).endswith(last)


def test_the_maps_are_drawn_from_the_published_numbers(tmp_path):
    for name, numbers in which.published().items():
        _page.heat_map(numbers, tmp_path / "map.svg", which.measures(numbers))
        assert which.MAPS[name].read_text() == (tmp_path / "map.svg").read_text()
