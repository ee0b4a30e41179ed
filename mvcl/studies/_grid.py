"""A study: the cells of a table or a figure, what is measured of each, and what the paper prints; and study files."""

import dataclasses
import inspect
import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from mvcl import _checks, _configs, training
from mvcl.training import Config

Factors = Mapping[str, str | int | float]
"""What a cell of a grid varies, by name."""
Values = dict[str, float]
"""Values of the measures of one run, by name."""
SCALES = ("paper", "small", "smoke")
SEEDS = 20
"""Of a study at scale small: differences with a deviation of 0.7 points have a half-width of 0.5 in 10 comparisons."""
POINTS = 0.5
"""Differences of shares of at most so many points are equal, unless the study says why not."""


class Task(Protocol):
    """The work of a cell, a frozen dataclass: its fields decide whether a finished cell is still valid."""

    def run(self, folder: Path, seed: int) -> Sequence[Values]:
        """Do the work and return what was measured: an entry for each network trained side by side, usually one.

        Called again after a kill, it goes on with the files in its folder. `seed` is that of all random draws.
        """


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """The config with values replaced by dotted name, {"views.k": 4}; `ValueError` if there is no such field."""
    for name, value in changes.items():
        config = training.replace_at(config, name.split("."), value)
    return config


def results(folder: Path) -> list[Values]:
    """The results of a finished run, one entry: those of the trained encoder under their names, others under "untrained
    encoder: NAME" and "raw input: NAME", and "loss" and "loss, first epoch", the means over the logged steps of the
    last and of the first epoch, the second if there are two epochs; "below chance" is how far the last one is below the
    chance level, where the run logs it."""
    rows = json.loads((folder / "evaluation.json").read_text())["rows"]
    found: Values = {
        ("" if row == "trained encoder" else f"{row}: ") + result["name"]: result["value"]
        for row, measured in rows.items()
        for result in measured
        if result["value"] is not None
    }
    logged = [line for line in training.read_log(folder / "metrics.jsonl") if "loss" in line]
    if not logged:
        raise ValueError(f"{folder}/metrics.jsonl has no loss; delete {folder} to run it again")
    end = logged[-1]["epoch"] - 1
    found["loss"] = float(np.mean([line["loss"] for line in logged if line["epoch"] > end]))
    if math.isfinite(level := logged[-1].get("chance", math.inf)):  # the same in every line
        found["below chance"] = level - found["loss"]
    if end >= 1 and (first := [line["loss"] for line in logged if line["epoch"] <= 1]):
        found["loss, first epoch"] = float(np.mean(first))
    return [found]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """A run of `training.train`; a `Task`."""

    config: Config
    seeded: tuple[str, ...] = ("train.seed",)
    """Its fields, by dotted name, that are replaced by the seed of the cell."""
    measure: Callable[[Path], Sequence[Values]] = results
    """What is measured of the finished run folder."""

    @property
    def instances(self) -> int:
        """Number of instances that the objective compares."""
        return self.config.train.group or self.config.examples

    def run(self, folder: Path, seed: int) -> Sequence[Values]:
        """Train, or resume, and measure."""
        training.train(changed(self.config, dict.fromkeys(self.seeded, seed)), folder)
        return self.measure(folder)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Baseline:
    """What the evaluation of a run compares its trained encoder with; a `Task`. The raw input has no seed."""

    config: Config
    row: str
    """One of `training.BASELINES`."""

    @property
    def seeded(self) -> bool:
        return self.row == training.BASELINES[0]

    def run(self, folder: Path, seed: int) -> Sequence[Values]:
        """Measure the row; its results under their names."""
        run = training.prepare(changed(self.config, {"train.seed": seed}))
        return [{of.name: of.value for of in training.baseline(run, self.row) if of.value is not None}]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One place of a study: a task, run once per seed."""

    factors: Factors
    """What distinguishes it from the other cells: {"objective": "MV-DHEL", "k": 4}."""
    task: Task | None
    """None: the paper's, and not run; only in `Study.printed_only`."""
    printed: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Measure name -> value that the paper prints, in the unit of the table: per cent for a `Measure` in per cent."""
    deviations: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Measure name -> standard deviation over runs that the paper prints, in the same unit."""

    @property
    def name(self) -> str:
        """The factors as text: "objective MV-DHEL, k 4"."""
        return ", ".join(f"{factor} {level}" for factor, level in self.factors.items())


