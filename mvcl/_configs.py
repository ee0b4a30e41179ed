"""Configs: names and variants of those of the project, and files, read without importing the file or jax."""

import ast
import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from mvcl import _buckets

_PACKAGE = Path(__file__).resolve().parent
# A wheel has the configs in the package. A checkout has them beside it, and an editable install is the checkout.
CONFIGS = next(folder / "configs" for folder in (_PACKAGE, _PACKAGE.parent) if (folder / "configs").is_dir())
STUDIES = CONFIGS / "studies"


def names(studies: bool = False) -> dict[str, Path]:
    """Name -> file of each config of the project, such as `koromilas/cifar`; with `studies` also `studies/NAME`."""
    files = sorted(file for file in CONFIGS.rglob("*.py") if not file.name.startswith("_"))
    shown = [file for file in files if studies or file.parent != STUDIES]
    return {file.relative_to(CONFIGS).with_suffix("").as_posix(): file for file in shown}


def find(source: str | Path) -> tuple[Path, str]:
    """File and variant of a config; the variant of one that names none is `get_config`.

    A `str` is the name of a config of the project, NAME or NAME:VARIANT, or else a path, as every `Path` is: FILE.py,
    FILE.py:VARIANT, a config.json or its folder. `./NAME` is a folder with the name of a config.
    """
    name, colon, variant = str(source).rpartition(":")
    if not colon or not re.fullmatch(r"\w+", variant):
        name, variant = str(source), "get_config"
    known = names()
    if isinstance(source, str) and name in known:
        file = known[name]
    elif name.endswith(".py"):
        if re.match(r"\w+:/", name):
            raise ValueError(f"{source} is in a bucket, and Python imports from a disk; copy it to one first")
        file = Path(name)
    else:
        file, variant = _buckets.path(source), "get_config"
        file = file / "config.json" if file.is_dir() else file
    if not file.is_file():
        what = f"no config at {file}" if file.suffix else f"no config {str(source)!r}"
        study = (STUDIES / f"{name}.py").is_file()
        where = f"{name} is a study: mvcl study {name}" if study else "`mvcl configs` lists those there are"
        spelt = {config.rpartition("/")[2]: config for config in known} | {config: config for config in known}
        near = hint(name.removeprefix("configs/").removesuffix(".py"), spelt)
        raise ValueError(f"{what}; {near}{where}")
    # Loading the file finds the other errors.
    if file.suffix != ".json" and not re.search(rf"\b{variant}\b", file.read_text(errors="replace")):
        raise unknown_variant(name, variant, variants(file))
    return file, variant


def run_folder(run: str | Path) -> Path:
    """The folder, maybe in a bucket; raises `ValueError` if it is not that of a run."""
    folder = _buckets.path(run)
    if not (folder / "config.json").is_file():
        raise ValueError(f"{run} is not a run folder: it has no config.json")
    return folder


def copy(source: str, out: Path | None) -> tuple[Path, list[str]]:
    """Write a copy of a config, NAME or NAME:VARIANT, or of studies/NAME; the file and the words of its command.

    `out` None is the last part of the name, in the working directory. `ValueError` if it exists or cannot be a config.
    """
    file = names(studies=True).get(source) or find(source)[0]  # it raises for an unknown variant
    study, variant = file.parent == STUDIES, source.partition(":")[2]
    out = Path(file.name) if out is None else out
    if ":/" in str(out) or out.suffix != ".py":  # a bucket
        raise ValueError(f"--out must be a file on a disk that ends in .py, got {out}")
    if out.exists():
        raise ValueError(f"{out} exists and is kept; name another file with --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(file.read_bytes())
    return out, ["mvcl", "study" if study else "train", f"{out}:{variant}" if variant else str(out)]


def variants(file: Path) -> dict[str, str]:
    """Functions without parameters in a config file, with the first line of each docstring."""
    functions = [node for node in _parsed(file).body if isinstance(node, ast.FunctionDef)]
    shown = [node for node in functions if not node.name.startswith("_") and not ast.unparse(node.args)]
    return {node.name: _first_line(node) for node in shown}


def summary(file: Path) -> str:
    """The first line of a config file's docstring."""
    return _first_line(_parsed(file))


def unknown_variant(config: str, variant: str, known: Iterable[str]) -> ValueError:
    """The error of a config without this variant."""
    known = list(known)
    what = f"{config} has no function {variant}() that returns a Config"
    return ValueError(f"{what}; {hint(variant, known)}It has {', '.join(known) or 'none'}")


def hint(word: str, known: Iterable[str]) -> str:
    """`did you mean ...? ` with the nearest known word, or what a mapping has for it; empty if none is near."""
    for near in difflib.get_close_matches(word, list(known), n=1):
        return f"did you mean {known[near] if isinstance(known, Mapping) else near}? "
    return ""


def _first_line(node: ast.Module | ast.FunctionDef) -> str:
    return (ast.get_docstring(node) or "").partition("\n")[0]


def _parsed(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes())
    except SyntaxError as error:
        raise ValueError(f"{file} has a syntax error: {error}") from error
