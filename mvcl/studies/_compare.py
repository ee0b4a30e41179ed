"""Objectives side by side: one config trained with each of them, as a study of one's own."""

import dataclasses
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from mvcl import losses
from mvcl.studies import _run, _table
from mvcl.studies._grid import Measure, Opened, Study, trained
from mvcl.training import Config

_ABOUT = (
    "The config of the command above is trained with each objective and nothing else changed, so that differences are "
    "paired by seed. The options of an objective are its own: none was tuned for this config."
)


def compare(
    config: Config,
    objectives: Mapping[str, losses.Loss] | Sequence[losses.Loss],
    folder: str | Path,
    *,
    seeds: int = 3,
    levels: Mapping[str, Sequence[Any]] | None = None,
    command: str = "mvcl.studies.compare",
) -> pd.DataFrame:
    """Train a config with each objective and several seeds, and compare what its evaluation measures.

        table = studies.compare(config, [losses.mv_dhel, my_loss], "runs/compare/mine", seeds=3)

    Finished runs are kept, in `folder`/../cells, for every comparison beside this one. The page compare.md has the
    table with 95% intervals, baselines, paired differences to the first objective and a figure; compare.csv all seeds.

    Args:
      config: whose `evaluation` gives the measures.
      objectives: functions, by the names to show or by their own.
      folder: of the page.
      seeds: at least 1; of one seed there are no intervals.
      levels: dotted field -> its values, {"views.k": (2, 4)}: every combination is trained.
      command: shown on the page.

    Returns:
      A row for each objective, combination and measure: mean, low and high (95%), seeds, and the paired difference to
      the first objective, `minus_first`, with its ends. `attrs` has the `page` and how many runs `failed`.

    Raises:
      ValueError: no objective is given, two have one name, or nothing was measured.
    """
    named = objectives if isinstance(objectives, Mapping) else {losses.name(of): of for of in objectives}
    if not named or len(named) < len(objectives):
        got = list(objectives)
        raise ValueError(f"objectives must be functions of different names, or a dict, got {got}")
    grid, place = dict(levels or {}), Path(folder)
    cells = []
    for chosen in itertools.product(*grid.values()):
        of: dict[str, Any] = dict(zip(grid, chosen))
        cells += [trained({"objective": n} | of, config, {"objective": f} | of) for n, f in named.items()]
    several = len({getattr(cell.task, "instances", None) for cell in cells}) > 1
    study = Study(
        title="Objectives compared",
        about=_ABOUT,
        cells=cells,
        measures=[Measure("loss")],
        reference={"objective": cells[0].factors["objective"]},
        unequal="The settings change the number of instances that are compared." * several,
        seeds=seeds,
        cost="not estimated",
    )
    failed = _run.run(study, place)
    measures = _measures(study, place)
    if not measures:
        raise ValueError(f"no run has measured anything; the logs in {place / 'cells'} say why")
    study = dataclasses.replace(study, measures=measures)
    content = _table.numbers(Opened("compare", "", study, (command,)), place)
    content["command"] = command
    rows = pd.DataFrame(_rows(content, {m.name: 0.01 if m.percent else 1.0 for m in measures}))
    rows.attrs |= {"page": str(_table.write(content, place, "compare")), "failed": failed}
    return rows


def _measures(study: Study, folder: Path) -> list[Measure]:
    """What the evaluation of a finished run has measured."""
    for place in _run.places(study, folder):
        if _run.look(place).state in ("finished", "stale"):
            rows = json.loads((place.folder / "evaluation.json").read_text())["rows"]["trained encoder"]
            known = [of for of in rows if of["value"] is not None]
            shares = [of["better"] == "higher" and 0 <= of["value"] <= 1 for of in known]
            return [
                Measure(of["name"], percent=share, digits=1 if share else 3, better=of["better"])
                for of, share in zip(known, shares)
            ]
    return []


def _rows(content: Mapping[str, Any], scale: Mapping[str, float]) -> list[dict[str, Any]]:
    rows, columns = [], {"mean": "minus_first", "low": "minus_first_low", "high": "minus_first_high"}
    for cell in content["cells"]:
        for name, of in cell["intervals"].items():
            by, gap = scale[name], cell["differences"].get(name, {})
            ends = {end: math.nan if of[end] is None else by * of[end] for end in columns}
            gaps = {column: by * gap[end] for end, column in columns.items() if gap.get(end) is not None}
            rows.append({**cell["factors"], "measure": name, **ends, "seeds": of["seeds"], **gaps})
    return rows
