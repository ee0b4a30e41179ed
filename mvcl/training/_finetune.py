"""Fine-tuning: the supervised method, starting from the encoder of a run."""

from pathlib import Path

from mvcl import augment, data, evaluation, methods, models
from mvcl.training._config import Config, Train, Views
from mvcl.training._load import load
from mvcl.training._optimizers import AdamW
from mvcl.training._seeds import train_seeds


def finetune_config(
    run: Path, source: data.Source | None = None, *, reference: Config | None = None
) -> Config:
    """The default config of `mvcl finetune`: train the encoder and a new linear layer on labelled images.

    The components are those of Shidani 2024, Table 2, their strengths those of DeiT (Touvron et al. 2021, Table 9).
    k is the number of repeated augmentations: a batch has train.batch_size images and k views of each.

    Args:
      run: folder of the run whose encoder is fine-tuned.
      source: labelled images; None uses the run's source.
      reference: a config with the functions and classes from outside mvcl that the run uses.
    """
    pretrained = load(run, reference)
    pretraining = pretrained.policies[0]
    policy = augment.Policy(
        image_size=pretraining.image_size,
        rand_augment_ops=2,
        rand_augment_magnitude=9.0,
        erase_probability=0.25,
        mean=pretraining.mean,
        std=pretraining.std,
    )
    return Config(
        data=pretrained.data if source is None else source,
        views=Views(k=3, policy=policy),
        encoder=pretrained.encoder,
        head=models.IdentityHead(),
        method=methods.Supervised(label_smoothing=0.1, mixup=0.8, cutmix=1.0, zero_head=True),
        optimizer=AdamW(learning_rate=5e-4, weight_decay=0.05, warmup_epochs=5),
        train=Train(epochs=100, batch_size=85, evaluate_every=0, initial=str(run)),
        evaluation=evaluation.Predictions(),
    )


def finetune(
    config: Config, folder: Path, seeds: int = 3, *, reference: Config | None = None
) -> list[evaluation.Result]:
    """Fine-tune once per seed, each in its own folder, and average the results.

    Args:
      config: from `finetune_config`; its train.seed is the first seed.
      folder: parent of the run folders, as for `train_seeds`.
      seeds: number of runs.
      reference: a config with the functions and classes of the user's own that the pretrained run uses.

    Returns:
      The results of the trained encoders, mean and standard deviation over seeds.

    Raises:
      ValueError: as `train`, or seeds is less than 1.
    """
    return train_seeds(config, folder, seeds, reference=reference)["trained encoder"]
