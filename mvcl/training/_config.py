"""What a run is made of: one frozen dataclass, from a Python file, a saved JSON file and the command line."""

import dataclasses
import difflib
import json
import runpy
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from mvcl import augment, methods, models
from mvcl.data import SOURCES, Digits, Outline, Source
from mvcl.evaluation import EVALUATIONS, Classification, Clustering, Evaluation
from mvcl.training._optimizers import OPTIMIZERS, AdamW, Optimizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Views:
    """How many views an example has and how each is made."""

    k: int = 2
    """Views of each example, at least 2. Where examples hold their views, as a table does, it is their number."""
    policy: augment.Policy = dataclasses.field(default_factory=augment.simclr)
    """Policy of every view; choose another by name with `views.policy:NAME`."""
    policies: tuple[augment.Policy, ...] = ()
    """One policy a view; those after the k-th are not used. Empty means `policy` for all."""
    strategy: Literal["growing", "fixed"] = "growing"
    """Shidani 2024: `growing` keeps the n examples of a batch whatever k is; `fixed` keeps the n*k views of
    two views, so that n = batch_size * 2 / k."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Train:
    """Length, batch and arithmetic of a run."""

    seed: int = 0
    """Seed of parameters, order and views."""
    epochs: float = 100.0
    """Passes over the training split."""
    steps: int | None = None
    """Steps instead of epochs."""
    batch_size: int = 256
    """Examples of a global batch (n), over all devices and processes; all, of tables with fewer."""
    microbatch: int | None = None
    """Embed this many examples at a time and device, recomputing them in the backward pass; value and gradient
    stay those of the whole batch. None embeds the batch at once."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the encoder; auto is bfloat16 on GPU and TPU and float32 on CPU. Parameters and loss are
    float32 in any case."""
    ema: float = 0.0
    """Decay of an exponential moving average of the parameters, which is then what is evaluated; 0 keeps none."""
    log_every: int = 10
    """Steps between two log lines."""
    evaluate_every: float = 10.0
    """Epochs between two k-NN evaluations during training; 0 is only at the end."""
    threads: int = 4
    """Host threads that read and decode batches."""
    corrupt_limit: int = 10
    """Examples that cannot be read and are passed over, each counted once; one more stops the run and is named. In
    training another example takes the place of each."""
    stall_seconds: float = 600.0
    """Seconds to wait for a batch before the run stops and names what is being read; 0 waits for ever."""
    peak_tflops: float | None = None
    """TFLOP/s of one device at its best in the run's precision, for the utilisation in the log; None knows TPUs and
    some GPUs, in bfloat16."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mesh:
    """How the devices are used."""

    data: int = -1
    """Devices over which the batch is split; -1 is all that are left."""
    fsdp: int = 1
    """Devices over which parameters and optimiser state are split; they split the batch as well."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What is saved and when."""

    every_steps: int = 200
    """Steps between two checkpoints; one is always written at the end and on SIGTERM."""
    keep: int = 2
    """Newest checkpoints that are kept, beside the best."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """One experiment."""

    data: Source = dataclasses.field(default_factory=Digits)
    """Where examples come from."""
    views: Views = dataclasses.field(default_factory=Views)
    encoder: models.EncoderConfig = dataclasses.field(default_factory=models.ResNet)
    """The network whose features are kept."""
    head: models.HeadConfig = dataclasses.field(default_factory=models.HEADS["koromilas"])
    """The network between the features and the objective; thrown away after training."""
    objective: methods.Objective = dataclasses.field(default_factory=methods.OBJECTIVES["mv_infonce"])
    """What is minimised."""
    method: methods.AnyMethod = dataclasses.field(default_factory=methods.Simclr)
    """How the embeddings of the objective come about."""
    optimizer: Optimizer = dataclasses.field(default_factory=AdamW)
    train: Train = dataclasses.field(default_factory=Train)
    mesh: Mesh = dataclasses.field(default_factory=Mesh)
    checkpoint: Checkpoint = dataclasses.field(default_factory=Checkpoint)
    evaluation: Evaluation = dataclasses.field(default_factory=Classification)
    """How features are measured."""

    @property
    def examples(self) -> int:
        """n, the examples of a global batch under the batch strategy."""
        if self.views.strategy == "growing":
            return self.train.batch_size
        return self.train.batch_size * 2 // self.views.k

    @property
    def policies(self) -> tuple[augment.Policy, ...]:
        """The k policies, one a view."""
        return self.views.policies[: self.views.k] or (self.views.policy,) * self.views.k


# Fields whose value is chosen by name, `FIELD:NAME` on the command line. The key is the dotted path.
CHOICES: dict[str, Mapping[str, Callable[[], Any]]] = {
    "data": SOURCES,
    "views.policy": augment.POLICIES,
    "encoder": models.ENCODERS,
    "head": models.HEADS,
    "objective": methods.OBJECTIVES,
    "objective.pair": methods.PAIR_OBJECTIVES,
    "method": methods.METHODS,
    "method.predictor": models.HEADS,
    "evaluation": EVALUATIONS,
    "optimizer": OPTIMIZERS,
}


def check(config: Config) -> Config:
    """The config itself, or a `ValueError` about the first field that cannot work."""
    views, train = config.views, config.train
    if views.k < 2:
        raise ValueError(f"views.k must be at least 2, for an objective compares views; got {views.k}")
    if views.policies and len(views.policies) < views.k:
        raise ValueError(
            f"views.policies must have views.k = {views.k} entries, or more, or none, got {len(views.policies)}"
        )
    sizes = {policy.image_size for policy in config.policies}
    if len(sizes) > 1:
        raise ValueError(f"the views of an example must have one image_size, got {sorted(sizes)}")
    if views.strategy == "fixed" and train.batch_size * 2 % views.k:
        raise ValueError(
            f"views.strategy=fixed needs 2 * train.batch_size = {2 * train.batch_size} to be a multiple of views.k = "
            f"{views.k}"
        )
    if config.examples < 2:
        raise ValueError(f"a batch must hold at least 2 examples, got {config.examples}")
    if train.steps is not None and train.steps < 1:
        raise ValueError(f"train.steps must be at least 1, got {train.steps}")
    if not train.epochs > 0:
        raise ValueError(f"train.epochs must be positive, got {train.epochs}")
    if not 0 <= train.ema < 1:
        raise ValueError(f"train.ema must lie in [0, 1), got {train.ema}")
    for name in ("log_every", "threads"):
        if getattr(train, name) < 1:
            raise ValueError(f"train.{name} must be at least 1, got {getattr(train, name)}")
    for name in ("corrupt_limit", "stall_seconds"):
        if not getattr(train, name) >= 0:
            raise ValueError(f"train.{name} must be at least 0, got {getattr(train, name)}")
    if train.peak_tflops is not None and not train.peak_tflops > 0:
        raise ValueError(f"train.peak_tflops must be positive, got {train.peak_tflops}")
    if train.evaluate_every < 0:
        raise ValueError(f"train.evaluate_every must be at least 0, got {train.evaluate_every}")
    if config.checkpoint.every_steps < 1 or config.checkpoint.keep < 1:
        raise ValueError(
            "checkpoint.every_steps and checkpoint.keep must be at least 1, got "
            f"{config.checkpoint.every_steps} and {config.checkpoint.keep}"
        )
    if config.mesh.fsdp < 1 or config.mesh.data == 0 or config.mesh.data < -1:
        raise ValueError(f"mesh.data must be -1 or positive and mesh.fsdp positive, got {config.mesh}")
    methods.check(config.objective, views.k)
    config.method.check(
        methods.Plan(config.encoder, config.head, config.objective, views.k, train.microbatch)
    )
    return config


def suited_to(config: Config, outline: Outline) -> Config:
    """The config as these data need it: with as many views as the examples hold, where they hold any.

    Tables may have few rows: the batch is then all of them. Without labels as many clusters are evaluated as the
    method has.
    """
    k = outline.spec.views
    if k is None:
        return config
    views, train, protocol = dataclasses.replace(config.views, k=k), config.train, config.evaluation
    if outline.spec.given and views.strategy == "growing":
        train = dataclasses.replace(train, batch_size=min(train.batch_size, outline.examples))
    if isinstance(protocol, Clustering) and outline.classes < 2 and not protocol.clusters:
        protocol = dataclasses.replace(protocol, clusters=getattr(config.method, "clusters", 0))
    return dataclasses.replace(config, views=views, train=train, evaluation=protocol)


def load(path: str | Path) -> Config:
    """The config of a Python file with `get_config()`, of a saved config.json, or of a run folder.

    Raises:
      ValueError: there is no such file, or it does not give a `Config`.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "config.json"
    if not path.is_file():
        raise ValueError(f"no config at {path}; `mvcl configs` lists those that come with the project")
    if path.suffix == ".json":
        return from_json(path.read_text())
    try:
        namespace = runpy.run_path(str(path))
    except SyntaxError as error:
        raise ValueError(f"{path} is not Python: {error}") from error
    if "get_config" not in namespace:
        raise ValueError(f"{path} has no function get_config()")
    config = namespace["get_config"]()
    if not isinstance(config, Config):
        raise ValueError(
            f"get_config() of {path} must return a mvcl.training.Config, got {type(config).__name__}"
        )
    return config


