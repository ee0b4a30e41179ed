"""Training methods: models and an objective combined into pure functions."""

from collections.abc import Callable

from mvcl.methods._method import Batch, Inputs, Learner, Method, Microbatches, Network, Specification
from mvcl.methods._momentum import Following, MocoV2, MocoV3, StudentTeacher
from mvcl.methods._multi_encoder import MultiEncoder
from mvcl.methods._objective import Measures, OfViews, chance_level, check, of_views
from mvcl.methods._sem import Sem
from mvcl.methods._simclr import Simclr
from mvcl.methods._supervised import Supervised

METHODS: dict[str, Callable[[], Method]] = {
    "simclr": Simclr,
    "moco_v2": MocoV2,
    "moco_v3": MocoV3,
    "student_teacher": StudentTeacher,
    "multi_encoder": MultiEncoder,
    "supervised": Supervised,
    "sem": Sem,
}
"""Methods by the names that `method:NAME` chooses."""

__all__ = [
    "METHODS",
    "Batch",
    "Following",
    "Inputs",
    "Learner",
    "Measures",
    "Method",
    "Microbatches",
    "MocoV2",
    "MocoV3",
    "MultiEncoder",
    "Network",
    "OfViews",
    "Sem",
    "Simclr",
    "Specification",
    "StudentTeacher",
    "Supervised",
    "chance_level",
    "check",
    "of_views",
]
