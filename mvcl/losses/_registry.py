"""Config names of the objectives. The signature is the schema: its keywords are the options with their
defaults.
"""

from collections.abc import Callable

import jax

from mvcl.losses._byol import byol
from mvcl.losses._dhel import dhel
from mvcl.losses._dsf import dsf
from mvcl.losses._higher_order import all_pairs, cross_pairs, mean_pair, one_vs_rest
from mvcl.losses._info_nce import info_nce
from mvcl.losses._m3g import m3g, m3g_with_status
from mvcl.losses._mv_cl import mv_cl1, mv_cl2
from mvcl.losses._mv_dhel import mv_dhel
from mvcl.losses._mv_infonce import mv_infonce
from mvcl.losses._nt_xent import dcl, nt_xent, rince
from mvcl.losses._poly_view import poly_view
from mvcl.losses._siglip import poly_siglip, siglip
from mvcl.losses._spectral import spectral
from mvcl.losses._sufficient_statistics import sufficient_statistics
from mvcl.transport import SinkhornOutput

Loss = Callable[..., jax.Array]

# f(x, y) of two (n, d) views
PAIR_LOSSES: dict[str, Loss] = {
    "info_nce": info_nce,
    "nt_xent": nt_xent,
    "dcl": dcl,
    "dhel": dhel,
    "byol": byol,
    "siglip": siglip,
    "rince": rince,
    "spectral": spectral,
}

# f(z) of (k, n, d) views
VIEW_LOSSES: dict[str, Loss] = {
    "mv_infonce": mv_infonce,
    "mv_dhel": mv_dhel,
    "mv_cl1": mv_cl1,
    "mv_cl2": mv_cl2,
    "poly_view": poly_view,
    "sufficient_statistics": sufficient_statistics,
    "poly_siglip": poly_siglip,
    "m3g": m3g,
}

# f(queries, keys) of two groups of views, (m, n, d) and (m', n, d)
GROUP_LOSSES: dict[str, Loss] = {"dsf": dsf}

# a pair loss -> a loss of (k, n, d) views
HIGHER_ORDER: dict[str, Callable[..., Loss]] = {"all_pairs": all_pairs, "one_vs_rest": one_vs_rest}

# a pair loss -> a loss of two groups of views
GROUP_HIGHER_ORDER: dict[str, Callable[..., Loss]] = {"cross_pairs": cross_pairs, "mean_pair": mean_pair}

# losses of VIEW_LOSSES that rest on a solver: f(z) -> (loss, how the solver ended)
WITH_STATUS: dict[str, Callable[..., tuple[jax.Array, SinkhornOutput]]] = {"m3g": m3g_with_status}
