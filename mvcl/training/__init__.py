"""Configs, the training step and its loop, checkpoints."""

from typing import TYPE_CHECKING

from mvcl import _lazy

if TYPE_CHECKING:
    from mvcl.training._arguments import CHOICES, choose, choose_all, with_config
    from mvcl.training._config import Checkpoint, Config, Mesh, Train, Views, check, free, suited_to
    from mvcl.training._cost import Estimate, absent, dry_run, estimate
    from mvcl.training._encoder import Encoder, Output, fit, open_encoder
    from mvcl.training._evaluate import BASELINES, baseline, encode, evaluate
    from mvcl.training._folder import Checkpoints, Locked, differences, locked, read_log
    from mvcl.training._geometry import RunGeometry, decompose, embed, geometry
    from mvcl.training._memory import memory_table
    from mvcl.training._optimizers import AdamW, Lars, Optimizer, Sgd
    from mvcl.training._processes import Interrupted, compilation_cache, handling, join
    from mvcl.training._program import Program, build
    from mvcl.training._run import Run, one_encoder, open_run, open_weights, prepare
    from mvcl.training._serialise import (
        config_module,
        digests,
        flatten,
        from_json,
        load,
        replace_at,
        to_json,
        tree,
    )
    from mvcl.training._session import Diverged
    from mvcl.training._train import Hook, finetune_config, train, train_seeds

__getattr__, __dir__, __all__ = _lazy.exports(__name__)
