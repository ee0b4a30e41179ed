"""The config of a run, a frozen dataclass."""

import dataclasses
from typing import Literal

from mvcl import _checks, augment, losses, methods, models
from mvcl.augment import Policy
from mvcl.data import Digits, Outline, Source
from mvcl.evaluation import Classification, Evaluation, Unevaluated
from mvcl.training._optimizers import AdamW, Optimizer

# Metadata of a field that may differ where configs are compared, see `free`; and that compiled functions do not read.
_FREE = {"resume": True, "seeds": True}
_UNREAD = {"unread": True}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Views:
    """How many views an example has and how each is made."""

    k: int = 2
    """Views per example, at least 2. For given views, such as tables, it is set to their number."""
    policy: Policy = dataclasses.field(default_factory=augment.simclr)
    """Augmentation policy of every view, or of the global ones; `views.policy:NAME` chooses one by name."""
    global_views: int | None = None
    """Multi-crop: the first so many views are global and the others local, which have another policy and often a
    smaller image_size; `2` of 8, for example. None: all are global."""
    local_policy: Policy = dataclasses.field(
        default_factory=lambda: augment.simclr(image_size=96, crop_scale=(0.05, 0.4))
    )
    """Augmentation policy of the local views; `views.local-policy:NAME` chooses one by name. The default is
    SimCLR's with the size and the areas of the local views of DINO (Caron 2021, arXiv 2104.14294)."""
    policies: tuple[Policy, ...] = ()
    """One policy per view, of any sizes; those after the k-th are unused. Empty: `policy`, and `local_policy` for local
    views."""
    strategy: Literal["growing", "fixed"] = "growing"
    """`growing` has n = batch_size examples for every k; `fixed` keeps the number of views n*k at
    batch_size * reference_views: n = batch_size * reference_views / k, rounded down. A learning rate with a
    reference_batch is scaled by this n."""
    reference_views: int = 2
    """Views per example at which `fixed` has n = batch_size: 2 as in Shidani 2024 (4096 examples of 2 views); 1 for
    Koromilas 2025 (256 images are 64 examples of 4 views)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Train:
    """Length, batch and precision of a run."""

    seed: int = dataclasses.field(default=0, metadata={"seeds": True} | _UNREAD)
    """Seed of parameters, order and views."""
    epochs: float = 100.0
    """Passes over the training split."""
    steps: int | None = None
    """Number of steps; overrides `epochs`."""
    batch_size: int = 256
    """Examples of a global batch, over all devices and processes. Smaller data are one batch."""
    group: int | None = None
    """Examples that are compared with each other (the objective's n): the loss is the mean over groups of this many
    consecutive examples of the batch, as Piran 2024 trains on the batch of each GPU. It must divide the examples of
    each device; the loss is then the same on any number of devices. None: the global batch is one group."""
    microbatch: int | None = None
    """Embed this many examples at a time on each device and recompute them in the backward pass. Value and
    gradient are those of the whole batch. None embeds the batch at once."""
    remat: models.Remat = dataclasses.field(default="none", metadata=_FREE)
    """What the backward pass computes again in place of keeping it; values, gradients and running statistics stay the
    same. none: nothing; blocks: the inside of each block of the encoder, a third more FLOPs; full: also that of each
    layer in turn, half as many more. `mvcl train CONFIG --dry-run` has the memory of each, and an encoder of one's own
    says its blocks by `models.in_turn`."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the encoder; auto is bfloat16 on GPU and TPU and float32 on CPU. Parameters and loss are
    always float32."""
    initial: str | None = dataclasses.field(default=None, metadata=_UNREAD)
    """Folder of a run whose encoder initialises the encoder; or a file of weights, .safetensors, .npz or PyTorch's, of
    torchvision's ResNet or of a ViT of timm, Hugging Face, CLIP or DINOv2. For methods simclr and supervised."""
    ema: float = 0.0
    """Decay of an exponential moving average of the parameters, which is then evaluated; 0 for none."""
    log_every: int = dataclasses.field(default=10, metadata=_FREE)
    """Steps between log lines."""
    evaluate_every: float = dataclasses.field(default=10.0, metadata=_UNREAD)
    """Epochs between k-NN evaluations during training; 0 evaluates only at the end."""
    geometry_every: float = dataclasses.field(default=0.0, metadata=_FREE | _UNREAD)
    """Epochs between logs of alignment, uniformity, effective rank and cosines of the views of test examples, at
    encoder and head; 0: never. `mvcl geometry RUN` measures more of the trained network."""
    threads: int = dataclasses.field(default=4, metadata=_FREE | _UNREAD)
    """Host threads that read and decode batches."""
    corrupt_limit: int = dataclasses.field(default=10, metadata=_FREE | _UNREAD)
    """Number of unreadable examples to skip, each counted once; one more stops the run with an error that names
    it. In training another example replaces each."""
    stall_seconds: float = dataclasses.field(default=600.0, metadata=_FREE | _UNREAD)
    """Seconds to wait for a batch before the run stops with an error that names the file being read; 0: no limit."""
    peak_tflops: float | None = dataclasses.field(default=None, metadata=_FREE | _UNREAD)
    """Peak TFLOP/s of one device in the run's precision, for the utilisation in the log. None uses a table of TPUs
    and some GPUs, in bfloat16."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mesh:
    """Axes of the device mesh."""

    slices: int = 1
    """TPU slices that a data-centre network joins, of slices * data * fsdp devices in all. The batch is split over
    them; parameters are split inside each. On CPU and GPU, equal groups of consecutive devices count as slices."""
    data: int = -1
    """Devices of a slice over which the batch is split; -1 for all remaining."""
    fsdp: int = 1
    """Devices of a slice over which parameters and optimiser state are split; the batch is split over them too."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Checkpoint interval and number kept."""

    every_steps: int = 200
    """Steps between checkpoints; one is always written at the end and on SIGTERM."""
    keep: int = 2
    """Number of newest checkpoints to keep, besides the best."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """One experiment."""

    data: Source = dataclasses.field(default_factory=Digits, metadata={"resume": ("directory", "path")})
    """Source of the examples; they may have moved when a run resumes."""
    views: Views = dataclasses.field(default_factory=Views)
    encoder: models.EncoderConfig = dataclasses.field(default_factory=lambda: models.ResNet())
    """The network whose features are evaluated."""
    head: models.HeadConfig = dataclasses.field(default_factory=models.koromilas_head)
    """The network between features and objective; not used after training."""
    objective: losses.Loss = losses.mv_infonce
    """The function that is minimised, of (k, n, d) embeddings or of the operands that it declares."""
    method: methods.Method = dataclasses.field(default_factory=methods.Simclr)
    """The method that computes the objective's embeddings."""
    optimizer: Optimizer = dataclasses.field(default_factory=AdamW)
    train: Train = dataclasses.field(default_factory=Train)
    mesh: Mesh = dataclasses.field(default_factory=Mesh, metadata=_FREE)
    checkpoint: Checkpoint = dataclasses.field(default_factory=Checkpoint, metadata=_FREE)
    evaluation: Evaluation = dataclasses.field(default_factory=Classification, metadata={"resume": True})
    """Evaluation protocol of the features."""

    def __post_init__(self) -> None:
        if self.evaluation is None:
            object.__setattr__(self, "evaluation", Unevaluated())

    @property
    def examples(self) -> int:
        """n, the examples of a global batch, by views.strategy."""
        if self.views.strategy == "growing":
            return self.train.batch_size
        return self.train.batch_size * self.views.reference_views // self.views.k

    @property
    def batch_origin(self) -> str:
        """How views.strategy=fixed makes n, for messages; empty for `growing`."""
        views = self.views
        if views.strategy == "growing":
            return ""
        return f" ({self.train.batch_size} x {views.reference_views} views / {views.k}, rounded down)"

    @property
    def policies(self) -> tuple[Policy, ...]:
        """The k policies, one per view."""
        k, whole, local = self.views.k, self.views.policy, self.views.local_policy
        first = k if self.views.global_views is None else self.views.global_views
        return self.views.policies[:k] or (whole,) * first + (local,) * (k - first)

    @property
    def view_names(self) -> tuple[str, ...]:
        """Names of the k views that are drawn from images: `view 1`, or `global 1` and `local 1`."""
        k, first = self.views.k, self.views.global_views
        if first is None:
            return tuple(f"view {view + 1}" for view in range(k))
        return tuple(f"global {v + 1}" if v < first else f"local {v - first + 1}" for v in range(k))


def free(use: Literal["resume", "seeds"]) -> tuple[str, ...]:
    """Dotted names of the fields that may differ when a run resumes, or between the seeds of one experiment; the name
    of a field that holds a dataclass stands for all its fields."""
    names = [f"train.{field.name}" for field in dataclasses.fields(Train) if use in field.metadata]
    for field in dataclasses.fields(Config):
        inside = field.metadata.get(use, ())
        names += [field.name] if inside is True else [f"{field.name}.{name}" for name in inside]
    return tuple(names)


def check(config: Config) -> Config:
    """Return the config; raise `ValueError` for the first invalid field."""
    views, train, mesh, k = config.views, config.train, config.mesh, config.views.k
    _checks.fields("views", views, k="[2, inf)", reference_views="[1, inf)", global_views=f"[1, {k})")
    _checks.fields("train", train, epochs="(0, inf)", steps="[1, inf)", ema="[0, 1)", peak_tflops="(0, inf)")
    _checks.fields("train", train, evaluate_every="[0, inf)", geometry_every="[0, inf)")
    _checks.fields("train", train, log_every="[1, inf)", threads="[1, inf)")
    _checks.fields("train", train, corrupt_limit="[0, inf)", stall_seconds="[0, inf)")
    _checks.fields("checkpoint", config.checkpoint, every_steps="[1, inf)", keep="[1, inf)")
    _checks.fields("mesh", mesh, slices="[1, inf)", fsdp="[1, inf)")
    if mesh.data != -1:  # all
        _checks.fields("mesh", mesh, data="[1, inf)")
    if 0 < (n := len(views.policies)) < k:
        raise ValueError(f"views.policies must be empty or have at least views.k = {k} entries, got {n}")
    if config.examples < 2:
        raise ValueError(f"a batch must hold at least 2 examples, got {config.examples}{config.batch_origin}")
    if train.group is not None and (train.group < 2 or config.examples % train.group):
        n, group = config.examples, train.group
        raise ValueError(f"train.group must be at least 2 and divide the batch of {n} examples, got {group}")
    methods.check(config.objective, k, views.global_views)
    return config


def suited_to(config: Config, outline: Outline) -> Config:
    """The config, checked, as the data fix it.

    The number of views is that of the data, if they have one; a batch is at most as large as the data; a policy of size
    0 and `models.ByShape` follow the images. `ValueError` if a field is invalid, or a policy normalises other channels
    than the images have.
    """
    spec, views, train, policy = outline.spec, config.views, config.train, config.views.policy
    if views.strategy == "growing":
        train = dataclasses.replace(train, batch_size=min(train.batch_size, outline.examples))
    if not spec.given and policy.image_size == 0:
        side = min(outline.side or 224, 224)
        blur = policy.blur_probability if side > models.SMALL else 0.0
        policy = dataclasses.replace(policy, image_size=side, blur_probability=blur)
    views = dataclasses.replace(views, policy=policy, k=views.k if spec.views is None else spec.views)
    config = dataclasses.replace(config, views=views, train=train)
    if not spec.given and isinstance(config.encoder, models.ByShape):
        side = config.policies[0].image_size
        config = dataclasses.replace(config, encoder=config.encoder.of((side, side, spec.channels)))
    for policy in () if spec.given else config.policies:
        numbers = max(len(policy.mean), len(policy.std))
        if numbers not in (1, spec.channels):
            what = f"views.policy normalises {numbers} channels and the images have {spec.channels}"
            use = "--views.policy.mean and --views.policy.std 0.5, or 0 and 1 for none"
            raise ValueError(f"{what}; use {use}")
    return check(config)
