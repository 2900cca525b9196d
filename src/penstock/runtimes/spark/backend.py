"""Runs the tasks of a wave on Spark: one job, one stage a layer, one partition an instance."""

from __future__ import annotations

import gc
import pickle
import struct
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.core.rdd import RDD
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession

from penstock.engine.backend import NO_SENDERS, Stage, StateSenders
from penstock.engine.batch import BatchSpec
from penstock.engine.job_graph import JobGraph
from penstock.engine.task.task import run_partition
from penstock.runtimes.spark.errors import ExecutorLost
from penstock.runtimes.spark.jvm import TaskFact, jvm_of
from penstock.runtimes.spark.nodes import by_node
from penstock.runtimes.spark.serialize import packed

#: Seconds between two looks at the executors while a batch runs.
WATCH_S = 0.25

#: What PinnedRDD.java says of a task that is not where it must be.
ASTRAY = "was given to executor"

#: Layouts that a worker process keeps: those of pipelines that run together.
MOST_GRAPHS = 8


_FROZEN = False
_GRAPHS: dict[str, JobGraph] = {}


@dataclass(eq=False)
class SparkBackend:
    """Runs waves; remembers where the tasks of the last one ran.

    Parameters
    ----------
    spark : SparkSession
    executor_of : callable
        From the node of an instance, as in `BatchSpec.locations`, to the id of an executor; "" is
        anywhere.
    folder : str
        Where a node keeps state; a relative one lies in the working folder of each executor.
    apart : bool
        Whether each executor stands for a node, as in `by_node`.
    rows : DataFrame, optional
        What the first layer reads instead of its sources' ranges.
    rows_of : str, optional
        The one source step that the rows belong to; without it they are (source step, Arrow
        message) pairs.
    """

    spark: SparkSession
    executor_of: Callable[[str], str]
    folder: str = "penstock-state"
    apart: bool = True
    rows: DataFrame | None = None
    rows_of: str | None = None
    pinned: list[list[str]] = field(default_factory=list)
    group: str = ""
    moving: str = ""
    background: str = ""
    _layout: tuple[JobGraph, Any] | None = None
    _base: dict[int, Any] = field(default_factory=dict)

    def run(
        self, job_graph: JobGraph, spec: BatchSpec, senders: StateSenders = NO_SENDERS
    ) -> list[bytes]:
        """Run the batch as one job and collect the frames for the driver."""
        sc = self.spark.sparkContext
        shared = self._share(sc, job_graph)
        self.pinned = [
            [self.executor_of(home) for home in places] for places in spec.layer_locations
        ]
        self.group = f"penstock-{spec.token}-{spec.version}"
        if senders:
            self.moving = self.group

        def body(layer: int) -> Any:
            return _body(shared, spec, layer, Path(self.folder))

        def first(locations: list[str]) -> Any:
            if self.rows is not None:
                return _from_rows(self.rows, self.rows_of, shared, spec, locations)
            return self._start(sc, locations, body(0))

        text = f"{job_graph.pipeline.name} batch {spec.batch_id}"
        bodies = [body(layer) for layer in range(1, spec.depth)]
        # Keepers remove what is not theirs, and must not do so at a stranger's, who has no state of
        # other instances either. Spark gives a task that it repeats to whoever is free.
        stateful = {spec.first[vertex][0] for vertex in spec.bases if spec.state_config.by_peers}
        strict = [layer in (*stateful, len(spec.layers)) for layer in range(spec.depth)]
        return self._run(text, self.group, self.pinned, first, bodies, strict, senders)

    def job(self, name: str, stages: Sequence[Stage], *, background: bool = False) -> list[bytes]:
        """Run stages of any kind as one job."""

        def first(locations: list[str]) -> Any:
            body, given = self._body(stages[0]), stages[0].inputs
            return self._start(self.spark.sparkContext, locations, body, given)

        pinned = [list(stage.executors) for stage in stages]
        group = f"penstock-{name}-{uuid.uuid4().hex}"
        if background:
            self.background = group
        else:
            self.moving = group
        bodies = [self._body(stage) for stage in stages[1:]]
        return self._run(name, group, pinned, first, bodies, [True] * len(stages))

    def _body(self, stage: Stage) -> Any:
        """Return the function of a stage's tasks: frames in, keys and frames out."""
        inner, folder = stage.body, Path(self.folder)

        def run(partition: int, arrived: Iterator[bytes]) -> Iterator[bytes]:
            freeze()
            for target, frame in inner(partition, arrived, folder):
                yield _key(target)
                yield frame

        return run

    def cancel_background(self) -> None:
        """Cancel the job that runs beside batches."""
        sc = self.spark.sparkContext
        try:
            if self.background:
                sc.cancelJobGroup(self.background)
        except Exception:
            if not jvm_of(sc).stopped:
                raise

    def executor_at(self, location: str) -> str:
        """Return the executor at a location; ids are never used again."""
        return self.executor_of(location)

    def backup_nodes(self) -> Mapping[str, str]:
        """Return the first process of each node that plans know of."""
        executors = jvm_of(self.spark.sparkContext).executors()
        alive = {executor.id for executor in executors}
        homes = {node: f"{node}/0" for node in by_node(executors, self.apart)}
        return {node: home for node, home in homes.items() if self.executor_of(home) in alive}

    def alive(self) -> frozenset[str]:
        """Return the executors that are there."""
        return frozenset(e.id for e in jvm_of(self.spark.sparkContext).executors())

    def _run(
        self,
        text: str,
        group: str,
        pinned: list[list[str]],
        first: Callable[[list[str]], Any],
        bodies: list[Any],
        strict: list[bool],
        senders: StateSenders = NO_SENDERS,
    ) -> list[bytes]:
        """Run a job of pinned stages, unless an executor that it needs is gone or goes.

        The tasks of strict stages, and riders, fail on any other executor.
        """
        sc = self.spark.sparkContext
        alive = {executor.id: executor for executor in jvm_of(sc).executors()}
        beside = [stage for stages in senders.values() for stage in stages]
        wanted = {
            e for layer in (*pinned, *(stage.executors for stage in beside)) for e in layer if e
        }
        if wanted - set(alive):
            raise ExecutorLost(wanted - set(alive))

        def located(executors: Iterable[str], must: bool) -> list[str]:
            return ["!" * must + alive[e].location if e else "" for e in executors]

        locations = [located(*pair) for pair in zip(pinned, strict, strict=True)]
        current: Any = None
        for layer, where in enumerate(locations):
            if layer:
                arrived = jvm_of(sc).shuffled(current, where)
                current = _python(sc, arrived, bodies[layer - 1])
            else:
                current = first(where)
            for stage in senders.get(layer, ()):
                # Their partitions come after those of the layer, which may be fewer than its
                # places where they are those of a DataFrame.
                count = int(current.getNumPartitions())
                tasks = [pinned[layer][i % len(pinned[layer])] for i in range(count)]
                pinned[layer] = [*tasks, *stage.executors]
                started = self._start(sc, located(stage.executors, True), self._body(stage))
                current = current.union(started)
        with _Watch(sc, group, wanted) as watch:
            sc.setJobGroup(group, text)
            try:
                pairs = _collect(sc, current)
            except Py4JJavaError as error:
                lost = watch.lost | jvm_of(sc).gone(wanted)
                if lost or ASTRAY in str(error.java_exception):
                    raise ExecutorLost(lost) from error
                raise
            finally:
                sc._jsc.clearJobGroup()
        lost = jvm_of(sc).gone(wanted)
        if lost:
            # Spark was faster than the watch and ran their tasks elsewhere, without their state.
            raise ExecutorLost(lost)
        return pairs[1::2]

    def warm_up(self, only: Collection[str] | None = None) -> None:
        """Have executors start their Python workers and load what a task needs, once.

        Without it the first batch would wait for that, and all tuples that come meanwhile.

        Parameters
        ----------
        only : collection of str, optional
            Executors; all by default.
        """
        executors = jvm_of(self.spark.sparkContext).executors()
        slots = [e.id for e in executors if only is None or e.id in only for _ in range(e.cores)]
        if not slots:
            return

        def load(partition: int, arrived: Iterator[bytes]) -> Iterator[bytes]:
            for _ in arrived:
                pass
            freeze()
            yield _key(0)
            yield b""

        def first(locations: list[str]) -> Any:
            return self._start(self.spark.sparkContext, locations, load)

        group = f"penstock-warm-up-{uuid.uuid4().hex}"
        self._run("warm up", group, [slots, slots[:1]], first, [load], [False, False])

    def facts(self) -> list[TaskFact]:
        """Tasks of the last batch, as Spark recorded them."""
        return jvm_of(self.spark.sparkContext).tasks(self.group)

    def _share(self, sc: SparkContext, job_graph: JobGraph) -> Any:
        """Send the layout to the workers once, not with every batch."""
        if self._layout is None or self._layout[0] is not job_graph:
            self._layout = (job_graph, _Shared(sc.broadcast(packed(job_graph))))
        return self._layout[1]

    def _start(
        self,
        sc: SparkContext,
        locations: list[str],
        body: Any,
        given: Sequence[Sequence[bytes]] = (),
    ) -> Any:
        """Return a first stage, whose tasks get what the driver gives them, mostly nothing."""
        width = len(locations)
        if any(given):
            base = sc.parallelize(list(given), width)._jrdd
        else:
            base = self._base.get(width)
            if base is None:
                base = self._base[width] = sc.parallelize([()] * width, width)._jrdd

        def run(partition: int, arrived: Iterator[bytes]) -> Iterator[bytes]:
            # Read to the end: a worker whose input is left over is not used again.
            frames = [frame for data in arrived for part in pickle.loads(data) for frame in part]
            yield from body(partition, iter(frames))

        return _python(sc, jvm_of(sc).pinned(base, locations), run)


