"""Writes docs/papers/NAME.md, a page for each paper, from docs/papers/NAME.toml and the paper's configs.

    python -m docs.papers

The TOML has what the paper and the released code say about each table, figure, equation, algorithm, theorem and group
of settings, what this project does, and the command. A setting, its value and its origin are one line of a config:
`temperature=0.2,  # paper, App. E`, or `# released, FILE`, or `# ours: reason`.
"""

import ast
import dataclasses
import io
import tokenize
import tomllib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "papers"
KINDS = {
    "Tables and figures": ("table", "figure"),
    "Equations, theorems and algorithms": ("equation", "theorem", "algorithm"),
    "Settings": ("setting",),
}
STATUSES = ("implemented", "partly", "not implemented")
ORIGINS = ("paper", "released", "ours")
# What a run costs or where it reads and writes, not what it computes.
_NO_SETTING = ("checkpoint", "mesh", "threads", "log_every", "evaluate_every", "every_steps")
_FIXED = ("replace", "Config", "Views", "Train")  # calls that choose nothing by themselves


@dataclasses.dataclass(frozen=True)
class Entry:
    """A part of a paper; the texts are columns of the page."""

    kind: str
    name: str
    status: str = "implemented"
    section: str = ""
    paper: str = ""
    released: str = ""
    ours: str = ""
    command: str | list[str] = ""

    @property
    def commands(self) -> list[str]:
        """The commands, none, one or several."""
        return [self.command] * bool(self.command) if isinstance(self.command, str) else self.command


@dataclasses.dataclass(frozen=True)
class Paper:
    """A file of docs/papers."""

    title: str
    paper: str
    code: str
    entries: tuple[Entry, ...]


@dataclasses.dataclass(frozen=True)
class Setting:
    """A line of a config: the option, its value as written, and the comment; `where` is the file and line."""

    option: str
    value: str
    origin: str
    where: str


def names() -> list[str]:
    """The papers that have a file."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def configs(name: str) -> list[Path]:
    """The files with a paper's settings."""
    return sorted((ROOT / "configs" / name).glob("*.py"))


def read(name: str) -> Paper:
    """A paper by the name of its file.

    Raises:
      ValueError: the file misses a key, has an unknown one, or a kind or status that does not exist.
    """
    raw = tomllib.loads((FOLDER / f"{name}.toml").read_text())
    try:
        entries = tuple(Entry(**entry) for entry in raw.pop("entry", ()))
        paper = Paper(**raw, entries=entries)
    except TypeError as error:
        raise ValueError(f"{name}.toml: {error}") from error
    kinds = [kind for group in KINDS.values() for kind in group]
    for entry in entries:
        if entry.kind not in kinds or entry.status not in STATUSES:
            raise ValueError(
                f"{name}.toml, entry {entry.name!r}: kind must be one of {', '.join(kinds)} and status one of "
                f"{', '.join(STATUSES)}, got {entry.kind!r} and {entry.status!r}"
            )
    return paper


def settings(file: Path) -> dict[str, list[Setting]]:
    """What each function and variable of a config sets, for those that a variant uses; smoke variants are left out."""
    source = file.read_text()
    tree = ast.parse(source)
    own = _own(tree)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}
    modules = {
        alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom | ast.Import)
        for alias in node.names
    }  # fmt: skip
    found = {}
    for name in sorted(_used(own), key=list(own).index):
        lines = _Lines(source, own, modules)
        found[name] = [
            Setting(option, value, _origin(comments, at), f"{file.name}:{at[0]}")
            for option, value, at in lines.of(own[name])
        ]
    return found


def uses(file: Path) -> dict[str, list[str]]:
    """For each function and variable of a config, the others that it uses."""
    own = _own(ast.parse(file.read_text()))
    return {
        name: [used for used in _names(node) if used in own and used != name] for name, node in own.items()
    }


def _own(tree: ast.Module) -> dict[str, ast.stmt]:
    """The functions and variables of a file."""
    found: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node
    return found


def _used(own: dict[str, ast.stmt]) -> set[str]:
    """The public functions that are not for smoke tests, and what they use."""
    todo = [name for name in own if not name.startswith(("_", "smoke")) and name != "get_config"]
    todo += [name for name, node in own.items() if name == "get_config" and isinstance(node, ast.FunctionDef)]
    done: set[str] = set()
    while todo:
        name = todo.pop()
        done.add(name)
        todo += [used for used in _names(own[name]) if used in own and used not in done]
    return done


