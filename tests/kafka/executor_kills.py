"""Tasks that read Kafka, and that write to it, die with kill -9.

``python -m tests.kafka.executor_kills`` does it on a cluster of processes. CI has no time for it;
``make faults`` runs it. Rows are written by tasks, at least once; counts by the driver in
transactions, once.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from functools import partial

from tests.kafka.counting import WORDS, assert_counts, committed_rows

from penstock.testing.kafka_broker import broker

#: What happens, and when.
FAULTS = ("kill-executor@batch=3", "kill-worker@batch=6")

#: Seconds for all of it.
LIMIT_S = 600


def main() -> None:
    """Run it, and compare what consumers read with what was sent."""
    from confluent_kafka import Producer

    with tempfile.TemporaryDirectory(prefix="penstock-kills-") as folder, broker() as made:
        made.create("into", 3)
        made.create("rows", 2)
        made.create("counts")
        producer = Producer({"bootstrap.servers": made.servers})
        for number, word in enumerate(WORDS):
            producer.produce("into", word, partition=number % 3)
        if producer.flush(60):
            raise SystemExit("the broker did not take what was sent")
        given = {"servers": made.servers, "into": "into", "rows": "rows", "counts": "counts"}
        given |= {"queue.size": "500", "exactly": "at-least-once"}
        options = ["--nodes=2", f"--report={folder}/report.html", f"--checkpoint={folder}/run"]
        options += [f"--set={name}={value}" for name, value in given.items()]
        options += [f"--fault={fault}" for fault in FAULTS]
        penstock = [sys.executable, "-c", "from penstock.cli.main import app; app()"]
        subprocess.run(
            [*penstock, "run", "tests/kafka/cluster_job.py", *options], check=True, timeout=LIMIT_S
        )
        read = partial(committed_rows, made.servers)
        missing = Counter(WORDS) - Counter(value for _, value in read("rows"))
        assert not missing, missing
        assert_counts(read, "counts")
        print(f"no row is missing, and {len(WORDS)} are counted once")


if __name__ == "__main__":
    main()
