"""Two pipelines in one session of a cluster, as ``spark-submit`` runs them in client mode.

``spark-submit --master spark://HOST:7077 deployed.py FOLDER``, the folder being one that the driver
and all executors reach. Started again with the same folder, both go on where they were. The
function `pipeline` is for ``penstock run deployed.py --set out=FOLDER/results``.
"""

import sys

from penstock import functions as F
from penstock import spark as engine
from penstock.pipeline import Generator, Keys, Pipeline, json_lines


def pipeline(out: str, rows: int = 20_000, rate: float = 1000.0) -> Pipeline:
    """Count keys."""
    return (
        Pipeline("keys")
        .source("keys", Generator(rate, Keys(keys=100), seed=1, rows=rows), parallelism=2)
        .aggregate("count", by="key", n=F.count(), parallelism=2)
        .sink("out", json_lines(out))
    )


def main() -> None:
    """Run two of them under one planner."""
    (folder,) = sys.argv[1:]
    both = {name: pipeline(f"{folder}/results-{name}", 5_000) for name in ("one", "two")}
    spark = engine.session()
    try:
        with engine.start_together(both, spark, checkpoint=f"{folder}/runs") as group:
            group.await_termination()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
