"""Reports: one self-contained HTML page from run folders."""

from typing import TYPE_CHECKING

from mvcl import _lazy

if TYPE_CHECKING:
    from mvcl.report._page import write_report

__getattr__, __dir__, __all__ = _lazy.exports(__name__)
