"""Convert configs to and from JSON: dataclasses and functions by import path, with their options."""

import dataclasses
import functools
import hashlib
import inspect
import json
import sys
import sysconfig
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from mvcl import augment, data, evaluation, losses, methods, models, transport
from mvcl.training import _config, _functions, _optimizers
from mvcl.training._config import Config

TYPE, FUNCTION, DIGEST = "_type", "_function", "_digest"
_PUBLIC = (augment, data, evaluation, losses, methods, models, transport)


def to_json(config: Config) -> str:
    """The config as JSON text.

    `_type` is the import path of a dataclass, `_function` that of a function; the options follow. Code from outside
    mvcl is named `file.py:name` or `module:name`, with a digest of its source under `_digest`.

    Raises:
      ValueError: a value is neither plain nor a named function or class; a lambda, for example.
    """
    return json.dumps(tree(config), indent=2) + "\n"


def from_json(text: str, reference: Config | None = None) -> Config:
    """The inverse of `to_json`. It imports and runs nothing: code from outside mvcl is taken from `reference`.

    Args:
      text: output of `to_json`.
      reference: a config with the functions and classes from outside mvcl that the text names.

    Raises:
      ValueError: the text is not JSON, or names a class, function or field that does not exist.
    """
    try:
        saved = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the saved config is not JSON: {error}") from error
    return from_tree(saved, {} if reference is None else outside(reference))


def from_tree(saved: Any, given: Mapping[str, Any]) -> Config:
    """The inverse of `tree` for a whole config; errors as those of `from_json`.

    Args:
      saved: the tree.
      given: import path -> object, for the functions and classes from outside mvcl that it names.
    """
    try:
        config = _build(saved, known() | given)
    except RecursionError as error:
        raise ValueError("the saved config is nested too deeply") from error
    if not isinstance(config, Config):
        raise ValueError("the saved config is not a Config")
    return config


