"""The HTML report of a run, as one self-contained file."""

from plogicnet.report.page import write_report

__all__ = ["write_report"]
