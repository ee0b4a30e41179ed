"""Pre-training once, then fine-tuning on several data sets."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mvcl import data, training
from mvcl._progress import Progress
from mvcl.studies._task import Values, changed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finetuned:
    """A data set to fine-tune on."""

    name: str
    """Of the measure."""
    source: data.Source
    changes: tuple[tuple[str, Any], ...] = ()
    """Of the config by `training.finetune_config`: dotted field names with values."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Transfer:
    """Test accuracy after fine-tuning the whole pre-trained encoder on each of several data sets; a `Task`."""

    config: training.Config
    """The pre-training; its train.seed is replaced by the seed of the cell, as that of the fine-tuning."""
    sets: tuple[Finetuned, ...]

    def run(self, folder: Path, seed: int, progress: Progress) -> Sequence[Values]:
        """Pre-train in FOLDER/pretraining, fine-tune in FOLDER/NAME; finished runs are not repeated."""
        pretrained, seeded = folder / "pretraining", {"train.seed": seed}
        training.train(changed(self.config, seeded), pretrained)
        found: Values = {}
        for one in self.sets:
            config = changed(training.finetune_config(pretrained, one.source), dict(one.changes) | seeded)
            table = training.train(config, folder / one.name)
            accuracy = table["trained encoder"][0].value
            if accuracy is not None:
                found[one.name] = accuracy
        return [found]
