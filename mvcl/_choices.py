"""FIELD:CHOICE arguments: fields whose value is chosen by name, and the names, read without importing jax."""

import ast
import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

_OBJECTIVES = "losses"
# Field -> file and name of the table of its choices, or the package whose decorated functions they are; None if the
# names are known only after the imports.
_TABLES = {
    "data": "data/_registry.py SOURCES",
    "views.policy": "augment/_policy.py POLICIES",
    "views.local_policy": "augment/_policy.py POLICIES",
    "encoder": "models/_registry.py ENCODERS",
    "head": "models/_registry.py HEADS",
    "objective": _OBJECTIVES,
    "objective.pair": None,
    "objective.cost": None,
    "objective.pair.cost": None,
    "method": "methods/__init__.py METHODS",
    "method.predictor": "models/_registry.py HEADS",
    "method.fusion": None,
    "evaluation": "evaluation/__init__.py EVALUATIONS",
    "evaluation.linear": None,
    "optimizer": "training/_optimizers.py OPTIMIZERS",
}
FIELDS = tuple(_TABLES)
_HERE = Path(__file__).parent


def split(arguments: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """The (field, choice) arguments in order, and the other arguments.

    Raises:
      ValueError: there is no such field; the message names the nearest.
    """
    chosen, rest = [], []
    for position, argument in enumerate(arguments):
        spelt, colon, name = argument.partition(":")
        field = spelt.replace("-", "_")  # as options are spelt: views.local-policy
        is_value = position > 0 and arguments[position - 1].startswith("--") and field not in FIELDS
        if argument.startswith("-") or not colon or is_value:
            rest.append(argument)
            continue
        if field not in FIELDS:
            raise unknown_field(field, name)
        chosen.append((field, name))
    return chosen, rest


def check(arguments: Sequence[str]) -> None:
    """Raise `ValueError` for a field or a choice that does not exist, as far as it can be told before the imports."""
    for field, name in split(arguments)[0]:
        known = names(field)
        if known and name.replace("-", "_") not in known:
            raise unknown(field, name, known)


def unknown_field(field: str, name: str) -> ValueError:
    """The error of an unknown field."""
    close = difflib.get_close_matches(field, FIELDS, n=1)
    hint = f"did you mean {close[0]}:{name}? " if close else ""
    return ValueError(
        f"{field}:{name} is not a known field; {hint}Fields chosen by name are {', '.join(FIELDS)}"
    )


def unknown(field: str, name: str, known: Iterable[str]) -> ValueError:
    """The error of an unknown choice."""
    known = list(known)
    close = difflib.get_close_matches(name.replace("-", "_"), known, n=1)
    hint = f"did you mean {field}:{close[0]}? " if close else ""
    return ValueError(f"unknown {field} {name!r}; {hint}Known: {', '.join(known)}")


def names(field: str) -> list[str]:
    """The choices of a field; empty if they are known only after the imports."""
    where = _TABLES[field]
    if where is None:
        return []
    if where == _OBJECTIVES:
        return sorted(name for file in (_HERE / where).glob("_*.py") for name in _declared(file))
    file, table = where.split()
    for node in ast.parse((_HERE / file).read_bytes()).body:
        if (
            isinstance(node, ast.AnnAssign)
            and ast.unparse(node.target) == table
            and isinstance(node.value, ast.Dict)
        ):
            return [ast.literal_eval(key) for key in node.value.keys if key is not None]
    return []


def _declared(file: Path) -> Iterable[str]:
    """The public functions of a file that declare what they take."""
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            makers = [call.func for call in node.decorator_list if isinstance(call, ast.Call)]
            if {ast.unparse(maker) for maker in makers} & {"declare", "makes"}:
                yield node.name
