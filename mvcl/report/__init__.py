"""Reports: one self-contained HTML page from run folders, or from that of a study."""

from mvcl.report._page import write_geometry, write_report
from mvcl.report._study import write_study

__all__ = ["write_geometry", "write_report", "write_study"]
