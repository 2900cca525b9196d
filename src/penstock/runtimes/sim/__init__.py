"""The simulator: the same plans and strategies as on Spark, in virtual time."""

from penstock.runtimes.sim.costs import CostProfile, load_costs
from penstock.runtimes.sim.faults import SimulatedFault, parse_fault
from penstock.runtimes.sim.keys import KeySpace
from penstock.runtimes.sim.runtime import SimRuntime
from penstock.runtimes.sim.simulate import SimulatedRun, simulate
from penstock.runtimes.sim.workload import Workload

__all__ = [
    "CostProfile",
    "KeySpace",
    "SimRuntime",
    "SimulatedFault",
    "SimulatedRun",
    "Workload",
    "load_costs",
    "parse_fault",
    "simulate",
]
