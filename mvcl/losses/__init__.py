"""Objectives: pure functions of embeddings, exact to the formulas in their docstrings."""

from mvcl.losses._byol import byol as byol
from mvcl.losses._higher_order import all_pairs as all_pairs
from mvcl.losses._higher_order import cross_pairs as cross_pairs
from mvcl.losses._higher_order import mean_pair as mean_pair
from mvcl.losses._higher_order import one_vs_rest as one_vs_rest
from mvcl.losses._info_nce import info_nce as info_nce
from mvcl.losses._m3g import m3g as m3g
from mvcl.losses._m3g import m3g_with_status as m3g_with_status
from mvcl.losses._mv_dhel import mv_dhel as mv_dhel
from mvcl.losses._mv_infonce import mv_infonce as mv_infonce
from mvcl.losses._nt_xent import nt_xent as nt_xent
from mvcl.losses._registry import GROUP_HIGHER_ORDER as GROUP_HIGHER_ORDER
from mvcl.losses._registry import GROUP_LOSSES as GROUP_LOSSES
from mvcl.losses._registry import HIGHER_ORDER as HIGHER_ORDER
from mvcl.losses._registry import PAIR_LOSSES as PAIR_LOSSES
from mvcl.losses._registry import VIEW_LOSSES as VIEW_LOSSES
