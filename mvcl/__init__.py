"""Multi-view contrastive representation learning in JAX."""

from typing import TYPE_CHECKING

from mvcl import _lazy

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mvcl.report import curves, runs
    from mvcl.training import Encoder, fit
    from mvcl.training import open_encoder as load

__getattr__, __dir__, __all__ = _lazy.exports(__name__)
