"""Configs, the training step and its loop, checkpoints."""

from mvcl.training._cache import compilation_cache
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
from mvcl.training._encoding import embed, encode, one_encoder
from mvcl.training._evaluate import evaluate
from mvcl.training._finetune import finetune
from mvcl.training._loop import Diverged
from mvcl.training._optimizers import AdamW, Lars, Optimizer, Sgd
from mvcl.training._processes import Distributed, LostProcess, join
from mvcl.training._program import Program, build
from mvcl.training._run import Run, open_run, prepare
from mvcl.training._signals import Interrupted
from mvcl.training._train import train

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
