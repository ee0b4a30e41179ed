"""Configs as JSON and from files: a config is a tree of dataclasses and functions, each named by its import path."""

import dataclasses
import functools
import hashlib
import importlib.machinery
import inspect
import json
import linecache
import re
import sys
import sysconfig
import types
import typing
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from typeguard import CollectionCheckStrategy, TypeCheckError, check_type

from mvcl import _configs, _files, augment, data, evaluation, losses, methods, models, transport
from mvcl._configs import hint
from mvcl.training import _config, _optimizers
from mvcl.training._config import Config

TYPE, FUNCTION, DIGEST = "_type", "_function", "_digest"
# Arrays and mesh axes that training passes to an objective; not options of the command line.
_GIVEN_IN_TRAINING = {"mask", "axis_name", "key", "queue", "extra_negatives", "weights", "ratio"}
PLAIN = (bool, int, float, str)
_own: dict[str, Any] = {}  # import path -> function or class of a user's code in a config of this process
_PUBLIC = (augment, data, evaluation, losses, methods, models, transport)


def parts(value: Any) -> tuple[Any, dict[str, Any]] | None:
    """The function or class of a part of a config, and all its options with their values; None for a plain value.

    For the result of a higher-order function: that function and its arguments, such as `all_pairs` and `pair`.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if not (isinstance(value, functools.partial) or inspect.isroutine(value)):
        return None
    inner, given = losses.unwrap(value)
    named = losses.higher_order(inner) or inner
    known, found = inspect.signature(named).parameters, defaults(named, losses.is_higher_order(named))
    anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    if misspelt := None if anything else next((name for name in given if name not in known), None):
        raise ValueError(_unknown(named.__name__, misspelt, list(found)))
    return named, found | given


def rebuild(named: Any, options: dict[str, Any]) -> Any:
    """The inverse of `parts`."""
    if isinstance(named, type) or losses.is_higher_order(named):
        return named(**options)
    return functools.partial(named, **options) if options else named


def defaults(named: Callable[..., Any], higher: bool) -> dict[str, Any]:
    """The options of a function with their defaults; `higher`: of a higher-order one, whose pair loss is `nt_xent`."""
    return {
        name: losses.nt_xent if parameter.default is parameter.empty else parameter.default
        for name, parameter in inspect.signature(named).parameters.items()
        if name not in _GIVEN_IN_TRAINING
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        and (higher or parameter.default is not parameter.empty)  # else embeddings
    }


def _unknown(owner: str, name: str, known: list[str]) -> str:
    near = hint(name, {option: repr(option) for option in known})
    return f"{owner} has no option {name!r}; {near}It has {', '.join(known)}"


def replace_at(node: Any, path: Sequence[str], value: Any) -> Any:
    """A config, or a part of it, with the value at a path of field and option names replaced."""
    if not path:
        return value
    named, found = parts(node) or (type(node), {})
    if path[0] not in found:
        kind = "field" if dataclasses.is_dataclass(node) else "option"
        raise ValueError(f"{named.__name__} has no {kind} {path[0]!r} to choose")
    return rebuild(named, found | {path[0]: replace_at(found[path[0]], path[1:], value)})


def to_json(config: Config) -> str:
    """The config as JSON text; `ValueError` if a value is neither plain nor a named function or class, as a lambda.

    `_type` is the import path of a dataclass, `_function` that of a function; the options follow. Code from outside
    mvcl is named `file.py:name` or `module:name`, with a digest of its source under `_digest`.
    """
    return json.dumps(tree(config), indent=2) + "\n"


def from_json(text: str, *, encoder_only: bool = False) -> Config:
    """The inverse of `to_json`; `ValueError` if the text is no such JSON.

    Of code from outside mvcl it imports that of the project's studies only; other code has to be that of a config that
    this process has loaded or written. With `encoder_only` a source, an objective, an optimiser and an evaluation of
    other code are replaced by mvcl's: features do not need them.
    """
    try:
        saved = json.loads(text)
        found = known() | _of_studies(saved) | _own
        if encoder_only and isinstance(saved, dict):
            instead = tree(Config(objective=losses.all_pairs(losses.info_nce)))
            features = {"features": saved.get("evaluation", {}).get("features", "encoder")}
            for part in ("data", "objective", "optimizer", "evaluation"):
                if digests(saved.get(part)).keys() - found.keys():
                    saved[part] = instead[part] | (features if part == "evaluation" else {})
        config = _build(saved, found)
    except json.JSONDecodeError as error:
        raise ValueError(f"the saved config is not JSON: {error}") from error
    except RecursionError as error:
        raise ValueError("the saved config is nested too deeply") from error
    if not isinstance(config, Config):
        raise ValueError("the saved config is not a Config")
    return config


def tree(value: Any) -> Any:
    """A config or a part of it as dicts, lists and plain values."""
    if isinstance(value, (tuple, list)):
        return [tree(item) for item in value]
    if value is None or isinstance(value, PLAIN):
        return value
    if (part := parts(value)) is None:
        got = f"{type(value).__name__}: {value!r}"
        raise ValueError(f"a config holds numbers, strings, tuples, functions and dataclasses, got {got}")
    named, found = part
    if isinstance(named, type):
        checked(value)
    node = {TYPE if isinstance(named, type) else FUNCTION: path(named)}
    if not named.__module__.startswith("mvcl."):
        node[DIGEST], _own[path(named)] = digest(named), named
    return node | {name: tree(option) for name, option in found.items()}


def _build(node: Any, known: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return tuple(_build(item, known) for item in node)
    if not isinstance(node, dict):
        return node
    name = str(node.get(TYPE) or node.get(FUNCTION))
    if name not in known and DIGEST in node:
        file = name.split(":")[0] if name.split(":")[0].endswith(".py") else "FILE.py"
        what = "which is not part of mvcl and is imported only from a config file that you name"
        how = f"pass --config {file}; to train, mvcl train {file}; in Python, training.load({file!r}) before"
        raise ValueError(f"this run uses {name}, {what}: {how}")
    if name not in known:
        raise ValueError(f"the saved config names the unknown class or function {name!r}")
    found = {key: _build(value, known) for key, value in node.items() if key not in (TYPE, FUNCTION, DIGEST)}
    try:
        return checked(rebuild(known[name], found))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the saved config does not fit {name}: {error}") from error


def known() -> dict[str, Any]:
    """Import path -> object, for all that a saved config may name: mvcl's public dataclasses, objectives and costs."""
    public = [getattr(package, name) for package in (*_PUBLIC, _config, _optimizers) for name in dir(package)]
    classes = [value for value in public if isinstance(value, type) and dataclasses.is_dataclass(value)]
    return {path(named): named for named in (*classes, *losses.objectives().values())}


