"""Ways of training: models and an objective, put together as pure functions."""

from collections.abc import Callable

from mvcl import _extras

with _extras.needed("train", by="mvcl.methods"):
    import flax  # noqa: F401
    import optax  # noqa: F401

from mvcl.methods._method import Learner, Method, Network, Pieces, Plan, Refresh, Setting
from mvcl.methods._moco import MocoV2, MocoV3
from mvcl.methods._multi_encoder import MultiEncoder
from mvcl.methods._objective import OBJECTIVES, PAIR_OBJECTIVES, Objective, PairObjective, chance_level, check
from mvcl.methods._sem import Sem
from mvcl.methods._simclr import Simclr
from mvcl.methods._student_teacher import StudentTeacher
from mvcl.methods._supervised import Supervised

# The command line needs to know the fields of each.
AnyMethod = Simclr | MocoV2 | MocoV3 | StudentTeacher | MultiEncoder | Supervised | Sem
METHODS: dict[str, Callable[[], Method]] = {
    "simclr": Simclr,
    "moco_v2": MocoV2,
    "moco_v3": MocoV3,
    "student_teacher": StudentTeacher,
    "multi_encoder": MultiEncoder,
    "supervised": Supervised,
    "sem": Sem,
}

__all__ = [
    "METHODS",
    "OBJECTIVES",
    "PAIR_OBJECTIVES",
    "AnyMethod",
    "Learner",
    "Method",
    "MocoV2",
    "MocoV3",
    "MultiEncoder",
    "Network",
    "Objective",
    "PairObjective",
    "Pieces",
    "Plan",
    "Refresh",
    "Sem",
    "Setting",
    "Simclr",
    "StudentTeacher",
    "Supervised",
    "chance_level",
    "check",
]
