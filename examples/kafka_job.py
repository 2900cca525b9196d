"""A Structured Streaming job as anybody writes it: counts of pages, from one topic to another.

Nothing in it knows of Penstock. ``make kafka-demo`` runs it by ``penstock submit``.

Usage: kafka_job.py SERVERS FROM TO CHECKPOINT
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

servers, source, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.appName("pages").getOrCreate()
clicks = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", source)
    .option("startingOffsets", "earliest")
    .load()
)
pages = clicks.select(sf.get_json_object(sf.col("value").cast("string"), "$.page").alias("page"))
counts = pages.groupBy("page").agg(sf.count("*").alias("n"))
query = (
    counts.select(sf.col("page").alias("key"), sf.to_json(sf.struct("page", "n")).alias("value"))
    .writeStream.outputMode("update")
    .format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("topic", target)
    .option("checkpointLocation", checkpoint)
    .start()
)
query.awaitTermination()
