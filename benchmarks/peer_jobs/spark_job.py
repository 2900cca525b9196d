"""The two counts in Structured Streaming, over Spark's own Kafka connector.

Usage: spark_job.py SERVERS INTO OUT WORKLOAD FOLDER TRIGGER, the trigger being micro or real-time
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

servers, into, out, workload, folder, trigger = sys.argv[1:]
STATE = "spark.sql.streaming.stateStore."
conf = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
if trigger == "real-time":
    conf |= {
        STATE + "providerClass": "org.apache.spark.sql.execution.streaming.state."
        "RocksDBStateStoreProvider",
        STATE + "checkpointFormatVersion": "2",
        "spark.sql.adaptive.enabled": "false",
    }
builder = SparkSession.builder.appName("peer")
for name, value in conf.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
lines = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("kafka.isolation.level", "read_committed")
    .option("subscribe", into)
    .option("startingOffsets", "earliest")
    .load()
    .select(sf.col("value").cast("string").alias("line"))
)
parts = sf.split("line", " ")
words = lines.select((sf.explode(parts) if workload == "words" else parts[0]).alias("word"))
counts = words.groupBy("word").count()
writer = (
    counts.select(sf.col("word").alias("key"), sf.col("count").cast("string").alias("value"))
    .writeStream.outputMode("update")
    .format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("topic", out)
    .option("checkpointLocation", folder)
)
if trigger == "real-time":
    writer = writer.trigger(realTime="10 seconds")  # type: ignore[call-overload]
writer.start().awaitTermination()
