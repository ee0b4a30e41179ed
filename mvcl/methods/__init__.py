"""Training methods: models and an objective combined into pure functions."""

from typing import TYPE_CHECKING

from mvcl import _lazy

if TYPE_CHECKING:
    from mvcl.methods._fused import Fused
    from mvcl.methods._method import METHODS, Batch, Inputs, Learner, Method, Microbatches, Network, Simclr
    from mvcl.methods._method import Specification, chance_level
    from mvcl.methods._momentum import Following, MocoV2, MocoV3, StudentTeacher
    from mvcl.methods._multi_encoder import MultiEncoder
    from mvcl.methods._objective import Measures, OfViews, check
    from mvcl.methods._sem import Sem
    from mvcl.methods._supervised import Supervised

__getattr__, __dir__, __all__ = _lazy.exports(__name__)
