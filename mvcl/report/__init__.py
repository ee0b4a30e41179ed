"""Reports: one self-contained HTML page from run folders."""

from mvcl import _extras

with _extras.needed("report", by="mvcl.report"):
    import jinja2  # noqa: F401
    import matplotlib  # noqa: F401
    import PIL  # noqa: F401

from mvcl.report._page import write_report

__all__ = ["write_report"]
