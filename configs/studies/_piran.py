"""What the studies of Piran 2024 share: its methods, and student and teacher on the bench."""

import dataclasses
from functools import partial
from typing import Any

from mvcl import losses, models
from mvcl.methods import StudentTeacher

M3G, BYOL_PAIRS = "M3G", "BYOL pwe"


def taught() -> dict[str, Any]:
    """Changes of the bench's recipe: student and teacher, with the paper's head, smaller."""
    head = dataclasses.replace(models.piran_head(), hidden=256, out=64)
    return {"method": StudentTeacher(momentum=0.99, predictor=head), "head": head}


def on_bench() -> dict[str, Any]:
    """`taught` with a momentum that stays where it is, and groups of 16 examples."""
    return {**taught(), "method.end_momentum": 0.99, "train.group": 16}


def methods(epsilon: float = 0.2) -> dict[str, losses.Loss]:
    """The rows of Tables 1 and 2, in their order; BYOL's two are one function."""
    return {
        "BYOL ave": losses.one_vs_rest(losses.byol),
        BYOL_PAIRS: losses.all_pairs(losses.byol),
        "InfoNCE ave": losses.one_vs_rest(losses.info_nce),
        "InfoNCE pwe": losses.all_pairs(losses.info_nce),
        M3G: partial(losses.m3g, epsilon=epsilon),
    }
