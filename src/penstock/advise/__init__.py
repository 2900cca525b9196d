"""Advice from what Spark recorded: event logs or a running application in, causes out.

Reading is the only effect. What was read becomes frozen values (`application`), rules look for one
cause each (`findings`), and the simulator says what elastic executors would have cost (`what_if`).
"""

from penstock.advise.advice import Advice, QueryAdvice, advise
from penstock.advise.application import Application
from penstock.advise.event_log import read_logs
from penstock.advise.findings import Finding
from penstock.advise.rest import is_address, read_address

__all__ = [
    "Advice",
    "Application",
    "Finding",
    "QueryAdvice",
    "advise",
    "is_address",
    "read_address",
    "read_logs",
]
