"""A sink that is any batch writer of Spark's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline.sinks import DriverSink
from penstock.pipeline.steps import Attempt, StagedFile


@dataclass(eq=False)
class Writer(DriverSink):
    """Hands every batch, as a DataFrame with its number, to a function that writes it.

    After a crash between the write and the commit the function is called again with the same number
    and the same rows: write so that the second time replaces the first, for instance into a folder
    or a partition of that number with ``mode("overwrite")``.

    Parameters
    ----------
    spark : SparkSession
    function : callable
        As for `foreachBatch`: gets a DataFrame and the number of the batch.
    """

    spark: SparkSession
    function: Callable[[DataFrame, int], None]

    def commit(
        self, attempt: Attempt, table: pa.Table | None, staged: Sequence[StagedFile] = ()
    ) -> None:
        """Call the function; a batch without rows is not written."""
        if table is not None:
            self.function(self.spark.createDataFrame(table), attempt.batch_id)
