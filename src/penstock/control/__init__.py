"""The loop that keeps a plan fitting: collect, evaluate, decide, apply; on Spark or simulated."""

from penstock.control.events import Event
from penstock.control.explain import explain
from penstock.control.loop import Loop
from penstock.control.port import SPARE, ActionFailed, Applied, Observation, Runtime
from penstock.control.record import Recorder
from penstock.control.settings import Settings
from penstock.control.together import Together

__all__ = [
    "SPARE",
    "ActionFailed",
    "Applied",
    "Event",
    "Loop",
    "Observation",
    "Recorder",
    "Runtime",
    "Settings",
    "Together",
    "explain",
]
