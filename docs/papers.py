"""Writes docs/papers/NAME.md, a page for each paper, from docs/papers/NAME.toml.

    python -m docs.papers

A file has the paper's title, and an entry for each of its tables, figures, equations, algorithms, theorems and groups
of settings: what the paper says, what the released code does, what this project does, and the command. The values
under an entry are those of configs, each from the paper, the released code or this project; tests/recipes compares
them with the configs.
"""

import dataclasses
import fnmatch
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mvcl import data, training
from mvcl.training import _functions, _saved

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "papers"
KINDS = {
    "Tables and figures": ("table", "figure"),
    "Equations, theorems and algorithms": ("equation", "theorem", "algorithm"),
    "Settings": ("setting",),
}
STATUSES = ("implemented", "partly", "not implemented")
SOURCES = {"paper": "paper", "released": "released code", "ours": "ours"}
# What a run costs or where it reads and writes, not what it computes.
_NO_SETTING = ("checkpoint", "mesh", "train.threads", "train.log_every", "train.evaluate_every", "data.path")


@dataclasses.dataclass(frozen=True)
class Value:
    """The value of an option in some configs.

    Attributes:
      configs: name and variant of each, as `mvcl train` takes them.
      option: dotted path as on the command line; `*` stands for any part of it.
      value: as in TOML; a function or class by its name, `none` for None.
      source: a key of SOURCES.
    """

    configs: tuple[str, ...]
    option: str
    value: Any
    source: str


@dataclasses.dataclass(frozen=True)
class Entry:
    """A part of a paper; the texts are columns of the page."""

    kind: str
    name: str
    section: str
    paper: str
    released: str
    ours: str
    status: str
    commands: tuple[str, ...]
    values: tuple[Value, ...]


@dataclasses.dataclass(frozen=True)
class Paper:
    """A file of docs/papers."""

    title: str
    paper: str
    code: str
    entries: tuple[Entry, ...]


