"""The numbers of a study's page, from the records of its cells."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mvcl import metrics
from mvcl.studies import _engine, _verdicts
from mvcl.studies._baseline import Baseline
from mvcl.studies._open import Opened
from mvcl.studies._study import Cell, Found, partner
from mvcl.studies._task import Values

BASELINES = ("untrained encoder", "raw input")
_DIGITS = 6  # more than the spread over seeds justifies


def numbers(opened: Opened, folder: Path) -> dict[str, Any]:
    """All that a page says, of plain types.

    Args:
      opened: the study.
      folder: of its cells.

    Returns:
      Title, text, provenance, factors and measures; "cells" with the values of each seed, their state, intervals and
      paired differences, all in the unit of the table, so per cent for measures in per cent; "baselines"; "claims" with
      their answers. An interval of one seed has None as its ends.
    """
    study = opened.study
    looks = {place: _engine.look(place) for place in _engine.places(study, folder)}
    found = Found(
        study,
        tuple(
            _by_network([(p.seed, look.record) for p, look in looks.items() if p.cell is cell], study.seeds)
            for cell in study.cells
        ),
    )
    records = [look.record for look in looks.values() if look.record]
    content: dict[str, Any] = {
        "name": opened.name,
        "scale": opened.scale,
        "title": study.title,
        "about": study.about,
        "command": " ".join(["mvcl study", *_without_folders(opened.arguments)]),
        "commit": ", ".join(sorted({record["commit"] for record in records})),
        "machine": "; ".join(sorted({record["machine"] for record in records})),
        "versions": {
            name: ", ".join(sorted({record["versions"][name] for record in records}))
            for name in (records[-1]["versions"] if records else ())
        },
        "date": max((record["date"] for record in records), default=""),
        "cost": study.cost,
        "seconds": round(sum(record.get("seconds", 0.0) for record in records)),
        "seeds": study.seeds,
        "factors": list(study.cells[0].factors),
        "columns": study.columns,
        "along": study.along,
        "reference": None if study.reference is None else dict(study.reference),
        "measures": [
            {
                "name": m.name,
                "label": m.label or m.name,
                "percent": m.percent,
                "digits": m.digits,
                "better": m.better,
            }
            for m in study.measures
        ],
    }
    content["cells"] = [_cell(found, cell, looks) for cell in study.cells]
    content["baselines"] = _baselines(found)
    content["claims"] = []
    for claim in study.claims:
        verdict = claim.judge(found)
        content["claims"].append(
            {
                "text": claim.text,
                "source": claim.source,
                "measure": claim.measure,
                "rule": claim.rule,
                "answer": verdict.answer,
                "reason": verdict.reason,
            }
        )
    return content


def _cell(found: Found, cell: Cell, looks: dict[_engine.Place, _engine.Look]) -> dict[str, Any]:
    study = found.study
    mine = {place.seed: look for place, look in looks.items() if place.cell is cell}
    folder = next(place.folder.parent for place in looks if place.cell is cell)
    reference = None if study.reference is None else partner(study, cell, study.reference)
    measures = [m.name for m in study.measures]
    values: dict[str, dict[str, float]] = {}
    for measure in measures:
        for seed, value in found.of(cell, measure).items():
            values.setdefault(str(seed), {})[measure] = _rounded(value)
    return {
        "name": cell.name,
        "factors": dict(cell.factors),
        "folder": f"cells/{folder.name}",
        "printed": dict(cell.printed),
        "seeds": values,
        "status": {str(seed): look.state for seed, look in mine.items()},
        "reasons": sorted({reason for look in mine.values() for reason in look.reasons}),
        "intervals": {m: _plain(metrics.interval(found.of(cell, m).values())) for m in measures},
        "differences": {}
        if reference is None or reference is cell
        else {
            m: {"to": reference.name, **_plain(_verdicts.difference(found, cell, reference, m))}
            for m in measures
        },
        "separates": {m: _separates(found, cell, m) for m in measures},
    }


def _by_network(records: list[tuple[int, dict[str, Any]]], seeds: int) -> dict[int, Values]:
    """Seed -> values; the networks of a seed that were trained side by side count as further seeds."""
    return {
        seed + seeds * network: {name: float(value) for name, value in row.items() if value is not None}
        for seed, record in records
        for network, row in enumerate(record.get("values", ()))
    }


def _separates(found: Found, cell: Cell, measure: str) -> bool | None:
    """Whether training changed a measure: the paired interval to the best baseline is above 0; None without baselines.

    Where less is better, it is below 0. A cell whose runs do not measure the baselines has those of other cells, if all
    that measure them have the same raw input.
    """
    shown = next(m for m in found.study.measures if m.name == measure)
    sign = {"higher": 1, "lower": -1}.get(shown.better)
    if sign is None or isinstance(cell.task, Baseline):
        return None
    own = found.values[found.study.cells.index(cell)]
    rows = (own, *_with_baselines(found)) if _one_baseline(found, measure) else (own,)
    gaps = []
    for seed, value in own.items():
        of_seed = [
            next((row[seed][name] for row in rows if name in row.get(seed, ())), None)
            for name in (f"{row}: {measure}" for row in BASELINES)
        ]
        known = [baseline for baseline in of_seed if baseline is not None]
        if measure in value and known:
            gaps.append(min(sign * (value[measure] - baseline) for baseline in known))
    return metrics.interval(gaps).low > 0 if len(gaps) > 1 else None


def _baselines(found: Found) -> dict[str, dict[str, float]]:
    """Row -> measure -> mean over cells and seeds of the untrained encoder and the raw input.

    Without the measures whose raw input differs between cells: they have several data sets, and no one baseline.
    """
    table: dict[str, dict[str, float]] = {}
    for row in BASELINES:
        for measure in found.study.measures:
            values = _measured(found.values, f"{row}: {measure.name}")
            if values and _one_baseline(found, measure.name):
                scale = 100.0 if measure.percent else 1.0
                table.setdefault(row, {})[measure.name] = _rounded(scale * statistics.fmean(values))
    return table


def _one_baseline(found: Found, measure: str) -> bool:
    """Whether the raw input has the same value in all runs that measure it."""
    raw = _measured(_with_baselines(found), f"{BASELINES[1]}: {measure}")
    return not raw or max(raw) - min(raw) <= 1e-6 * max(map(abs, raw))


def _with_baselines(found: Found) -> list[Mapping[int, Values]]:
    """Of each cell, seed -> values; those of a cell that is a baseline under the name of the baseline."""
    rows: list[Mapping[int, Values]] = []
    for cell, values in zip(found.study.cells, found.values):
        task = cell.task
        if isinstance(task, Baseline):
            values = {
                seed: {f"{task.row}: {name}": value for name, value in row.items()}
                for seed, row in values.items()
            }
        rows.append(values)
    return rows


def _measured(rows: Sequence[Mapping[int, Values]], name: str) -> list[float]:
    return [row[name] for cell in rows for row in cell.values() if name in row]


def _plain(of: metrics.Interval) -> dict[str, float | int | None]:
    ends = (_rounded(end) if math.isfinite(end) else None for end in (of.mean, of.low, of.high))
    return {**dict(zip(("mean", "low", "high"), ends)), "seeds": of.seeds}


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _without_folders(arguments: tuple[str, ...]) -> list[str]:
    """The arguments with paths as their last part only: where files lie is of no use to readers."""
    return [Path(argument).name if "/" in argument else argument for argument in arguments]
