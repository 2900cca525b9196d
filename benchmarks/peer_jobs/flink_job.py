"""The two counts in Flink's SQL: all of it runs in Flink's JVM, with parallelism 2.

Usage: flink_job.py SERVERS INTO OUT WORKLOAD FOLDER JAR...
"""

import sys
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

servers, into, out, workload, folder, *jars = sys.argv[1:]
conf = Configuration()
for name, value in {
    "pipeline.jars": ";".join(Path(jar).as_uri() for jar in jars),
    "parallelism.default": "2",
    "execution.checkpointing.interval": "5s",
    "execution.checkpointing.dir": Path(folder).as_uri(),
    "execution.buffer-timeout.interval": "10ms",
}.items():
    conf.set_string(name, value)
if workload == "words":
    # What Flink's guide advises for aggregations under load.
    for name, value in {
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "200 ms",
        "table.exec.mini-batch.size": "20000",
        "table.optimizer.agg-phase-strategy": "TWO_PHASE",
    }.items():
        conf.set_string(name, value)
tables = TableEnvironment.create(
    EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(conf).build()
)
tables.execute_sql(f"""
    CREATE TABLE lines (line STRING) WITH (
        'connector' = 'kafka', 'topic' = '{into}', 'format' = 'raw',
        'properties.bootstrap.servers' = '{servers}', 'properties.group.id' = 'peer',
        'properties.isolation.level' = 'read_committed', 'scan.startup.mode' = 'earliest-offset')
""")
tables.execute_sql(f"""
    CREATE TABLE counts (word STRING, n STRING, PRIMARY KEY (word) NOT ENFORCED) WITH (
        'connector' = 'upsert-kafka', 'topic' = '{out}', 'key.format' = 'raw',
        'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY',
        'properties.bootstrap.servers' = '{servers}')
""")
words = {
    "words": "SELECT word FROM lines CROSS JOIN UNNEST(SPLIT(line, ' ')) AS t (word)",
    "keys": "SELECT SPLIT_INDEX(line, ' ', 0) AS word FROM lines",
}[workload]
tables.execute_sql(
    f"INSERT INTO counts SELECT word, CAST(COUNT(*) AS STRING) FROM ({words}) GROUP BY word"
).wait()