class _Shared:
    """A layout as tasks hold it: unpickled once for each worker process.

    Functions of the user's script can only be sent as cloudpickle sends them, by value.
    """

    def __init__(self, broadcast: Any) -> None:
        self.broadcast = broadcast
        self.token = uuid.uuid4().hex

    @property
    def value(self) -> JobGraph:
        found = _GRAPHS.get(self.token)
        if found is None:
            if len(_GRAPHS) >= MOST_GRAPHS:
                _GRAPHS.clear()
            found = _GRAPHS[self.token] = pickle.loads(self.broadcast.value)
        return found


def _body(shared: Any, spec: BatchSpec, layer: int, folder: Path) -> Any:
    """Return the function of one layer's tasks: frames in, keys and frames out."""

    def run(partition: int, arrived: Iterator[bytes]) -> Iterator[bytes]:
        freeze()
        frames = run_partition(shared.value, spec, layer, partition, arrived, folder=folder)
        for target, frame in frames:
            yield _key(target)
            yield frame

    return run


def _key(partition: int) -> bytes:
    """Write the number of a partition as PySpark does: eight bytes, the highest first."""
    return struct.pack("!q", partition)


def freeze() -> None:
    """Take what is loaded out of the garbage collector's sight, once for each worker process.

    PySpark's daemon collects garbage after every task, which would walk through every imported
    module and all state each time.
    """
    global _FROZEN
    if not _FROZEN:
        gc.collect()
        gc.freeze()
        _FROZEN = True


