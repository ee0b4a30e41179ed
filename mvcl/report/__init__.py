"""Reports: one self-contained HTML page from run folders."""

from mvcl.report._page import write_report

__all__ = ["write_report"]