def to_json(config: Any) -> str:
    """The config as JSON text; each dataclass carries its class name under `_type`."""

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return {"_type": type(value).__name__, **fields}
        if isinstance(value, (tuple, list)):
            return [plain(item) for item in value]
        return value

    return json.dumps(plain(config), indent=2) + "\n"


def from_json(text: str) -> Config:
    """The inverse of `to_json`; no code is run.

    Raises:
      ValueError: the text is not JSON, or names a class or field that does not exist.
    """
    try:
        tree = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the saved config is not JSON: {error}") from error
    config = _build(tree, _classes())
    if not isinstance(config, Config):
        raise ValueError("the saved config is not a Config")
    return config


def choose(config: Config, path: str, name: str) -> Config:
    """The config with the field at a dotted path set to the named choice, with that choice's own defaults."""
    table = CHOICES.get(path)
    if table is None:
        raise ValueError(f"{path}:{name} is not understood; fields chosen by name are {', '.join(CHOICES)}")
    key = name.replace("-", "_")
    if key not in table:
        close = difflib.get_close_matches(key, table, n=1)
        hint = f"did you mean {path}:{close[0]}? " if close else ""
        raise ValueError(f"unknown {path} {name!r}; {hint}Known: {', '.join(table)}")
    return _replace(config, path.split("."), table[key]())


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every leaf of a config under its dotted name; a dataclass gives its class name under its own name."""
    leaves: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value, name = getattr(config, field.name), prefix + field.name
        if dataclasses.is_dataclass(value):
            leaves |= {name: type(value).__name__} | flatten(value, f"{name}.")
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            for i, item in enumerate(value):
                leaves |= flatten(item, f"{name}.{i}.")
        else:
            leaves[name] = value
    return leaves


def _replace(node: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    if not hasattr(node, path[0]):
        raise ValueError(f"{type(node).__name__} has no field {path[0]!r} to choose")
    return dataclasses.replace(node, **{path[0]: _replace(getattr(node, path[0]), path[1:], value)})


def _classes() -> dict[str, type]:
    """Every dataclass a config may hold, by class name."""
    found: dict[str, type] = {}

    def visit(cls: type) -> None:
        if cls.__name__ in found:
            return
        found[cls.__name__] = cls
        for hint in typing.get_type_hints(cls).values():
            for part in _parts(hint):
                visit(part)

    visit(Config)
    for table in CHOICES.values():
        for factory in table.values():
            visit(type(factory()))
    return found


def _parts(hint: Any) -> list[type]:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return [hint]
    if typing.get_origin(hint) in (typing.Union, types.UnionType, tuple):
        return [part for argument in typing.get_args(hint) for part in _parts(argument)]
    return []


def _build(node: Any, classes: Mapping[str, type]) -> Any:
    if isinstance(node, list):
        return tuple(_build(item, classes) for item in node)
    if not isinstance(node, dict):
        return node
    name = str(node.get("_type"))
    if name not in classes:
        raise ValueError(f"the saved config names the unknown class {name!r}")
    fields = {key: _build(value, classes) for key, value in node.items() if key != "_type"}
    try:
        return classes[name](**fields)
    except TypeError as error:
        raise ValueError(f"the saved config does not fit {name}: {error}") from error
