"""The loop that keeps a plan fitting: collect, evaluate, decide, apply; on Spark or simulated."""

from penstock.control.events import Event
from penstock.control.explain import explain
from penstock.control.joint.runtime import JointRuntime
from penstock.control.loop import Loop
from penstock.control.recorder import Recorder
from penstock.control.runtime import SPARE, ActionFailed, Applied, Observation, Runtime
from penstock.control.settings import Settings

__all__ = [
    "SPARE",
    "ActionFailed",
    "Applied",
    "Event",
    "JointRuntime",
    "Loop",
    "Observation",
    "Recorder",
    "Runtime",
    "Settings",
    "explain",
]
