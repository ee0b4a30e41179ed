"""Load configs from Python files with variants, config.json files and run folders."""

import importlib
import importlib.util
import inspect
import linecache
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path

from mvcl import _configs, _files
from mvcl.training import _functions, _saved
from mvcl.training._config import Config


def load(source: str | Path, reference: Config | None = None) -> Config:
    """A config of the project, of a Python file, of a saved config.json, or of a run folder.

    `load("koromilas/cifar")` and `load("FILE.py")` call the file's function `get_config()`,
    `load("koromilas/cifar:cifar100")` and `load("FILE.py:VARIANT")` the function of that name.

    Args:
      source: name (`mvcl configs` lists them) or file, with or without a variant, or the folder. A `Path` is no name.
      reference: a config with the functions and classes from outside mvcl that a saved config names.

    Raises:
      ValueError: the config or variant does not exist, does not return a `Config`, or sets an unknown option.
    """
    file, variant = _configs.find(source)
    if file.suffix == ".json":
        with _files.naming(file):
            saved = _files.read_json(file)
            given = {} if reference is None else _saved.outside(reference)
            return _saved.from_tree(saved, _of_studies(saved) | given)
    module = config_module(file)
    functions = variants(module)
    if variant not in functions:
        raise _configs.unknown_variant(str(file), variant, functions)
    config = _call(functions[variant], f"{variant}() of {file}")
    if not isinstance(config, Config):
        raise ValueError(
            f"{variant}() of {file} must return a mvcl.training.Config, got {type(config).__name__}"
        )
    _saved.tree(config)  # raises for a value that cannot be saved
    return config


def variants(module: types.ModuleType) -> dict[str, Callable[[], Config]]:
    """The public functions without parameters of a config file: `get_config` and its variants."""
    return {
        name: function
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and function.__module__ == module.__name__
        and not name.startswith("_")
        and not inspect.signature(function).parameters
    }


def config_module(file: Path) -> types.ModuleType:
    """Import the file as a module, with its folder on the import path as for a script."""
    spec = importlib.util.spec_from_file_location(file.name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.name] = module  # dataclasses and digests look up the source here
    _import_from(file.parent.resolve())
    linecache.checkcache(str(file))  # digests need the current source
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ValueError(f"{file} has a syntax error: {error}") from error
    except TypeError as error:
        raise _with_nearest(error, str(file)) from error
    return module


def _import_from(folder: Path) -> None:
    """Put a folder on the import path; behind all, the studies of the project, whose copies import what they share."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    if str(_configs.STUDIES) not in sys.path:
        sys.path.append(str(_configs.STUDIES))


def _of_studies(saved: object) -> dict[str, object]:
    """The code of the project's studies that a saved config names, as STUDY.py:name or _shared:name; now imported."""
    found = {}
    for path in _saved.digests(saved):
        module, _, name = path.partition(":")
        file = _configs.STUDIES / f"{module.removesuffix('.py')}.py"
        if re.fullmatch(r"\w+(\.py)?", module) and file.is_file():
            _import_from(_configs.STUDIES)
            loaded = config_module(file) if module == file.name else importlib.import_module(module)
            found |= {path: vars(loaded)[name]} if name in vars(loaded) else {}
    return found


def _call(function: Callable[[], Config], what: str) -> Config:
    try:
        return function()
    except TypeError as error:
        raise _with_nearest(error, what) from error


def _with_nearest(error: TypeError, what: str) -> ValueError:
    """A `ValueError` that suggests the nearest option."""
    match = re.match(r"(\w+)(\.__init__)?\(\) got an unexpected keyword argument '(\w+)'", str(error))
    known = {path.rpartition(".")[2]: named for path, named in _saved.known().items()}
    if match is None or match[1] not in known:
        return ValueError(f"{what}: {error}")
    options = list(inspect.signature(known[match[1]]).parameters)
    return ValueError(f"{what}: {_functions.unknown_option(match[1], match[3], options)}")
