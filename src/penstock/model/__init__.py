"""Values that every other part shares: topology, cluster, measurements, plan, cost.

Everything here is frozen and pure: no clock, no randomness, no input or output.
"""

from penstock.common.errors import InvalidValue, NotAllowed, PenstockError, Refused
from penstock.model.cluster import Cluster, Node
from penstock.model.cost import Cost, LoadWeights, TierCosts, Violation, evaluate, violations
from penstock.model.expand import expand
from penstock.model.instances import Flow, InstanceGraph
from penstock.model.load import NodeUse
from penstock.model.measurements import Measurements, Sample, Utilisation, trimmed_mean
from penstock.model.migration import Diff, MigrationStep, Move, PartitionMove, diff, schedule
from penstock.model.operator import Edge, Grouping, Kind, Operator
from penstock.model.plan import Keep, Plan, Reason, RoutingTable, Spot
from penstock.model.topology import Topology

__all__ = [
    "Cluster",
    "Cost",
    "Diff",
    "Edge",
    "Flow",
    "Grouping",
    "InstanceGraph",
    "InvalidValue",
    "Keep",
    "Kind",
    "LoadWeights",
    "Measurements",
    "MigrationStep",
    "Move",
    "Node",
    "NodeUse",
    "NotAllowed",
    "Operator",
    "PartitionMove",
    "PenstockError",
    "Plan",
    "Reason",
    "Refused",
    "RoutingTable",
    "Sample",
    "Spot",
    "TierCosts",
    "Topology",
    "Utilisation",
    "Violation",
    "diff",
    "evaluate",
    "expand",
    "schedule",
    "trimmed_mean",
    "violations",
]
