"""Methods by name."""

from collections.abc import Callable

from mvcl import methods
from mvcl.methods._method import Method

METHODS: dict[str, Callable[[], Method]] = {
    "simclr": lambda: methods.Simclr(),
    "moco_v2": lambda: methods.MocoV2(),
    "moco_v3": lambda: methods.MocoV3(),
    "student_teacher": lambda: methods.StudentTeacher(),
    "multi_encoder": lambda: methods.MultiEncoder(),
    "supervised": lambda: methods.Supervised(),
    "sem": lambda: methods.Sem(),
}
"""Methods by the names that `method:NAME` chooses."""
