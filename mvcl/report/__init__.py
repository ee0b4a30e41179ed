"""Reports: one self-contained HTML page from run folders; and tables of runs and of their curves."""

from mvcl.report._page import write_report
from mvcl.report._read import curves, runs

__all__ = ["curves", "runs", "write_report"]
