"""Every application gives what a plain Spark batch job over the same input gives."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from penstock.apps import App, apps
from penstock.apps.portrait import TRAITS
from penstock.runtimes.local import run_locally

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

ROWS = 6000


def word_counts(rows: DataFrame) -> DataFrame:
    small = F.translate("line", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
    words = rows.select(F.explode(F.split(small, "[^a-z0-9]+")).alias("word"))
    return words.where("word != ''").groupBy("word").agg(F.count("*").alias("n"))


def ranked(counts: DataFrame) -> DataFrame:
    order = Window.orderBy(F.desc("n"), "word")
    return counts.select(F.row_number().over(order).alias("rank"), "word", "n").where("rank <= 10")


def wordcount(app: App, rows: DataFrame) -> dict[str, DataFrame]:
    return {"counts": word_counts(rows)}


def topn(app: App, rows: DataFrame) -> dict[str, DataFrame]:
    return {"ranks": ranked(rows.groupBy("word").agg(F.count("*").alias("n")))}


def topn_merge(app: App, rows: DataFrame) -> dict[str, DataFrame]:
    return {"ranks": ranked(word_counts(rows))}


def commcount(app: App, rows: DataFrame) -> dict[str, DataFrame]:
    views = rows.where("behavior = 'pv'").groupBy("item").agg(F.count("*").alias("views"))
    return {"counts": views}


def portrait(app: App, rows: DataFrame) -> dict[str, DataFrame]:
    words = rows.select("user", F.explode(F.split("query", " ")).alias("word"))
    known = [row["word"] for row in words.select("word").distinct().collect()]
    told: dict[str, Any] = {t.name: t.of(pa.array(known)).tolist() for t in TRAITS}
    lexicon = rows.sparkSession.createDataFrame(
        list(zip(known, *told.values(), strict=True)), ["word", *told]
    )
    said = words.join(lexicon, "word")
    found = said.select("user").distinct()
    heard = []
    for trait in TRAITS:
        of = said.where(F.col(trait.name) >= 0).groupBy("user", trait.name)
        counts = of.agg(F.count("*").alias("times"))
        best = Window.partitionBy("user").orderBy(F.desc("times"), trait.name)
        values = F.array(*map(F.lit, trait.values))
        first = (
            counts.withColumn("place", F.row_number().over(best))
            .withColumn(f"{trait.name}_times", F.sum("times").over(Window.partitionBy("user")))
            .where("place = 1")
            .select(
                "user", F.get(values, F.col(trait.name)).alias(trait.name), f"{trait.name}_times"
            )
        )
        found = found.join(first, "user", "left")
        heard.append(F.coalesce(F.col(f"{trait.name}_times"), F.lit(0)))
    whole = found.withColumn("evidence", heard[0] + heard[1] + heard[2]).where("evidence > 0")
    return {"portraits": whole.select("user", *told, "evidence")}


def debs2024(app: App, rows: DataFrame) -> dict[str, DataFrame]:
    good = rows.where(
        "capacity_bytes > 0 and failure in (0, 1) and date is not null and smart_9_raw is not null "
        "and serial_number is not null and model is not null"
    )
    raw = ["failure", *(f"smart_{n}_raw" for n in (5, 187, 188, 197, 198))]
    flags = [(F.coalesce(F.col(name), F.lit(0)) > 0).cast("long") for name in raw]
    flags.append((F.coalesce(F.col("smart_194_raw"), F.lit(0)) >= 45).cast("long"))
    good = good.select(
        "*", *(flag.alias(f"flag{i}") for i, flag in enumerate(flags)), F.lit(1).alias("one")
    )
    names = [f"flag{i}" for i in range(len(flags))]
    any_event = F.greatest(*names)
    back = F.sequence(F.date_sub("date", 29), F.col("date"))
    storage = (
        good.withColumn("window_start", F.explode(back))
        .groupBy("model", "window_start")
        .agg(
            F.count("*").alias("readings"),
            F.sum("failure").alias("failures"),
            F.sum(any_event).alias("events"),
            (F.sum("failure") * F.lit(365.0) / F.count("*")).alias("failures_per_year"),
            (F.sum(F.coalesce("smart_194_raw", F.lit(0.0))) / F.count("*")).alias(
                "mean_temperature"
            ),
        )
    )
    drives = (
        good.where(any_event > 0)
        .groupBy("serial_number", "model")
        .agg(
            *(F.max(name).alias(name) for name in names),
            F.count("*").alias("events"),
            F.min("date").alias("first_day"),
            F.max("date").alias("last_day"),
        )
    )
    kinds = sum((F.col(name) for name in names[1:]), F.col(names[0]))
    alerts = drives.select(
        "serial_number",
        "model",
        (F.col("flag0") > 0).alias("failed"),
        kinds.alias("kinds"),
        *("events", "first_day", "last_day"),
    ).where("failed or kinds >= 2")
    return {"storage": storage, "alerts": alerts}


def purchases(app: App, rows: DataFrame) -> dict[str, DataFrame]:
    unique = rows.select(
        "user", "item", "category", "behavior", F.timestamp_seconds("timestamp").alias("t")
    ).distinct()
    views = unique.where("behavior = 'pv'")
    buys = unique.where("behavior = 'buy'")
    last = [side.agg(F.max("t")).first() for side in (unique, views, buys)]
    late = timedelta(seconds=10)
    mark, *sides = (row[0] - late for row in last if row is not None)
    over = min(sides) - timedelta(seconds=20, milliseconds=1)
    bought = buys.select("user", "item", F.col("t").alias("bought"))
    soon = F.col("bought").between(F.col("t"), F.col("t") + F.expr("interval 20 seconds"))
    same = (views.user == bought.user) & (views.item == bought.item)
    matches = (
        views.join(bought, same & soon, "left")
        .where(F.col("bought").isNotNull() | (F.col("t") <= F.lit(over)))
        .select(
            views.user, views.item, *(F.unix_micros(name).alias(name) for name in ("t", "bought"))
        )
    )
    sessions = unique.groupBy("user", F.session_window("t", "15 seconds").alias("w"))
    periods = unique.groupBy("category", F.window("t", "60 seconds").alias("w"))

    def closed(made: GroupedData, **named: str) -> DataFrame:
        # Spark pushes a condition on the end of a session below it, and cuts sessions off there.
        whole = made.agg(F.count("*").alias("n")).localCheckpoint()
        done = whole.where(F.col("w.end") <= F.lit(mark))
        times = [F.unix_micros(at).alias(name) for name, at in named.items()]
        return done.select("*", *times).drop("w")

    return {
        "matches": matches,
        "sessions": closed(sessions, window_start="w.start", window_end="w.end"),
        "periods": closed(periods, period="w.start"),
    }


BATCH = {
    "commcount": commcount,
    "debs2024": debs2024,
    "portrait": portrait,
    "purchases": purchases,
    "topn": topn,
    "topn-merge": topn_merge,
    "wordcount": wordcount,
}


@pytest.mark.parametrize("name", apps.names())
def test_results_are_those_of_a_batch_job(name: str, spark: SparkSession) -> None:
    app = apps.make(name, drives=200) if name == "debs2024" else apps.make(name)
    source = app.source(rows=ROWS, zipf=0.8, seed=11)
    pipeline = app.pipeline(source, parallelism=3)
    run_locally(pipeline, [500, 501, 4000])
    for sink, frame in BATCH[name](app, spark.createDataFrame(source.read(0, ROWS))).items():
        step: Any = pipeline[sink].sink
        got = app.result(sink, step.table())
        by = [(key, "ascending") for key in app.keys[sink]]
        wanted = frame.toArrow().select(got.column_names).cast(got.schema).sort_by(by)
        assert got.num_rows > 0
        assert got.to_pylist() == wanted.to_pylist()
