"""The file of a study's numbers, checked before it is shown."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

_NUMBER = (int, float)
_INTERVAL = {"mean": (*_NUMBER, None), "low": (*_NUMBER, None), "high": (*_NUMBER, None), "seeds": int}
# A type, or several; [of each item], {of each value}, or the entries of a mapping, which may have others too.
_STUDY: Mapping[str, Any] = {
    **dict.fromkeys(("name", "scale", "title", "about", "command", "commit", "machine", "date", "cost"), str),
    "seconds": _NUMBER,
    "seeds": int,
    "versions": {...: str},
    "factors": [str],
    "columns": (str, None),
    "measures": [{"name": str, "label": str, "percent": bool, "digits": int}],
    "baselines": {...: {...: _NUMBER}},
    "cells": [
        {
            "name": str,
            "folder": str,
            "factors": {...: (str, *_NUMBER)},
            "printed": {...: _NUMBER},
            "status": {...: str},
            "reasons": [str],
            "intervals": {...: _INTERVAL},
            "differences": {...: {"to": str, **_INTERVAL}},
            "separates": {...: (bool, None)},
        }
    ],
    "claims": [dict.fromkeys(("text", "source", "measure", "rule", "answer", "reason"), str)],
}
_DIGITS = 12


def check(content: Any) -> dict[str, Any]:
    """The content of a study's .json file.

    Raises:
      ValueError: something that the page shows is missing, of another type, or does not fit the rest.
    """
    _check(content, _STUDY, "the study")
    factors, measures = content["factors"], [measure["name"] for measure in content["measures"]]
    if not factors or not measures or not content["cells"]:
        raise ValueError("the study must have factors, measures and cells")
    if content["columns"] not in (None, *factors):
        raise ValueError(f"columns must be one of {', '.join(factors)}, got {content['columns']!r}")
    for measure in content["measures"]:
        if not 0 <= measure["digits"] <= _DIGITS:
            raise ValueError(f"digits must be from 0 to {_DIGITS}, got {measure['digits']}")
    for cell in content["cells"]:
        if list(cell["factors"]) != factors:
            raise ValueError(
                f"cell {cell['name']!r} must have the factors {factors}, got {list(cell['factors'])}"
            )
        if lacking := set(measures) - set(cell["intervals"]):
            raise ValueError(f"cell {cell['name']!r} has no interval of {', '.join(sorted(lacking))}")
        for part in (cell["folder"], *cell["status"]):
            if PurePosixPath(part).is_absolute() or ".." in PurePosixPath(part).parts:
                raise ValueError(
                    f"cell {cell['name']!r} must have folders inside that of the study, got {part!r}"
                )
    return dict(content)


def _check(value: Any, kind: Any, where: str) -> None:
    """Raise `ValueError` unless the value is of this kind."""
    if isinstance(kind, list):
        _of_type(value, list, where)
        for i, item in enumerate(value):
            _check(item, kind[0], f"{where}[{i}]")
    elif isinstance(kind, Mapping):
        _of_type(value, dict, where)
        if ... in kind:
            for name, item in value.items():
                _check(item, kind[...], f"{where}, {name}")
            return
        for name, of in kind.items():
            if name not in value:
                raise ValueError(f"{where} must have {name!r}")
            _check(value[name], of, f"{where}, {name}")
    else:
        _of_type(value, kind, where)


def _of_type(value: Any, kinds: Any, where: str) -> None:
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    types = [type(None) if kind is None else kind for kind in kinds]
    if type(value) not in types:  # not isinstance: True is no number
        names = " or ".join("null" if kind is None else kind.__name__ for kind in kinds)
        raise ValueError(f"{where} must be {names}, got {type(value).__name__}")
