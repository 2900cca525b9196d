"""The queries in Structured Streaming, over Spark's own Kafka connector.

Usage: spark_job.py SERVERS INTO OUT WORKLOAD FOLDER TRIGGER, the trigger being micro or real-time
"""

import sys

from pyspark.sql import DataFrame, SparkSession, Window
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


def hot(counts: DataFrame, batch: int) -> None:
    """Write the auctions with most bids; the batch that closes a window has all its counts."""
    most = sf.max("count").over(Window.partitionBy("window"))
    kept = counts.withColumn("most", most).where("count = most")
    end = sf.unix_timestamp("window.end")
    key = sf.concat_ws("-", end.cast("string"), "auction").alias("key")
    rows = kept.select(key, sf.col("count").cast("string").alias("value"))
    options = {"kafka.bootstrap.servers": servers, "topic": out}
    rows.write.format("kafka").options(**options).save()


if workload == "q5":
    time = sf.timestamp_millis(parts[1].cast("long")).alias("time")
    bids = lines.select(parts[0].alias("auction"), time).withWatermark("time", "60 seconds")
    windows = sf.window("time", "10 seconds", "2 seconds")
    writer = bids.groupBy("auction", windows).count().writeStream.foreachBatch(hot)
else:
    words = lines.select((sf.explode(parts) if workload == "words" else parts[0]).alias("word"))
    counts = words.groupBy("word").count()
    writer = (
        counts.select(sf.col("word").alias("key"), sf.col("count").cast("string").alias("value"))
        .writeStream.outputMode("update")
        .format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", out)
    )
writer = writer.option("checkpointLocation", folder)
if trigger == "real-time":
    writer = writer.trigger(realTime="10 seconds")  # type: ignore[call-overload]
writer.start().awaitTermination()
