"""The queries in Flink's SQL: all of it runs in Flink's JVM, with parallelism 2.

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
    "table.local-time-zone": "UTC",
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
    CREATE TABLE lines (
        line STRING,
        auction AS SPLIT_INDEX(line, ' ', 0),
        ts AS TO_TIMESTAMP_LTZ(CAST(SPLIT_INDEX(line, ' ', 1) AS BIGINT), 3)
        {", WATERMARK FOR ts AS ts - INTERVAL '60' SECOND" if workload == "q5" else ""}
    ) WITH (
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
counts = """
    SELECT auction, COUNT(*) AS num, window_start, window_end
    FROM TABLE(HOP(TABLE lines, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end"""
end = "CAST(UNIX_TIMESTAMP(DATE_FORMAT(c.window_end, 'yyyy-MM-dd HH:mm:ss')) AS STRING)"
grouped = "SELECT word, CAST(COUNT(*) AS STRING) FROM ({}) GROUP BY word"
query = {
    "words": grouped.format(
        "SELECT word FROM lines CROSS JOIN UNNEST(SPLIT(line, ' ')) AS t (word)"
    ),
    "keys": grouped.format("SELECT auction AS word FROM lines"),
    "q5": f"""
        SELECT CONCAT({end}, '-', c.auction), CAST(c.num AS STRING) FROM ({counts}) c
        JOIN (SELECT MAX(num) AS most, window_start, window_end FROM ({counts})
            GROUP BY window_start, window_end) m
        ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num = m.most""",
}[workload]
tables.execute_sql(f"INSERT INTO counts {query}").wait()
