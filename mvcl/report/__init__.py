"""Reports: one self-contained HTML page from run folders, or from that of a study."""

from mvcl import _extras

with _extras.needed("report", by="mvcl.report"):
    import jinja2  # noqa: F401
    import matplotlib  # noqa: F401
    import PIL  # noqa: F401

from mvcl.report._page import write_geometry, write_report
from mvcl.report._study import write_study

__all__ = ["write_geometry", "write_report", "write_study"]
