"""The metrics database: runs, batches, instances, edges, plans and events.

SQLite in a file by default, PostgreSQL when given its URL; nothing here reads a clock or makes an
id, both are arguments.
"""

from penstock.store.derived import imbalance
from penstock.store.edge_record import EdgeRecord
from penstock.store.errors import StoreError
from penstock.store.histogram import Histogram
from penstock.store.operator_record import OperatorRecord
from penstock.store.records import (
    DECISION,
    BatchRecord,
    EventRecord,
    InstanceRecord,
    NodeRecord,
    PlanRecord,
    RunRecord,
    RunRecords,
    RunStatus,
)
from penstock.store.store import MetricsStore
from penstock.store.totals import Totals

__all__ = [
    "DECISION",
    "BatchRecord",
    "EdgeRecord",
    "EventRecord",
    "Histogram",
    "InstanceRecord",
    "MetricsStore",
    "NodeRecord",
    "OperatorRecord",
    "PlanRecord",
    "RunRecord",
    "RunRecords",
    "RunStatus",
    "StoreError",
    "Totals",
    "imbalance",
]
