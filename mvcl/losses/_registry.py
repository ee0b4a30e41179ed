"""Config names of the objectives. The signature is the schema: its keywords are the options, with their
defaults.
"""

from collections.abc import Callable

import jax

from mvcl.losses._byol import byol
from mvcl.losses._higher_order import all_pairs, cross_pairs, mean_pair, one_vs_rest
from mvcl.losses._info_nce import info_nce
from mvcl.losses._m3g import m3g
from mvcl.losses._mv_dhel import mv_dhel
from mvcl.losses._mv_infonce import mv_infonce
from mvcl.losses._nt_xent import nt_xent

Loss = Callable[..., jax.Array]

# f(x, y) of two (n, d) views
PAIR_LOSSES: dict[str, Loss] = {
    "info_nce": info_nce,
    "nt_xent": nt_xent,
    "byol": byol,
}

# f(z) of (k, n, d) views
VIEW_LOSSES: dict[str, Loss] = {
    "mv_infonce": mv_infonce,
    "mv_dhel": mv_dhel,
    "m3g": m3g,
}

# f(queries, keys) of two groups of views, (m, n, d) each
GROUP_LOSSES: dict[str, Loss] = {}

# a pair loss -> a loss of (k, n, d) views
HIGHER_ORDER: dict[str, Callable[..., Loss]] = {
    "all_pairs": all_pairs,
    "one_vs_rest": one_vs_rest,
}

# a pair loss -> a loss of two groups of views
GROUP_HIGHER_ORDER: dict[str, Callable[..., Loss]] = {
    "cross_pairs": cross_pairs,
    "mean_pair": mean_pair,
}
