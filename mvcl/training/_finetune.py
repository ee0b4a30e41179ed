"""Fine-tuning: the supervised method, starting from the encoder of a run."""

import dataclasses
from pathlib import Path

import numpy as np

from mvcl import augment, data, evaluation, methods, models
from mvcl.training._config import Config, Train, Views
from mvcl.training._load import load
from mvcl.training._optimizers import AdamW
from mvcl.training._train import train


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
    """Train a config once per seed, each in its own folder, and average the results.

    Args:
      config: from `finetune_config`; its train.seed is the first seed.
      folder: parent of the run folders `seed0`, `seed1`, ...; existing runs are resumed, finished ones are read.
      seeds: number of runs.
      reference: a config with the functions and classes of the user's own that the pretrained run uses.

    Returns:
      The results of the trained encoders, mean and standard deviation over seeds.

    Raises:
      ValueError: as `train`, or seeds is less than 1.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    found = []
    for seed in range(config.train.seed, config.train.seed + seeds):
        of_seed = dataclasses.replace(config, train=dataclasses.replace(config.train, seed=seed))
        found.append(train(of_seed, folder / f"seed{seed}", reference=reference)["trained encoder"])
    return [_mean(results) for results in zip(*found)]


def _mean(results: tuple[evaluation.Result, ...]) -> evaluation.Result:
    values = np.asarray([result.value for result in results], np.float64)
    deviation = float(values.std(ddof=1)) if len(values) > 1 else None
    protocol = f"{results[0].protocol}, mean and standard deviation of {len(values)} seeds"
    return evaluation.Result(results[0].name, float(values.mean()), deviation, protocol)
