"""What the studies of Piran 2024 share: its methods."""

from functools import partial

from mvcl import losses

M3G = "M3G"


def methods(epsilon: float = 0.2) -> dict[str, losses.Loss]:
    """The rows of Tables 1 and 2, in their order."""
    return {
        "BYOL ave": losses.one_vs_rest(losses.byol),
        "BYOL pwe": losses.all_pairs(losses.byol),
        "InfoNCE ave": losses.one_vs_rest(losses.info_nce),
        "InfoNCE pwe": losses.all_pairs(losses.info_nce),
        M3G: partial(losses.m3g, epsilon=epsilon),
    }
