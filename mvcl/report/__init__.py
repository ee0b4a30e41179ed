"""Reports: one self-contained HTML page from run folders."""

from mvcl.report._page import write_geometry, write_report

__all__ = ["write_geometry", "write_report"]
