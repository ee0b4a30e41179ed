"""Koromilas 2025, CMU-MOSEI: a transformer for text, audio and vision each, MV-DHEL over the three; sentiment.

    mvcl data prepare sentiment --source MOSEI          # once; see docs/data.md
    mvcl train configs/koromilas/mosei.py --workdir runs/mosei

Table IV: sentiment regression from the frozen encoders, late fusion. Its other rows and settings:

    --optimizer.learning-rate 1e-4                                of {1e-5, 5e-5, 1e-4}
    objective:mv_infonce                                          MV-InfoNCE
    objective:all_pairs objective.pair:nt_xent                    pwe, pairwise
    method:supervised --evaluation.features head                  trained on the labels, its predictions measured
"""

from mvcl import data, evaluation, methods, models
from mvcl.training import AdamW, Checkpoint, Config, Train, Views


def get_config() -> Config:
    """The experiment."""
    return Config(
        data=data.Sentiment(dataset="mosei"),
        views=Views(k=3),
        encoder=models.Transformer(),
        head=models.HEADS["koromilas"](),
        objective=methods.OBJECTIVES["mv_dhel"](temperature=0.5),
        method=methods.MultiEncoder(),
        optimizer=AdamW(learning_rate=5e-5, weight_decay=1e-4),
        train=Train(epochs=200, batch_size=256, evaluate_every=0),
        checkpoint=Checkpoint(every_steps=500),
        evaluation=evaluation.Regression(),
    )
