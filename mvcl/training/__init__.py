"""Configs, the training step and its loop, checkpoints."""

from mvcl import _extras

with _extras.needed("train", by="mvcl.training"):
    import grain  # noqa: F401
    import orbax.checkpoint  # noqa: F401
    import tensorboardX  # noqa: F401
    import tyro  # noqa: F401

from mvcl.training._checkpoints import Checkpoints, DamagedCheckpoints, UnwrittenCheckpoint
from mvcl.training._config import (
    CHOICES,
    Checkpoint,
    Config,
    Mesh,
    Train,
    Views,
    check,
    choose,
    from_json,
    load,
    suited_to,
    to_json,
)
from mvcl.training._dry_run import Estimate, dry_run, estimate
from mvcl.training._finetune import finetune
from mvcl.training._optimizers import AdamW, Lars, Optimizer, Sgd
from mvcl.training._processes import Distributed, LostProcess, join
from mvcl.training._program import Program, build
from mvcl.training._train import (
    Diverged,
    Interrupted,
    Run,
    compilation_cache,
    embed,
    encode,
    evaluate,
    one_encoder,
    open_run,
    prepare,
    train,
)

__all__ = [
    "CHOICES",
    "AdamW",
    "Checkpoint",
    "Checkpoints",
    "Config",
    "DamagedCheckpoints",
    "Distributed",
    "Diverged",
    "Estimate",
    "Interrupted",
    "Lars",
    "LostProcess",
    "Mesh",
    "Optimizer",
    "Program",
    "Run",
    "Sgd",
    "Train",
    "UnwrittenCheckpoint",
    "Views",
    "build",
    "check",
    "choose",
    "compilation_cache",
    "dry_run",
    "embed",
    "encode",
    "estimate",
    "evaluate",
    "finetune",
    "from_json",
    "join",
    "load",
    "one_encoder",
    "open_run",
    "prepare",
    "suited_to",
    "to_json",
    "train",
]