def path(named: Any) -> str:
    """Import path of a function or class: `mvcl.losses.nt_xent`, or `module:name` outside the package."""
    name, module = named.__qualname__, named.__module__
    if "<" in name or "." in name:
        where = "defined at the top level of a module"
        raise ValueError(f"a config can only hold functions and classes {where}, got {name} of {module}")
    if not module.startswith("mvcl."):
        return f"{module}:{name}"
    public = ".".join(part for part in module.split(".") if not part.startswith("_"))
    return f"{public}.{name}"


def flatten(node: Any, prefix: str = "") -> dict[str, Any]:
    """The leaves of a `tree` by dotted name; a dataclass or function also has an entry with its import path."""
    leaves, items = {prefix: node}, {}
    if isinstance(node, dict):
        leaves = {prefix: node.get(TYPE) or node.get(FUNCTION)}
        items = {name: value for name, value in node.items() if name not in (TYPE, FUNCTION, DIGEST)}
    elif isinstance(node, list) and any(isinstance(item, dict) for item in node):
        leaves, items = {}, {str(i): item for i, item in enumerate(node)}
    for name, value in items.items():
        leaves |= flatten(value, f"{prefix}.{name}" if prefix else name)
    return leaves


def digests(node: Any) -> dict[str, str]:
    """Import path -> digest, for the functions and classes of a `tree` from outside mvcl."""
    found = {}
    if isinstance(node, dict) and DIGEST in node:
        found[node.get(TYPE) or node[FUNCTION]] = node[DIGEST]
    for item in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        found |= digests(item)
    return found


def checked(built: Any) -> Any:
    """A function, or a dataclass that was made from JSON; `ValueError` if a field has not its type."""
    hints = typing.get_type_hints(type(built)) if dataclasses.is_dataclass(built) else {}
    for field in dataclasses.fields(built) if hints else ():
        value, kind = getattr(built, field.name), hints[field.name]
        try:
            check_type(value, kind, collection_check_strategy=CollectionCheckStrategy.ALL_ITEMS)
        except TypeCheckError as error:
            kind = getattr(kind, "__name__", kind)
            raise ValueError(f"{field.name} is {str(value)[:100]!r}, not of type {kind}") from error
    return built