def names() -> list[str]:
    """The papers that have a file."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read(name: str) -> Paper:
    """A paper by the name of its file.

    Raises:
      ValueError: the file misses a key, has an unknown one, or a kind, status or source that does not exist.
    """
    raw = tomllib.loads((FOLDER / f"{name}.toml").read_text())
    entries = tuple(_entry(name, entry) for entry in raw.pop("entry", ()))
    try:
        return Paper(**raw, entries=entries)
    except TypeError as error:
        raise ValueError(f"{name}.toml: {error}") from error


def _entry(paper: str, raw: dict[str, Any]) -> Entry:
    where = f"{paper}.toml, entry {raw.get('name')!r}"
    values = []
    for value in raw.pop("value", ()):
        try:
            values.append(Value(_several(value.pop("config")), **value))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{where}, value {value}: {error}") from error
        if values[-1].source not in SOURCES:
            raise ValueError(
                f"{where}: source must be one of {', '.join(SOURCES)}, got {values[-1].source!r}"
            )
    try:
        entry = Entry(**raw | {"commands": _several(raw.pop("command"))}, values=tuple(values))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from error
    kinds = [kind for group in KINDS.values() for kind in group]
    if entry.kind not in kinds or entry.status not in STATUSES:
        raise ValueError(
            f"{where}: kind must be one of {', '.join(kinds)} and status one of {', '.join(STATUSES)}, got "
            f"{entry.kind!r} and {entry.status!r}"
        )
    return entry


def _several(text: str | list[str]) -> tuple[str, ...]:
    return ((text,) if text else ()) if isinstance(text, str) else tuple(text)


def options(config: Any) -> dict[str, Any]:
    """Every option of a config by dotted path, with its value as in TOML."""
    flat = _saved.flatten(_saved.tree(config))
    return {option: _plain(value, option in _choices(flat)) for option, value in flat.items() if option}


def _choices(flat: dict[str, Any]) -> set[str]:
    """The options that have options of their own: functions and dataclasses."""
    return {option for option in flat if isinstance(flat[option], str) and flat[option].startswith("mvcl.")}


def _plain(value: Any, choice: bool) -> Any:
    if value is None:
        return "none"
    return value.rsplit(".", 1)[-1] if choice else value


def chosen(config: Any) -> list[str]:
    """The options whose value is not the default of their class or function, by dotted path."""
    found = [option for option, same in _compared(config, "") if not same]
    return [option for option in found if not option.startswith(_NO_SETTING + _unused(config))]


def _unused(config: Any) -> tuple[str, ...]:
    """The policies that draw no view, by the start of their options."""
    every = options(config)
    if any(option.startswith("views.policies.") for option in every) or _views_are_given(config):
        return ("views.policy.", "views.local_policy.")
    return () if every.get("views.global_views") != "none" else ("views.local_policy.",)


def _views_are_given(config: Any) -> bool:
    """Whether a run's views are the data's own, so that nothing draws them."""
    outline = data.expected(config.data) if isinstance(config, training.Config) else None
    return outline is not None and outline.spec.given


def _compared(node: Any, path: str) -> Iterator[tuple[str, bool]]:
    """(option, whether it has its default) for all options of a config or a part of it."""
    for name, value, default in _fields(node):
        option = f"{path}.{name}" if path else name
        items = value if isinstance(value, tuple) else ()
        if any(True for item in items for _ in _fields(item)):
            for i, item in enumerate(items):
                yield f"{option}.{i}", True
                yield from _compared(item, f"{option}.{i}")
        elif _is_component(value):
            yield option, _is_component(default) and _name(default) == _name(value)
            yield from _compared(value, option)
        else:
            yield option, value == default


def _fields(node: Any) -> Iterator[tuple[str, Any, Any]]:
    """(name, value, default) of the fields of a dataclass or the options of a function."""
    if _functions.is_function(node):
        named, given = _functions.parts(node)
        for name, option in _functions.options(named).items():
            yield name, given.get(name, option.default), option.default
    elif dataclasses.is_dataclass(node) and not isinstance(node, type):
        for field in dataclasses.fields(node):
            made = field.default_factory
            yield (
                field.name,
                getattr(node, field.name),
                field.default if made is dataclasses.MISSING else made(),
            )


def _is_component(value: Any) -> bool:
    return _functions.is_function(value) or (
        dataclasses.is_dataclass(value) and not isinstance(value, type) and value is not dataclasses.MISSING
    )


def _name(value: Any) -> str:
    return _saved.path(_functions.parts(value)[0] if _functions.is_function(value) else type(value))


def matching(pattern: str, found: dict[str, Any] | list[str]) -> list[str]:
    """The options that a path names."""
    return [option for option in found if option == pattern or fnmatch.fnmatchcase(option, pattern)]


def page(paper: Paper) -> str:
    """The Markdown page of a paper."""
    parts = [
        f"# {paper.title}",
        f"Paper: {paper.paper}. Released code: {paper.code}.",
        "Each value of the configs is the paper's, the released code's or ours. `python -m docs.papers` writes this "
        "page from the file of the same name that ends in .toml.",
    ]
    for title, kinds in KINDS.items():
        entries = [entry for entry in paper.entries if entry.kind in kinds]
        if entries:
            parts += [f"## {title}", _table(entries)]
    if any(entry.values for entry in paper.entries):
        parts += ["## Values of the configs", _values(paper.entries)]
    return "\n\n".join(parts) + "\n"


def _table(entries: list[Entry]) -> str:
    rows = []
    for entry in entries:
        what = f"{entry.name} ({entry.section})" if entry.section else entry.name
        commands = "<br>".join(f"`{command}`" for command in entry.commands)
        rows.append((what, entry.paper, entry.released, f"{_status(entry)}{entry.ours}", commands))
    return _markdown(("what (section)", "paper", "released code (file)", "here, and why", "command"), rows)


def _status(entry: Entry) -> str:
    return "" if entry.status == "implemented" else f"**{entry.status}**. "


def _values(entries: tuple[Entry, ...]) -> str:
    rows = [
        (
            entry.name,
            f"`{value.option}`",
            f"`{_text(value.value)}`",
            SOURCES[value.source],
            _short(value.configs),
        )
        for entry in entries
        for value in entry.values
    ]
    return _markdown(("setting", "option", "value", "from", "configs"), rows)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(_text, value)) if isinstance(value, list) else str(value)


def _short(configs: tuple[str, ...]) -> str:
    variants: dict[str, list[str]] = {}
    for config in configs:
        name, _, variant = config.partition(":")
        variants.setdefault(name, []).append(variant)
    return "; ".join(f"{name}: {', '.join(listed)}" for name, listed in variants.items())


def _markdown(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def main() -> None:
    """Write all pages."""
    for name in names():
        (FOLDER / f"{name}.md").write_text(page(read(name)))
        print(FOLDER / f"{name}.md")


if __name__ == "__main__":
    main()
