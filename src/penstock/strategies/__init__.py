"""Planning: one algorithm a file, and short strategies that compose them.

Nothing here reads a clock, makes an id, writes a log or draws unseeded random numbers.
"""

from penstock.common.parameters import Checked, describe, param
from penstock.strategies.api import Request, Strategy, make_plan, register, strategies

__all__ = [
    "Checked",
    "Request",
    "Strategy",
    "describe",
    "make_plan",
    "param",
    "register",
    "strategies",
]
