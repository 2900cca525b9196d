"""Topologies, clusters, measurements and plans as files, in YAML or JSON.

Loaders return checked values of the model or raise `FileError`, which names the file, the field and
what is allowed there.
"""

from penstock.files.cluster import load_cluster
from penstock.files.errors import FileError
from penstock.files.measurements import load_measurements
from penstock.files.plan import load_plan, save_plan
from penstock.files.topology import load_topology

__all__ = [
    "FileError",
    "load_cluster",
    "load_measurements",
    "load_plan",
    "load_topology",
    "save_plan",
]
