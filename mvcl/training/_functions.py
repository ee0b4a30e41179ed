"""Options of the functions in a config, from signature and docstring."""

import dataclasses
import difflib
import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, Literal

import docstring_parser

from mvcl import losses

Function = Callable[..., Any]
# Arrays and mesh axes that training passes to an objective; not options of the command line.
_GIVEN_IN_TRAINING = {"mask", "axis_name", "key", "queue", "extra_negatives", "weights"}
_PLAIN = (bool, int, float, str)


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of a function.

    Attributes:
      kind: type on the command line; None if it can be set only in a config file.
      default: its default value.
      help: from the docstring.
    """

    kind: Any
    default: Any
    help: str


def is_function(value: Any) -> bool:
    """Whether a config's value is a function or a `functools.partial` of one."""
    return isinstance(value, functools.partial) or inspect.isroutine(value)


def parts(function: Function) -> tuple[Function, dict[str, Any]]:
    """The function that a config names, and the options that are set.

    For the result of a higher-order function: that function and its arguments, such as `all_pairs` and `pair`.

    Raises:
      ValueError: an option is positional or unknown.
    """
    inner, given = losses.unwrap(function)
    named = losses.higher_order(inner) or inner
    known = inspect.signature(named).parameters
    anything = any(p.kind is p.VAR_KEYWORD for p in known.values())
    if misspelt := None if anything else next((name for name in given if name not in known), None):
        raise ValueError(unknown_option(named.__name__, misspelt, list(options(named))))
    return named, given


def rebuild(named: Function, options: dict[str, Any]) -> Function:
    """The inverse of `parts`."""
    if losses.is_higher_order(named):
        return named(**options)
    return functools.partial(named, **options) if options else named


def options(named: Function) -> dict[str, Option]:
    """The options of a function: its parameters with defaults, and pair losses of higher-order functions."""
    hints = typing.get_type_hints(named)
    parsed = docstring_parser.parse(named.__doc__ or "")
    helps = {p.arg_name: " ".join((p.description or "").split()) for p in parsed.params}
    found = {}
    for name, parameter in inspect.signature(named).parameters.items():
        empty = parameter.default is inspect.Parameter.empty
        if name in _GIVEN_IN_TRAINING or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if empty and not losses.is_higher_order(named):
            continue  # embeddings
        kind = _kind(hints.get(name, type(parameter.default)))
        found[name] = Option(kind, losses.nt_xent if empty else parameter.default, helps.get(name, ""))
    return found


def unknown_option(owner: str, name: str, known: list[str]) -> str:
    """An error message with the nearest option."""
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{owner} has no option {name!r}; {hint}It has {', '.join(known)}"


def _kind(hint: Any) -> Any:
    """The type of an option on the command line: names, with numbers if those are accepted too; else a number."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    members = typing.get_args(hint) if union else (hint,)
    for member in members:
        if typing.get_origin(member) is Literal:
            return member | float if float in members else member
    plain = [member for member in members if member in _PLAIN]
    if not plain:
        return None
    kind = float if float in plain else plain[0]
    return kind | None if types.NoneType in members else kind