def _python(sc: SparkContext, jrdd: Any, body: Any) -> Any:
    """Run a Python function over an RDD of byte strings, giving one."""
    rdd: Any = RDD(jrdd, sc, NoOpSerializer())
    made = rdd.mapPartitionsWithIndex(body, preservesPartitioning=True)
    made._bypass_serializer = True
    return made._jrdd


def _collect(sc: SparkContext, jrdd: Any) -> list[bytes]:
    from pyspark.core import rdd as inner

    jvm: Any = sc._jvm
    load: Any = vars(inner)["_load_from_socket"]
    with load(jvm.PythonRDD.collectAndServe(jrdd.rdd()), NoOpSerializer()) as stream:
        return list(stream)


def _from_rows(
    rows: DataFrame, rows_of: str | None, shared: Any, spec: BatchSpec, locations: list[str]
) -> Any:
    """Return the first layer over a DataFrame; see `SparkBackend.rows_of`."""
    # Spark hands a batch over in a session of the query's own.
    spark = rows.sparkSession
    sc = spark.sparkContext
    made: Any = spark
    # A partition is an instance: with more of them, two tasks would be one.
    rows = rows.coalesce(min(spec.parallelism[vertex] for vertex in spec.layers[0]))
    pinned = jvm_of(sc).pin(rows._jdf.queryExecution().toRdd(), locations)
    frame = DataFrame(
        made._jsparkSession.internalCreateDataFrame(pinned, rows._jdf.schema(), False), spark
    )

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        from penstock.engine.messages import decode

        freeze()
        context = TaskContext.get()
        assert context is not None
        arrived: dict[str, list[pa.Table]] = {}
        for batch in batches:
            if rows_of is not None:
                arrived.setdefault(rows_of, []).append(pa.Table.from_batches([batch]))
                continue
            for name, body in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                arrived.setdefault(name, []).append(decode(body.as_buffer()))
        for vertex in spec.layers[0]:
            head = shared.value.by_name[vertex].head
            if head not in arrived and context.partitionId() > 0:
                continue
            instance = context.partitionId() % spec.parallelism[vertex]
            _, partition = spec.address(vertex, instance)
            tables = [(head, table) for table in arrived.get(head, [])]
            pairs = list(run_partition(shared.value, spec, 0, partition, (), tables, folder=Path()))
            yield pa.record_batch(
                [
                    pa.array([target for target, _ in pairs], pa.int32()),
                    pa.array([data for _, data in pairs], pa.binary()),
                ],
                names=["target", "frame"],
            )

    out = frame.mapInArrow(run, "target int, frame binary")
    return jvm_of(sc).frames(out._jdf.queryExecution().toRdd())


class _Watch:
    """Cancels a job when an executor that it is pinned to is gone.

    Left alone, its tasks would wait for that executor as long as they may wait for any.
    """

    def __init__(self, sc: SparkContext, group: str, executors: set[str]) -> None:
        self._sc, self._group, self._executors = sc, group, executors
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True, name="penstock-watch")
        self.lost: set[str] = set()

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        jvm = jvm_of(self._sc)
        while not self._done.wait(WATCH_S):
            try:
                missing = self._executors - {executor.id for executor in jvm.executors()}
                if missing:
                    self.lost = missing
                    self._sc.cancelJobGroup(self._group)
                    return
            except Exception:
                if jvm.stopped:
                    # The job ends by itself, and tells.
                    return
                raise
