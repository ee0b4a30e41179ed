"""Run folders to one HTML page that needs nothing else."""

from mvcl.report._page import write_report

__all__ = ["write_report"]
