"""Study files: configs/studies/NAME.py, with a function for each scale."""

import dataclasses
import inspect
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mvcl import _configs, training
from mvcl.studies._study import Study

SCALES = ("paper", "small", "smoke")


@dataclasses.dataclass(frozen=True)
class Opened:
    """A study at one scale, with where it came from."""

    name: str
    """Name of its file, without the ending."""
    scale: str
    study: Study
    arguments: tuple[str, ...]
    """Of `mvcl study`, which open it again."""


def scales(file: Path) -> dict[str, Callable[..., Study]]:
    """Scale -> function of a study file, in the order paper, small, smoke.

    Raises:
      ValueError: the file is none of a study.
    """
    module: types.ModuleType = training.config_module(file)
    found = {
        scale: getattr(module, scale) for scale in SCALES if inspect.isfunction(getattr(module, scale, None))
    }
    if not found:
        raise ValueError(f"{file} is no study: it has none of the functions {', '.join(SCALES)}")
    return found


def find(name: str) -> Path:
    """The file of a study, given by the name or as a path.

    Raises:
      ValueError: there is none.
    """
    if name.endswith(".py"):
        file = Path(name)
        if not file.is_file():
            raise ValueError(f"no study at {file}; `mvcl study --list` lists those of the project")
        return file
    file = _configs.STUDIES / f"{name}.py"
    if not file.is_file():
        raise _configs.unknown_study(name, [path.stem for path in study_files()])
    return file


def study_files() -> list[Path]:
    """The study files of the project."""
    return sorted(path for path in _configs.STUDIES.glob("*.py") if not path.name.startswith("_"))


def open_study(file: Path, scale: str, seeds: int, given: Mapping[str, Any]) -> Opened:
    """Open a study at a scale.

    Args:
      file: the study file.
      scale: one of its `scales`.
      seeds: number of seeds.
      given: values of the scale's other `parameters`.

    Raises:
      ValueError: the study is invalid.
    """
    study = scales(file)[scale](seeds=seeds, **given)
    name = file.stem if file.parent == _configs.STUDIES else str(file)
    arguments = [name, "--scale", scale, "--seeds", str(seeds)]
    for option, value in given.items():
        flag = option.replace("_", "-")
        if isinstance(value, bool):
            arguments += [f"--{flag}" if value else f"--no-{flag}"]
        else:
            arguments += [f"--{flag}", str(value)]
    return Opened(file.stem, scale, study, tuple(arguments))


def parameters(function: Callable[..., Study]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a scale besides `seeds`; each is an option of the command."""
    found = dict(inspect.signature(function).parameters)
    found.pop("seeds", None)
    return found


def costs(file: Path) -> dict[str, str]:
    """Scale -> number of runs and cost, for a list of studies; data files are not opened."""
    found = {}
    for scale, function in scales(file).items():
        required: dict[str, Any] = {
            name: Path(name.upper())
            for name, parameter in parameters(function).items()
            if parameter.default is inspect.Parameter.empty
        }
        study = function(**required)
        runs = len(study.cells) * study.seeds
        found[scale] = f"{runs} runs ({len(study.cells)} cells, seeds: {study.seeds}); {study.cost}"
    return found