def trained(
    factors: Factors,
    config: Config,
    changes: Mapping[str, Any] | None = None,
    printed: Mapping[str, float] | None = None,
    measure: Callable[[Path], Sequence[Values]] = results,
) -> Cell:
    """A cell that trains a config with `changes`, see `changed`."""
    task = Training(config=changed(config, changes or {}), measure=measure)
    return Cell(factors, task, printed or {})


@dataclasses.dataclass(frozen=True)
class Measure:
    """A number that is measured in every cell, and how it is shown."""

    name: str
    """Key of the values that tasks return."""
    label: str = ""
    """Heading; empty: the name."""
    percent: bool = False
    """Whether the value is a share, shown in per cent; where no values are `better`, a difference of shares."""
    digits: int = 1
    """Digits after the point."""
    better: str = "higher"
    """Which values are better, for readers: "higher", "lower" or ""."""


class Margin(NamedTuple):
    """Differences of at most so much are equal, in the unit of the table."""

    size: float
    reason: str
    """Why, for readers."""


class Noise(NamedTuple):
    """The standard deviation of one run, in the unit of the table."""

    deviation: float
    source: str
    """Where it comes from, for readers."""
    degrees: float = 1e9
    """Degrees of freedom; by default the deviation is known."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """A grid of cells with their measures; at one scale, as a function of a file in configs/studies returns it."""

    title: str
    """Such as "Koromilas 2025, Table II: linear accuracy by number of views"."""
    about: str
    """Markdown, one or more paragraphs: what the paper does, what is done here, and every difference."""
    cells: Sequence[Cell]
    measures: Sequence[Measure]
    """The first is that of the figure."""
    claims: Sequence[Any] = ()
    """What the paper says that its cells show, each a `Claim`."""
    columns: str | None = None
    """Factor whose levels are columns; None: the measures are the columns."""
    printed_only: Sequence[Cell] = ()
    """Rows of the paper's table that are not run, cells without a task; what claims say of them is not judged."""
    printed_runs: int = 0
    """Number of runs behind each printed mean; 0: the paper does not say."""
    noise: Mapping[str, Noise] = dataclasses.field(default_factory=dict)
    """Measure name -> what the paper's numbers show of the spread of one run, where they have no deviations; it tells
    what these numbers decide (`docs.printed`), and decides nothing of ours."""
    margins: Mapping[str, Margin] = dataclasses.field(default_factory=dict)
    """Measure name -> margin; others have 0.5 points where they are shares, else none."""
    reference: Factors | None = None
    """Paired differences are to the cell with these factors in place of its own; None: no differences."""
    maps: Sequence[str] = ()
    """Measures whose means are also drawn as a map with a block for each level of `columns`."""
    along: str | None = None
    """Factor on the horizontal axis of the figure, of numbers; None: a line for each cell."""
    against: Sequence[str] = ()
    """With `along`: measures that have a panel of the figure each, with their means on the horizontal axis."""
    unequal: str = ""
    """Why objectives of the cells compare different numbers of instances; needed if they do."""
    seeds: int = SEEDS
    """Seeds 0 to seeds - 1 of every cell."""
    cost: str
    """Hardware and time of all cells, measured or estimated, and how: "25 minutes on 2 cores"."""

    def __post_init__(self) -> None:
        if not self.cells or not self.measures:
            raise ValueError(f"a study must have cells and measures, got none in {self.title!r}")
        _checks.whole("seeds", self.seeds)
        every = [*self.cells, *self.printed_only]
        names = [cell.name for cell in every]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"the cells of a study must differ in their factors, got {twice[0]!r} twice")
        factors, measures = list(self.cells[0].factors), [measure.name for measure in self.measures]
        if other := [list(cell.factors) for cell in every if list(cell.factors) != factors]:
            raise ValueError(f"the cells must have the same factors, got {factors} and {other[0]}")
        if len(set(measures)) < len(measures):
            raise ValueError(f"the measures of a study must have different names, got {', '.join(measures)}")
        for field in ("columns", "along"):
            _checks.option(field, getattr(self, field) or factors[0], factors)
        used = {f"a printed value of {cell.name!r}": (*cell.printed, *cell.deviations) for cell in every}
        used |= {name: tuple(getattr(self, name)) for name in ("noise", "margins", "against", "maps")}
        used |= {f"the measure of the claim {claim.text!r}": (claim.measure,) for claim in self.claims}
        for what, given in used.items():
            for name in given:
                _checks.option(what, name, measures)
        if self.maps and self.columns is None:
            raise ValueError(f"maps need `columns`, got None in {self.title!r}")
        compared = {n: cell.name for cell in self.cells if (n := getattr(cell.task, "instances", None))}
        if len(compared) > 1 and not self.unequal:
            some = ", ".join(f"{n} ({name})" for n, name in sorted(compared.items()))
            what = f"objectives of {self.title!r} compare different numbers of instances, {some}"
            raise ValueError(f"{what}; give them one number, or say in `unequal` why not")
        select(self, self.reference or {})
        for claim in self.claims:
            if not claim.about(self):
                raise ValueError(f"the claim {claim.text!r} is about no cells of {self.title!r}")

    def margin(self, measure: str) -> float | None:
        """Of a measure, by name; None: without one, only differences of zero are equal."""
        share = any(m.percent for m in self.measures if m.name == measure)
        return self.margins[measure].size if measure in self.margins else POINTS if share else None

    @cached_property
    def comparisons(self) -> int:
        """Number of the comparisons of all claims; one that several claims share counts once."""
        compared = {
            (claim.measure, tuple(sorted(names)) if len(names) == 2 else names)
            for claim in self.claims
            for group in claim.about(self)
            for names in [tuple(cell.name for cell in cells) for cells in group]
        }
        return len(compared)

    @property
    def level(self) -> float:
        """Of the interval of a comparison, so that all together are covered with 95% (Bonferroni)."""
        return 1 - 0.05 / max(1, self.comparisons)


