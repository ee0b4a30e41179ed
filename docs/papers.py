"""Writes docs/papers/NAME.md, a page for each paper, from docs/papers/NAME.toml and the paper's configs.

    python -m docs.papers

The TOML has what the paper and the released code say about each table, figure, equation, algorithm, theorem and group
of settings, what this project does, and the command. A setting, its value and its origin are one line of a config:
`temperature=0.2,  # paper, App. E`, or `# released, FILE`, or `# ours: reason`.
"""

import ast
import dataclasses
import io
import re
import tokenize
import tomllib
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from mvcl import _configs, augment, data, models, training
from mvcl.training import _evaluate, _program

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "papers"
KINDS = {
    "Tables and figures": ("table", "figure"),
    "Equations, theorems and algorithms": ("equation", "theorem", "algorithm"),
    "Settings": ("setting",),
}
STATUSES = ("implemented", "partly", "not implemented")
ORIGINS = ("paper", "released", "ours")
# Fields that are no settings, by class: what a run costs, what it logs, where it reads, and what it draws.
COST = {
    "Config": {"mesh", "checkpoint"},
    "Train": {"seed", "microbatch", "remat", "log_every", "evaluate_every", "geometry_every"}
    | {"threads", "corrupt_limit", "stall_seconds", "peak_tflops"},
    "Checkpoint": {"every_steps", "keep"},
    "Mesh": {"slices", "data", "fsdp"},
    "Policy": {"exact_crops"},
    "Evaluation": {"batch_size", "baselines", "seed"},
    "Sem": {"watch_epochs"},
    "Source": {"path", "directory", "seed", "draw_seed"},
}
# Sources of views that are given, so that no policy draws them.
GIVEN = ("Tables", "Sentiment", "Eeg", "DigitsViews", "GaussianViews")
# Mechanisms that only a config that has them names: class -> field -> its value where there is none.
OFF: dict[str, dict[str, Any]] = {
    "Train": {"ema": 0.0, "group": None, "initial": None},
    "Optimizer": {"clip_norm": None, "end_weight_decay": None, "rates": ()},
    "Views": {"global_views": None, "policies": ()},
    "MultiEncoder": {"fusion": None, "encoders": ()},
    "Sem": {"paper": False, "as_released": False},
    "Supervised": {"encoders": (), "regression": "absolute"},
    "Classification": {"of": "", "knn_head": False},
    "ConvNet": {"batch_groups": 1},
    "ViT": {"pre_norm": False},
    "Tables": {"columns": (), "missing": "error"},
    "LinearProbe": {"policy": None, "nesterov": False},
    "StudentTeacher": {"targets": "view"},
}


def _off(*names: str) -> Callable[[Any], bool]:
    return lambda config: not any(getattr(config, name) for name in names)


def _method(config: Any, *names: str) -> bool:
    return type(config.method).__name__ in names


# Fields that nothing reads: class -> fields and when.
IDLE: dict[str, list[tuple[set[str], Callable[[Any], bool]]]] = {
    "Config": [
        ({"encoder"}, lambda c: _method(c, "Sem")),
        ({"head"}, lambda c: _method(c, "Sem", "SideBySide", "Supervised")),
        ({"objective"}, lambda c: _method(c, "Supervised")),
    ],
    "Policy": [
        ({"blur_sigma", "blur_kernel"}, _off("blur_probability")),
        ({"brightness", "contrast", "saturation", "hue"}, _off("jitter_probability")),
        ({"jitter_probability"}, _off("brightness", "contrast", "saturation", "hue")),
        (
            {f"rand_augment_{x}" for x in ("magnitude", "deviation", "kind", "probability")},
            _off("rand_augment_ops"),
        ),
        ({"solarise_threshold"}, _off("solarise_probability")),
        ({"erase_scale"}, _off("erase_probability")),
        ({"crop_scale", "crop_ratio"}, lambda c: c.crop_padding or not c.random_crop),
        ({"crop_padding"}, _off("random_crop")),
        ({"center_fraction"}, lambda c: c.random_crop),
    ],
    "Views": [
        ({"local_policy"}, lambda c: c.global_views is None),
        ({"policy", "local_policy"}, lambda c: bool(c.policies)),
        ({"reference_views"}, lambda c: c.strategy == "growing"),
    ],
    "Train": [({"epochs"}, lambda c: c.steps is not None), ({"steps"}, lambda c: c.steps is None)],
    "Optimizer": [
        ({"scaling"}, _off("reference_batch")),
        ({"decays"}, _off("weight_decay", "end_weight_decay")),
        ({"warmup_share"}, lambda c: bool(c.warmup_epochs)),
        ({"warmup_epochs"}, lambda c: bool(c.warmup_share)),
    ],
    "ResNet": [({"batch_rows"}, lambda c: c.batch_groups == 1)],
    "MLPHead": [({"hidden", "activation", "norm"}, lambda c: c.layers == 1)],
    "LinearProbe": [({"milestones"}, lambda c: c.decay != "steps"), ({"crop_padding"}, _off("augment"))],
    "MocoV2": [({"queue_keys"}, _off("queue"))],
    "MultiEncoder": [({"fusion_weight"}, _off("fusion"))],
    "Classification": [({"draws"}, _off("labels_per_class"))],
    "Clustering": [({"draws"}, _off("svm_share"))],
    "Sem": [({"clusters", "k_means_starts", "mini_batch_above"}, lambda c: c.weights != "cmi")],
}
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


