"""Fine-tuning of a run's encoder, on its own data or another set."""

from collections.abc import Callable, Mapping

from mvcl import data, evaluation
from mvcl.training import _program
from mvcl.training._encoding import one_encoder
from mvcl.training._run import Run


def finetune(
    run: Run,
    state: _program.State,
    options: evaluation.Finetune,
    *,
    splits: Mapping[str, data.Split] | None = None,
    report: Callable[[str], None] = print,
) -> list[evaluation.Result]:
    """Fine-tune the encoder of a run, shown images as in its evaluation.

    Args:
      run: an opened run of images.
      state: its state; not changed.
      options: the recipe.
      splits: "train" and "test" of labelled images; None takes the run's own.
      report: called with a line after every epoch.

    Raises:
      ValueError: the run's method has an encoder for each view, or the data are no labelled images.
    """
    chosen = run.splits if splits is None else splits
    for part in ("train", "test"):
        split = chosen.get(part)
        if split is None or split.spec.views is not None or not split.class_names:
            raise ValueError(
                "fine-tuning needs train and test splits of labelled images; these data hold others"
            )
    encoder = one_encoder(run, state)
    channels = chosen["train"].spec.channels
    if channels != run.outline.spec.channels:
        raise ValueError(
            f"the encoder takes {run.outline.spec.channels} channels and these images have {channels}"
        )
    view = _program.evaluation_policy(run.config, chosen["test"].spec.image_shape)
    return evaluation.finetune(encoder, chosen, options, view, report)