@functools.cache  # a study names the same classes in each of its cells
def digest(named: Any) -> str:
    """16 hexadecimal digits: a hash of the source of a function, or of a class's methods, and of the user's code that
    they refer to: functions, classes and plain constants of the user's files, not those of installed packages."""
    sources: dict[str, str] = {}
    installed = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    pending = [named]
    while pending:
        item = pending.pop()
        name = f"{item.__module__}:{item.__qualname__}"
        if name in sources or item.__module__.startswith("mvcl."):
            continue
        members = vars(item).values() if isinstance(item, type) else [item]
        found, texts = [inspect.unwrap(member) for member in members if inspect.isfunction(member)], []
        for part in dict.fromkeys([item, *found]):  # a dataclass of fields alone has no other source
            with suppress(OSError, TypeError):  # a class of a notebook; a method that a dataclass has made
                texts.append(inspect.getsource(part))
        for function in found:
            for word in sorted(_names(function.__code__)):
                value = function.__globals__.get(word)
                if isinstance(value, (*PLAIN, tuple)):
                    sources[f"{function.__module__}:{word}"] = repr(value)
                elif inspect.isfunction(value) or isinstance(value, type):
                    file = getattr(sys.modules.get(value.__module__), "__file__", None)
                    pending += [value] if file is not None and not file.startswith(installed) else []
        sources[name] = "\n".join(texts)
        if found and not texts and item is named:
            what = "functions and classes with source code, of which a run keeps a digest"
            got = f"{named.__qualname__} of {named.__module__}"
            raise ValueError(f"a config can only hold {what}, got {got}; define it in a file or a notebook")
    text = "\n".join(f"{name}\n{source}" for name, source in sorted(sources.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _names(code: types.CodeType) -> set[str]:
    """The global names that a code object and its nested code objects refer to."""
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def load(source: str | Path) -> Config:
    """A config of the project (`mvcl configs` lists them), of a Python file, of a config.json, or of a run folder.

    `load("koromilas/cifar")` and `load("FILE.py")` call the file's function `get_config()`,
    `load("koromilas/cifar:cifar100")` and `load("FILE.py:VARIANT")` the function of that name. A `Path` is no name.

    Raises:
      ValueError: the config or variant does not exist, does not return a `Config`, or sets an unknown option.
    """
    file, variant = _configs.find(source)
    if file.suffix == ".json":
        with _files.naming(file):
            return from_json(file.read_text(encoding="utf-8"))
    made = vars(config_module(file)).get(variant)
    if not inspect.isfunction(made) or inspect.signature(made).parameters:
        raise _configs.unknown_variant(str(file), variant, _configs.variants(file))
    try:
        config = made()
    except TypeError as error:
        raise _with_nearest(error, f"{variant}() of {file}") from error
    if not isinstance(config, Config):
        got = type(config).__name__
        raise ValueError(f"{variant}() of {file} must return a mvcl.training.Config, got {got}")
    with _files.naming(file):
        tree(config)  # raises for a value that cannot be saved; its own code is known from now on
    return config


def config_module(file: Path) -> types.ModuleType:
    """Import the file as a module, with its folder on the import path as for a script."""
    module = types.ModuleType(file.name)
    module.__file__ = str(file)
    sys.modules[file.name] = module  # dataclasses and digests look up the source here
    folder, studies = str(file.parent.resolve()), str(_configs.STUDIES)
    sys.path[:0] = [folder] * (folder not in sys.path)
    sys.path += [studies] * (studies not in sys.path)  # behind all: copies of studies import what they share
    linecache.checkcache(str(file))  # digests need the current source
    try:
        importlib.machinery.SourceFileLoader(file.name, str(file)).exec_module(module)
    except SyntaxError as error:
        raise ValueError(f"{file} has a syntax error: {error}") from error
    except TypeError as error:
        raise _with_nearest(error, str(file)) from error
    return module


def _of_studies(saved: Any) -> dict[str, Any]:
    """The code of the project's studies that a saved config names, as STUDY.py:name or _shared:name; now imported."""
    found: dict[str, Any] = {}
    for named in digests(saved):
        module, _, name = named.partition(":")
        file = _configs.STUDIES / f"{module.removesuffix('.py')}.py"
        if re.fullmatch(r"\w+(\.py)?", module) and file.is_file():
            sys.path += [str(_configs.STUDIES)] * (str(_configs.STUDIES) not in sys.path)
            loaded = config_module(file) if module == file.name else importlib.import_module(module)
            found |= {named: vars(loaded)[name]} if name in vars(loaded) else {}
    return found


def _with_nearest(error: TypeError, what: str) -> ValueError:
    """A `ValueError` that suggests the nearest option."""
    match = re.match(r"(\w+)(\.__init__)?\(\) got an unexpected keyword argument '(\w+)'", str(error))
    named = {path.rpartition(".")[2]: named for path, named in known().items()}
    if match is None or match[1] not in named:
        return ValueError(f"{what}: {error}")
    found = list(inspect.signature(named[match[1]]).parameters)
    return ValueError(f"{what}: {_unknown(match[1], match[3], found)}")
