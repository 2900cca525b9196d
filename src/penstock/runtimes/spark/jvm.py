"""The few classes that run in Spark's JVM: compiled from source when a session is first used.

Spark brings a Java compiler of its own, Janino, so that a Java runtime is all that a machine needs.
The classes go to the executors as a jar, and the driver loads them from the compiler itself.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.core import rdd as inner
from pyspark.serializers import NoOpSerializer

#: Setting of a session: executors that stand for a node of an embedded cluster.
PROCESSES = "spark.penstock.processes"

#: In this order: one may use those before it.
_SOURCES = ("PinnedRDD", "FrameRDD", "ValuesRDD", "Gather", "Facts", "Wiring", "Scan")
_INSTALLED: WeakKeyDictionary[SparkContext, Jvm] = WeakKeyDictionary()

#: Classes and their code by JVM, which outlives a SparkContext: Py4J remembers methods by the name
#: of their class, and takes those of a class that is compiled again for those of the first.
_COMPILED: WeakKeyDictionary[Any, dict[str, tuple[dict[str, Any], dict[str, bytes]]]] = (
    WeakKeyDictionary()
)


#: Results of a job of so many bytes or fewer come with the answer of the call that runs it.
AT_ONCE_BYTES = 1 << 18


@dataclass(frozen=True)
class Executor:
    """One executor as Spark lists it."""

    id: str
    host: str
    cores: int
    memory_bytes: int

    @property
    def location(self) -> str:
        """How Spark spells a preference for this executor."""
        return f"executor_{self.host}_{self.id}"


@dataclass(frozen=True)
class TaskFact:
    """One task attempt as Spark recorded it."""

    job: int
    stage: int
    attempt: int
    partition: int
    executor: str
    host: str
    status: str
    run_ms: int = 0
    jvm_cpu_ns: int = 0
    local_bytes: int = 0
    host_local_bytes: int = 0
    remote_bytes: int = 0
    peak_memory_bytes: int = 0


@dataclass(frozen=True)
class RunningTask:
    """A task that has not ended.

    Parameters
    ----------
    layer : int
        Position of its stage within the job.
    partition : int
    executor : str
    seconds : float
        Time since it was launched.
    """

    layer: int
    partition: int
    executor: str
    seconds: float


class Context:
    """A SparkContext whose executors are requested and released.

    Parameters
    ----------
    sc : SparkContext
    """

    def __init__(self, sc: SparkContext) -> None:
        self._sc = sc
        java: Any = sc._jsc
        self._context: Any = java.sc()

    @property
    def stopped(self) -> bool:
        """Whether Spark was stopped, or is just being: what is asked of it then may fail anyhow."""
        context: Any = self._sc._jsc
        try:
            return context is None or bool(context.sc().isStopped())
        except (Py4JError, OSError):
            # The JVM itself is gone.
            return True

    @property
    def master(self) -> str:
        """The cluster manager, as messages name it."""
        return str(self._sc.master)

    @property
    def processes(self) -> int:
        """Executors that stand for a node of an embedded cluster."""
        return int(self._sc.getConf().get(PROCESSES, "1") or "1")

    def request_executors(self, total: int) -> bool:
        """Ask for executors until there are so many; False where that is not possible."""
        jvm: Any = self._sc._jvm
        empty = jvm.PythonUtils.toScalaMap({})
        return bool(self._context.requestTotalExecutors(total, 0, empty))

    def release_executors(self, ids: list[str]) -> bool:
        """Give up executors; False where that is not possible."""
        jvm: Any = self._sc._jvm
        return bool(self._context.killExecutors(jvm.PythonUtils.toSeq(ids)))


class Jvm(Context):
    """Our classes in one SparkContext."""

    def __init__(self, sc: SparkContext) -> None:
        super().__init__(sc)
        made, code = compiled(sc, __package__, _SOURCES)
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-jvm-")
        ship(sc, code, Path(self._folder.name) / "penstock-placement.jar")
        self._facts, self._wiring, self._scan = (
            _instance(made[name]) for name in ("Facts", "Wiring", "Scan")
        )
        self._facts.listen(self._context)
        self._alone: list[Executor] | None = None

    def pin(self, rdd: Any, locations: list[str]) -> Any:
        """Wrap an RDD so that its partitions prefer the given locations."""
        return self._wiring.pin(rdd, "\n".join(locations))

    def frames(self, rdd: Any) -> Any:
        """Turn rows of (int, binary) into the pairs that Python writes."""
        return self._wiring.frames(rdd)

    def first(self, jrdd: Any, locations: list[str], command: bytearray, function: Any) -> Any:
        """Run a Python function over an RDD whose partitions are each at its location.

        Parameters
        ----------
        jrdd : JavaRDD
            Of byte strings.
        locations : list of str
        command, function
            As `PythonFunctions.of` returns them.
        """
        return self._wiring.first(jrdd, "\n".join(locations), command, function)

    def next(self, jrdd: Any, locations: list[str], command: bytearray, function: Any) -> Any:
        """Send every frame to the partition that the key before it names; then as `first`."""
        return self._wiring.next(jrdd, "\n".join(locations), command, function)

    def collect(self, jrdd: Any, group: str, text: str) -> list[bytes]:
        """Run a job in a group, and return what its tasks gave, in the order of the partitions."""
        found = self._wiring.collect(self._context, jrdd, group, text, AT_ONCE_BYTES)
        if isinstance(found, bytes | bytearray):
            return list(_framed(bytes(found)))
        load: Any = vars(inner)["_load_from_socket"]
        with load(found, NoOpSerializer()) as stream:
            return list(stream)

    def scan(self, query: Any, sources: int) -> str:
        """Tell which files the batch of a streaming query reads; see `Scan.java`."""
        return str(self._scan.files(query, sources))

    def executors(self) -> list[Executor]:
        """Executors that are alive; the driver itself only where it runs the tasks."""
        if self._alone is not None:
            return self._alone
        text = str(self._facts.executors(self._context))
        rows = [line.split("\t") for line in text.splitlines()]
        found = [
            Executor(name, host, int(cores), int(memory))
            for name, host, cores, memory in sorted(rows)
            if self.local or name != "driver"
        ]
        if self.local and found:
            # The driver is there as long as anything asks.
            self._alone = found
        return found

    @property
    def local(self) -> bool:
        """Whether the driver runs the tasks itself, and there are no executors beside it."""
        return str(self._sc.master).startswith("local[") or self._sc.master == "local"

    def gone(self, wanted: set[str]) -> set[str]:
        """Tell which executors the scheduler has given up; `executors` hears of it a bit later."""
        if self.local:
            return set()
        return wanted - set(str(self._context.getExecutorIds().mkString(",")).split(","))

    def running(self, group: str) -> list[RunningTask]:
        """List the tasks of a job group that run now."""
        text = str(self._facts.running(self._context, group))
        found = [line.split("\t") for line in text.splitlines()]
        return [
            RunningTask(int(layer), int(partition), executor, int(ms) / 1000.0)
            for layer, partition, executor, ms in found
        ]

    def tasks(self, group: str) -> list[TaskFact]:
        """Task attempts of a job group."""
        text = str(self._facts.tasks(self._context, group))
        facts = []
        for line in text.splitlines():
            job, stage, attempt, partition, executor, host, status, *rest = line.split("\t")
            facts.append(
                TaskFact(
                    int(job),
                    int(stage),
                    int(attempt),
                    int(partition),
                    executor,
                    host,
                    status,
                    *(int(value) for value in rest),
                )
            )
        return facts


def compiled(
    sc: SparkContext, package: str, names: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return classes by name, and their code, compiled when a JVM is first used.

    Parameters
    ----------
    package : str
        Python package in whose folder ``java`` the sources are.
    names : tuple of str
        The classes; one may use those before it.
    """
    known = _COMPILED.setdefault(sc._gateway, {})
    if package in known:
        return known[package]
    jvm: Any = sc._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    made: dict[str, Any] = {}
    code: dict[str, bytes] = {}
    for name in names:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        text = (files(package) / "java" / f"{name}.java").read_text(encoding="utf-8")
        compiler.cook(f"{name}.java", jvm.java.io.StringReader(text))
        code.update({str(k): bytes(v) for k, v in dict(compiler.getBytecodes()).items()})
        loader = compiler.getClassLoader()
        made[name] = loader.loadClass(f"penstock.{name}")
    known[package] = (made, code)
    return made, code


def ship(sc: SparkContext, code: dict[str, bytes], jar: Path) -> None:
    """Have executors load classes from a jar, which must stay as long as Spark does."""
    with zipfile.ZipFile(jar, "w") as out:
        for name, binary in code.items():
            out.writestr(name.replace(".", "/") + ".class", binary)
    sc._jsc.addJar(str(jar))


def _framed(data: bytes) -> Iterator[bytes]:
    """Cut apart what stands each behind its length, in four bytes."""
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        yield data[at + 4 : end]
        at = end


def _instance(made: Any) -> Any:
    return made.getConstructors()[0].newInstance(None)


def jvm_of(sc: SparkContext) -> Jvm:
    """Our classes in a SparkContext, compiled on first use."""
    found = _INSTALLED.get(sc)
    if found is None:
        found = _INSTALLED[sc] = Jvm(sc)
    return found
