"""Parts of a config: functions and dataclasses, with their options."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from mvcl import losses
from mvcl._configs import hint

# Arrays and mesh axes that training passes to an objective; not options of the command line.
_GIVEN_IN_TRAINING = {"mask", "axis_name", "key", "queue", "extra_negatives", "weights"}
PLAIN = (bool, int, float, str)


def is_function(value: Any) -> bool:
    """Whether a config's value is a function or a `functools.partial` of one."""
    return isinstance(value, functools.partial) or inspect.isroutine(value)


def is_part(value: Any) -> bool:
    """Whether a config's value has options of its own: a function or a dataclass."""
    return is_function(value) or (dataclasses.is_dataclass(value) and not isinstance(value, type))


def parts(value: Any) -> tuple[Any, dict[str, Any]]:
    """The function or class of a part of a config, and all its options with their values.

    For the result of a higher-order function: that function and its arguments, such as `all_pairs` and `pair`.

    Raises:
      ValueError: an option is positional or unknown.
    """
    if not is_function(value):
        return type(value), {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    inner, given = losses.unwrap(value)
    named = losses.higher_order(inner) or inner
    known, found = inspect.signature(named).parameters, defaults(named)
    anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    if misspelt := None if anything else next((name for name in given if name not in known), None):
        raise ValueError(unknown_option(named.__name__, misspelt, list(found)))
    return named, found | given


def rebuild(named: Any, options: dict[str, Any]) -> Any:
    """The inverse of `parts`."""
    if isinstance(named, type) or losses.is_higher_order(named):
        return named(**options)
    return functools.partial(named, **options) if options else named


def defaults(named: Callable[..., Any]) -> dict[str, Any]:
    """The options of a function with their defaults; that of the pair loss of a higher-order function is `nt_xent`."""
    higher = losses.is_higher_order(named)
    return {
        name: losses.nt_xent if parameter.default is parameter.empty else parameter.default
        for name, parameter in inspect.signature(named).parameters.items()
        if name not in _GIVEN_IN_TRAINING
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        and (higher or parameter.default is not parameter.empty)  # else embeddings
    }


def unknown_option(owner: str, name: str, known: list[str]) -> str:
    """An error message with the nearest option."""
    near = hint(name, {option: repr(option) for option in known})
    return f"{owner} has no option {name!r}; {near}It has {', '.join(known)}"


def replace_at(node: Any, path: Sequence[str], value: Any) -> Any:
    """A config, or a part of it, with the value at a path of field and option names replaced."""
    if not path:
        return value
    named, found = parts(node) if is_part(node) else (type(node), {})
    if path[0] not in found:
        kind = "option" if is_function(node) else "field"
        raise ValueError(f"{named.__name__} has no {kind} {path[0]!r} to choose")
    return rebuild(named, found | {path[0]: replace_at(found[path[0]], path[1:], value)})