def _names(node: ast.AST) -> list[str]:
    """The names that code reads, each once."""
    return list(dict.fromkeys(part.id for part in ast.walk(node) if isinstance(part, ast.Name)))


def _origin(comments: dict[int, str], lines: Sequence[int]) -> str:
    """The first comment of these lines that names an origin, or an empty string."""
    found = (comments.get(line, "").removeprefix("# ") for line in lines)
    return next((text for text in found if any(origin in text for origin in ORIGINS)), "")


@dataclasses.dataclass(frozen=True)
class _Lines:
    """Reads the settings of a piece of code: (option, value, lines where the comment may stand)."""

    source: str
    own: Collection[str]
    modules: Collection[str]

    def of(self, node: ast.AST) -> Iterator[tuple[str, str, tuple[int, ...]]]:
        if isinstance(node, ast.FunctionDef):
            arguments = node.args.args[len(node.args.args) - len(node.args.defaults) :]
            for argument, default in zip(arguments, node.args.defaults):
                yield from self._set((argument.arg,), default)
            for statement in node.body:
                yield from self.of(statement)
        elif isinstance(node, ast.Assign):
            target = node.targets[0]
            yield from self._set((target.id if isinstance(target, ast.Name) else "",), node.value)
        elif isinstance(node, ast.Return) and node.value is not None:
            yield from self._set((), node.value)

    def _set(self, path: tuple[str, ...], value: ast.expr) -> Iterator[tuple[str, str, tuple[int, ...]]]:
        option, name = ".".join(path), path[-1] if path else ""
        called = ast.unparse(value.func).rpartition(".")[2] if isinstance(value, ast.Call) else ""
        whole = value.lineno == value.end_lineno and called not in _FIXED
        if name in _NO_SETTING or (whole and not self._prints(value)):
            return
        if whole or not isinstance(value, ast.Call):
            yield option, ast.get_source_segment(self.source, value) or "", (value.lineno,)
            return
        what = value.args[0] if called == "partial" else value.func
        if called not in _FIXED and called not in self.own:
            yield option, ast.unparse(what), (value.lineno, what.lineno)
        for part in value.args:
            if part is not what:
                yield from self._set(path, part)
        for keyword in value.keywords:
            yield from self._set((*path, keyword.arg or "**"), keyword.value)

    def _prints(self, value: ast.expr) -> bool:
        """Whether code has a value of its own: a constant, or something of the library."""
        return any(
            isinstance(node, ast.Constant)
            or (isinstance(node, ast.Name) and node.id in self.modules and node.id != "dataclasses")
            for node in ast.walk(value)
        )


def page(name: str) -> str:
    """The Markdown page of a paper."""
    paper = read(name)
    parts = [
        f"# {paper.title}",
        f"Paper: {paper.paper}. Released code: {paper.code}.",
        "`python -m docs.papers` writes this page from the file of the same name that ends in .toml, and from the "
        "configs, where each value has its origin: the paper, the released code, or ours.",
    ]
    for title, kinds in KINDS.items():
        entries = [entry for entry in paper.entries if entry.kind in kinds]
        if entries:
            parts += [f"## {title}", _table(entries)]
    parts.append("## Values of the configs")
    for file in configs(name):
        parts.append(f"### {name}/{file.stem}")
        used = uses(file)
        for where, lines in settings(file).items():
            others = ", ".join(f"`{other}`" for other in used[where])
            parts.append(f"**`{where}`**" + (f" uses {others}" if others else ""))
            rows = [(_code(line.option), _code(line.value), line.origin) for line in lines]
            parts += [_markdown(("setting", "value", "from"), rows)] * bool(rows)
    return "\n\n".join(parts) + "\n"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _table(entries: list[Entry]) -> str:
    rows = []
    for entry in entries:
        what = f"{entry.name} ({entry.section})" if entry.section else entry.name
        status = "" if entry.status == "implemented" else f"**{entry.status}**. "
        commands = "<br>".join(f"`{command}`" for command in entry.commands)
        rows.append((what, entry.paper, entry.released, f"{status}{entry.ours}", commands))
    return _markdown(("what (section)", "paper", "released code (file)", "here, and why", "command"), rows)


def _markdown(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def main() -> None:
    """Write all pages."""
    for name in names():
        (FOLDER / f"{name}.md").write_text(page(name))
        print(FOLDER / f"{name}.md")


if __name__ == "__main__":
    main()