@dataclasses.dataclass(frozen=True)
class Found:
    """What was measured so far: for each cell, seed -> values. Seeds count all networks of a task."""

    study: Study
    values: Sequence[Mapping[int, Values]]
    not_trained: Mapping[str, Collection[str]] = dataclasses.field(default_factory=dict)
    """Name of a cell -> measures of which it decides nothing."""

    def of(self, cell: Cell, measure: str) -> dict[int, float]:
        """Seed -> value of a measure, for the seeds that have it; per cent if the measure is in per cent."""
        scale = 100.0 if any(m.percent for m in self.study.measures if m.name == measure) else 1.0
        rows = self.values[self.study.cells.index(cell)]
        return {seed: scale * row[measure] for seed, row in rows.items() if measure in row}


def select(study: Study, factors: Factors) -> tuple[Cell, ...]:
    """The cells with these levels of these factors; `ValueError` if cells have no such factor."""
    known = study.cells[0].factors
    if unknown := [name for name in factors if name not in known]:
        raise ValueError(f"cells are chosen by the factors {', '.join(known)}, got {unknown[0]!r}")
    wanted = factors.items()
    return tuple(cell for cell in study.cells if all(cell.factors[n] == level for n, level in wanted))


def chosen(study: Study, only: str) -> list[str]:
    """The names of the cells with these levels, "objective=MV-DHEL,k=2,k=4"; of all without any. `ValueError` for none.

    Levels of one factor are alternatives; a word may leave out its capitals, spaces and signs ("mv_dhel"). Baselines,
    by which the others are not trained, are always among them.
    """
    wanted: dict[str, list[str | int | float]] = {}
    factors = "|".join(map(re.escape, study.cells[0].factors))
    # Levels may have commas and signs of equality: "pairs, epsilon", "InfoNCE pwe, n = 16".
    for part in filter(None, re.split(rf",\s*(?=(?:{factors})\s*=|[^,=\s]+=)", only)):
        factor, given = (word.strip() for word in part.partition("=")[::2])
        known = dict.fromkeys(cell.factors.get(factor, "") for cell in study.cells)
        if factor not in study.cells[0].factors:
            there = ", ".join(study.cells[0].factors)
            raise ValueError(f"--only is FACTOR=LEVEL,... of the factors {there}; got {part!r}")
        same = [level for level in known if _plain(level) == _plain(given)]
        if not same:
            raise ValueError(f"--only {factor} is one of {'; '.join(map(str, known))}; got {given!r}")
        wanted.setdefault(factor, []).append(min(same, key=lambda level: str(level) != given))
    names = {c.name for c in study.cells if all(c.factors[name] in levels for name, levels in wanted.items())}
    if not names:
        raise ValueError(f"--only {only} is of no cell; `--dry-run` lists all")
    return [c.name for c in study.cells if c.name in names or isinstance(c.task, Baseline)]


