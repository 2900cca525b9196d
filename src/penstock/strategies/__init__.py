"""Planning: one algorithm a file, and short strategies that compose them.

Nothing here reads a clock, makes an id, writes a log or draws unseeded random numbers.
"""

from penstock.strategies.api import Request, Strategy, make_plan, register, strategies
from penstock.strategies.parameters import Checked, describe, param

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
