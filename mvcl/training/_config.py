"""What a run is made of: one frozen dataclass."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from mvcl import augment, losses, methods, models
from mvcl.data import Digits, Outline, Source
from mvcl.evaluation import Classification, Evaluation
from mvcl.training import _functions
from mvcl.training._optimizers import AdamW, Optimizer


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
    scope: Literal["global", "device"] = "global"
    """Over which examples the objective is taken: `global` is the loss of the global batch, `device` the mean over
    devices of the loss of each one's examples, as Piran 2024 trains M3G."""
    microbatch: int | None = None
    """Embed this many examples at a time and device, recomputing them in the backward pass; value and gradient
    stay those of the whole batch. None embeds the batch at once."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the encoder; auto is bfloat16 on GPU and TPU and float32 on CPU. Parameters and loss are
    float32 in any case."""
    initial: str | None = None
    """Folder of a run whose evaluated encoder the training starts from; for methods simclr and supervised."""
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
    head: models.HeadConfig = dataclasses.field(default_factory=models.koromilas_head)
    """The network between the features and the objective; thrown away after training."""
    objective: losses.Loss = losses.mv_infonce
    """What is minimised: a function of (k, n, d) embeddings, or of other operands that it declares."""
    method: methods.Method = dataclasses.field(default_factory=methods.Simclr)
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
    return config


def suited_to(config: Config, outline: Outline) -> Config:
    """The config as these data need it: with as many views as the examples hold, where they hold any.

    Tables may have few rows: the batch is then all of them.
    """
    k = outline.spec.views
    if k is None:
        return config
    views, train = dataclasses.replace(config.views, k=k), config.train
    if outline.spec.given and views.strategy == "growing":
        train = dataclasses.replace(train, batch_size=min(train.batch_size, outline.examples))
    return dataclasses.replace(config, views=views, train=train)


def replace_at(node: Any, path: Sequence[str], value: Any) -> Any:
    """A config, or a part of it, with another value at a path of field and option names."""
    if not path:
        return value
    if _functions.is_function(node):
        named, options = _functions.parts(node)
        if path[0] not in options:
            raise ValueError(f"{named.__name__} has no option {path[0]!r} to choose")
        return _functions.rebuild(named, options | {path[0]: replace_at(options[path[0]], path[1:], value)})
    if not hasattr(node, path[0]):
        raise ValueError(f"{type(node).__name__} has no field {path[0]!r} to choose")
    return dataclasses.replace(node, **{path[0]: replace_at(getattr(node, path[0]), path[1:], value)})
