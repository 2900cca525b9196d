"""The HTML report of a run, and the summary that it shares with the command."""

from penstock.report.page import render_report, write_report
from penstock.report.summary import Latency, Summary, summarise

__all__ = ["Latency", "Summary", "render_report", "summarise", "write_report"]