def tree(value: Any) -> Any:
    """A config or a part of it as dicts, lists and plain values."""
    if isinstance(value, (tuple, list)):
        return [tree(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if _functions.is_function(value):
        named, given = _functions.parts(value)
        defaults = {name: option.default for name, option in _functions.options(named).items()}
        options = {name: tree(option) for name, option in (defaults | given).items()}
        return {FUNCTION: path(named), **_digest_of(named), **options}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: tree(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {TYPE: path(type(value)), **_digest_of(type(value)), **fields}
    raise ValueError(
        f"a config holds numbers, strings, tuples, functions and dataclasses, got {type(value).__name__}: {value!r}"
    )


def flatten(node: Any, prefix: str = "") -> dict[str, Any]:
    """The leaves of a `tree` by dotted name; a dataclass or function also has an entry with its import path."""
    if isinstance(node, dict):
        leaves = {prefix: node.get(TYPE) or node.get(FUNCTION)}
        for name, value in node.items():
            if name not in (TYPE, FUNCTION, DIGEST):
                leaves |= flatten(value, f"{prefix}.{name}" if prefix else name)
        return leaves
    if isinstance(node, list) and any(isinstance(item, dict) for item in node):
        return {
            name: leaf for i, item in enumerate(node) for name, leaf in flatten(item, f"{prefix}.{i}").items()
        }
    return {prefix: node}


def digests(node: Any) -> dict[str, str]:
    """Import path -> digest, for the functions and classes of a `tree` from outside mvcl."""
    found = {}
    if isinstance(node, dict):
        if DIGEST in node:
            found[node.get(TYPE) or node[FUNCTION]] = node[DIGEST]
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            found |= digests(item)
    return found


def path(named: Any) -> str:
    """Import path of a function or class: `mvcl.losses.nt_xent`, or `module:name` outside the package."""
    name, module = named.__qualname__, named.__module__
    if "<" in name or "." in name:
        raise ValueError(
            f"a config can only hold functions and classes defined at the top level of a module, got {name} of "
            f"{module}; define it there"
        )
    if module.split(".")[0] != "mvcl":
        return f"{module}:{name}"
    public = ".".join(part for part in module.split(".") if not part.startswith("_"))
    return f"{public}.{name}"


def outside(config: Config) -> dict[str, Any]:
    """Import path -> object, for the functions and classes of a config from outside mvcl."""
    return {path(item): item for item in definitions(config) if _is_outside(item)}


def definitions(value: Any) -> Iterator[Any]:
    """All functions and classes in a config."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from definitions(item)
    elif _functions.is_function(value):
        named, given = _functions.parts(value)
        yield named
        yield from definitions(tuple(given.values()))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield type(value)
        yield from definitions(tuple(getattr(value, f.name) for f in dataclasses.fields(value)))


def known() -> dict[str, Any]:
    """Import path -> object, for all that a saved config may name: mvcl's public dataclasses, objectives and costs."""
    public = [value for package in _PUBLIC for value in vars(package).values()]
    public += [*vars(_config).values(), *vars(_optimizers).values()]
    classes = [value for value in public if isinstance(value, type) and dataclasses.is_dataclass(value)]
    return {path(named): named for named in (*classes, *losses.objectives().values())}


def _build(node: Any, known: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return tuple(_build(item, known) for item in node)
    if not isinstance(node, dict):
        return node
    name = str(node.get(TYPE) or node.get(FUNCTION))
    if name not in known and DIGEST in node:
        file = name.split(":")[0] if name.split(":")[0].endswith(".py") else "FILE.py"
        raise ValueError(
            f"this run uses {name}, which is not part of mvcl and is imported only from a config file that you name: "
            f"pass --config {file}; to train, mvcl train {file}"
        )
    if name not in known:
        raise ValueError(f"the saved config names the unknown class or function {name!r}")
    options = {
        key: _build(value, known) for key, value in node.items() if key not in (TYPE, FUNCTION, DIGEST)
    }
    try:
        if FUNCTION in node:
            return _functions.rebuild(known[name], options)
        return checked(known[name](**options))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the saved config does not fit {name}: {error}") from error


def checked(built: Any) -> Any:
    """A dataclass that was made from JSON, if its fields have their types.

    Raises:
      ValueError: one does not.
    """
    for field, hint in _hints(type(built)).items():
        if not _fits(value := getattr(built, field), hint):
            raise ValueError(
                f"{field} is {str(value)[:100]!r}, not of type {getattr(hint, '__name__', hint)}"
            )
    return built


def _hints(kind: Any) -> dict[str, Any]:
    """The types of the fields of a dataclass."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type as the fields of configs have them; True for types that cannot be checked."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is typing.Literal:
        return any(value == part and type(value) is type(part) for part in parts)
    if origin is tuple:
        if parts[-1:] == (...,):
            return isinstance(value, tuple) and all(_fits(item, parts[0]) for item in value)
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(_fits, value, parts))
    if origin is Callable:
        return callable(value)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if getattr(hint, "_is_protocol", False):
        return dataclasses.is_dataclass(value)
    return not isinstance(hint, type) or isinstance(value, hint)


def _is_outside(named: Any) -> bool:
    return named.__module__.split(".")[0] != "mvcl"


def _digest_of(named: Any) -> dict[str, str]:
    return {DIGEST: digest(named)} if _is_outside(named) else {}


def digest(named: Any) -> str:
    """16 hexadecimal digits: a hash of the source of a function or class and of the user's code that it refers to.

    It covers functions, classes and plain constants of the user's files, not those of installed packages.
    """
    sources: dict[str, str] = {}
    _collect(named, sources)
    text = "\n".join(f"{name}\n{source}" for name, source in sorted(sources.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _collect(named: Any, sources: dict[str, str]) -> None:
    """Add the source of a function or class, and of the user's code that it refers to."""
    sources[f"{named.__module__}:{named.__qualname__}"] = _source(named)
    functions = (
        [named] if inspect.isfunction(named) else [f for f in vars(named).values() if inspect.isfunction(f)]
    )
    for function in functions:
        for name in sorted(_names(function.__code__)):
            value = function.__globals__.get(name)
            if inspect.isfunction(value) or isinstance(value, type):
                if f"{value.__module__}:{value.__qualname__}" not in sources and _is_users(value):
                    _collect(value, sources)
            elif isinstance(value, (bool, int, float, str, tuple)):
                sources[f"{function.__module__}:{name}"] = repr(value)


@functools.cache  # a study names the same classes in each of its cells
def _source(named: Any) -> str:
    """The source of a function or class; of a class of a notebook, which `inspect` does not find, that of its methods.

    Raises:
      ValueError: there is none, as in an interactive session.
    """
    with suppress(OSError, TypeError):  # TypeError: a class of a module without a file
        return inspect.getsource(named)
    found = []
    for function in filter(inspect.isfunction, vars(named).values()):
        with suppress(OSError):  # that a dataclass has made
            found.append(inspect.getsource(function))
    if not found:
        raise ValueError(
            f"a config can only hold functions and classes with source code, of which a run keeps a digest, got "
            f"{named.__qualname__} of {named.__module__}; define it in a file or a notebook"
        )
    return "\n".join(found)


def _names(code: types.CodeType) -> set[str]:
    """The global names that a code object and its nested code objects refer to."""
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _is_users(named: Any) -> bool:
    """Whether a function or class is the user's: neither from mvcl nor from an installed package."""
    file = getattr(sys.modules.get(named.__module__), "__file__", None)
    installed = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    return _is_outside(named) and file is not None and not file.startswith(installed)
