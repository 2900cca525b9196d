"""Summaries of runs, and the parts of HTML pages without scripts."""

from penstock.report.summary import Latency, Summary, summarise

__all__ = ["Latency", "Summary", "summarise"]