def needed(config: Any) -> list[str]:
    """The fields of a dataclass of a config that are settings: something reads them, and a result depends on them."""
    classes = {cls.__name__ for cls in type(config).__mro__} | (
        {"Source"} if hasattr(config, "open") else set()
    )
    none = set[str]().union(*(COST.get(name, ()) for name in classes))
    for name in classes:
        none = none.union(*(fields for fields, idle in IDLE.get(name, ()) if idle(config)))
    return [field.name for field in dataclasses.fields(config) if field.name not in none]


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
        if name in COST["Config"] | COST["Train"] or (whole and not self._prints(value)):
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
        if rows := _of_functions(file):
            parts += [
                f"Policies and heads of {name}/{file.stem}, whole. The values that a function of the library sets have "
                "their origins there, in `mvcl/augment/_policy.py` and `mvcl/models/_configs.py`.",
                _markdown(("variant and option", "values"), rows),
            ]
    parts.append(_CONSTANTS)
    return "\n\n".join(parts) + "\n"


_CONSTANTS = (
    f"In all configs a norm adds {models.NORM_EPS['batch']:g} to the variance, batch and group norm, or "
    f"{models.NORM_EPS['layer']:g}, layer norm, and a step keeps {models.RUNNING_DECAY:g} of batch normalisation's "
    "running statistics. Products of networks have the precision of the backend, in float32 on a recent GPU TF32, and "
    "those of SEM's networks and of losses the highest."
)


def _of_functions(file: Path) -> list[tuple[str, str]]:
    """The policies and heads of a config's variants, those that are equal in one row: where, and their values."""
    found: dict[str, list[str]] = {}
    for variant in _configs.variants(file):
        if not variant.startswith("smoke"):
            config = training.load(f"{file.parent.name}/{file.stem}:{variant}")
            for option, values in (*_made(config, variant), *_evaluated(config, variant)):
                found.setdefault(values, []).append(option)
    return [(", ".join(f"`{option}`" for option in options), values) for values, options in found.items()]


def _evaluated(config: training.Config, name: str) -> Iterator[tuple[str, str]]:
    """The policies that evaluation and its linear layer make of the first view's."""
    expected = data.expected(config.data)
    if expected is not None and not expected.spec.given:
        yield from _made(_program.evaluation_policy(config, expected.spec), f"{name}, evaluation")
        linear = getattr(config.evaluation, "linear", None)
        if linear is not None and linear.augment:
            yield from _made(_evaluate.policy(config, linear), f"{name}, linear layer")


def _made(config: Any, name: str) -> Iterator[tuple[str, str]]:
    """The policies and heads in a config."""
    fields = needed(config)
    if isinstance(config, training.Config) and type(config.data).__name__ in GIVEN:
        fields.remove("views")
    if isinstance(config, augment.Policy | models.MLPHead):
        yield name, ", ".join(f"{field} `{_short(getattr(config, field))}`" for field in fields)
        return
    for field in fields:
        value = getattr(config, field)
        parts = value if isinstance(value, tuple) else (value,)
        for number, part in enumerate(parts):
            if dataclasses.is_dataclass(part):
                yield from _made(part, f"{name}.{field}" + (f"[{number}]" if value is parts else ""))


def _short(value: Any) -> str:
    return re.sub(r"\d+\.\d{5,}", lambda number: f"{float(number[0]):.4g}", str(value))


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