def claimed(study: Study, only: str) -> Study:
    """The study with those claims alone that compare no cells but the `chosen` ones."""
    names = {*chosen(study, only)}
    inside = [
        {c.name for group in claim.about(study) for cells in group for c in cells} for claim in study.claims
    ]
    claims = [claim for claim, of in zip(study.claims, inside) if of <= names]
    return dataclasses.replace(study, claims=claims)


def _plain(level: str | int | float) -> str | float:
    """A number, or a word of small letters and digits."""
    try:
        return float(level)
    except ValueError:
        return re.sub(r"[\W_]+", "", str(level).casefold())


def partner(study: Study, cell: Cell, factors: Factors) -> Cell | None:
    """The cell with these factors in place of its own; None if there is none."""
    found = select(study, {**cell.factors, **factors})
    return found[0] if found else None


@dataclasses.dataclass(frozen=True)
class Opened:
    """A study at one scale, with where it came from."""

    name: str  # of its file, without the ending
    scale: str
    study: Study
    arguments: tuple[str, ...]  # of `mvcl study`, which open it again


def study_files() -> list[Path]:
    """The study files of the project; a file whose name starts with `_` is shared by several and no study."""
    return sorted(path for path in _configs.STUDIES.glob("*.py") if not path.name.startswith("_"))


def find(name: str) -> Path:
    """The file of a study, given by the name or as a path; `ValueError` if there is none."""
    known = {path.stem: path for path in study_files()}
    file = Path(name) if name.endswith(".py") else known.get(name)
    if file is None or not file.is_file():
        lists = "`mvcl study --list` lists them; a file of your own ends with .py"
        raise ValueError(f"no study {name!r}; {_configs.hint(name, list(known))}{lists}")
    return file


def scales(file: Path) -> dict[str, Callable[..., Study]]:
    """Scale -> function of a study file, in the order paper, small, smoke; `ValueError` if it has none."""
    module = vars(training.config_module(file))
    if found := {scale: module[scale] for scale in SCALES if inspect.isfunction(module.get(scale))}:
        return found
    raise ValueError(f"{file} is no study: it has none of the functions {', '.join(SCALES)}")


def without_data(function: Callable[..., Study], **given: Any) -> Study:
    """The study of a scale with placeholders for its files, which building does not open."""
    parameters = inspect.signature(function).parameters
    needed = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    return function(**{name: Path(name.upper()) for name in needed} | given)


def costs(file: Path) -> dict[str, str]:
    """Scale -> number of runs and cost, for a list of studies."""
    return {
        scale: f"{len(of.cells) * of.seeds} runs ({len(of.cells)} cells, seeds: {of.seeds}); {of.cost}"
        for scale, function in scales(file).items()
        for of in [without_data(function)]
    }
