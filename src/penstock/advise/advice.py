"""The advice for an application: its findings, what elastic executors cost, and plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.advise.application import Application
from penstock.advise.elastic import Elastic
from penstock.advise.evidence import Evidence
from penstock.advise.findings import Finding, Setting, found
from penstock.advise.what_if import elastic_of
from penstock.advise.workload import Recorded, recorded
from penstock.common.errors import PenstockError
from penstock.planning import PlanOutcome, ask, request

#: Batches below which findings say little.
FEW_BATCHES = 5


@dataclass(frozen=True)
class QueryAdvice:
    """What holds one query back.

    Parameters
    ----------
    evidence : Evidence
    findings : tuple of Finding
        The one that would gain most first.
    """

    evidence: Evidence
    findings: tuple[Finding, ...]

    @property
    def title(self) -> str:
        """Name of the query."""
        return self.evidence.query.title

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Settings to change, each once, in the order of the findings."""
        kept = {s.name: s for finding in reversed(self.findings) for s in finding.settings}
        ordered = dict.fromkeys(s.name for finding in self.findings for s in finding.settings)
        return tuple(kept[name] for name in ordered)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        seen, query = self.evidence, self.evidence.query
        return {
            "id": query.id,
            "run_id": query.run_id,
            "name": query.name,
            "sources": list(query.sources),
            "sink": query.sink,
            "batches": len(query.batches),
            "batches_counted": len(seen.batches),
            "batch_ms": round(seen.batch_ms, 1),
            "cycle_ms": round(seen.cycle_ms, 1),
            "waiting_share": round(seen.waiting_share, 4),
            "cores": seen.cores,
            "rows_per_s": round(rows_per_s(seen), 2),
            "failure": query.failure,
            "findings": [finding.to_dict() for finding in self.findings],
        }


@dataclass(frozen=True)
class Advice:
    """What was found in one application.

    Parameters
    ----------
    application : Application
    queries : tuple of QueryAdvice
        Empty when the application is not a streaming one.
    elastic : Elastic or None
    plans : tuple of PlanOutcome
        What each strategy would choose for the recorded stages.
    """

    application: Application
    queries: tuple[QueryAdvice, ...] = ()
    elastic: Elastic | None = None
    plans: tuple[PlanOutcome, ...] = ()

    @property
    def verdict(self) -> str:
        """One sentence on the application as a whole."""
        application = self.application
        if not application.streaming:
            if not application.batch_stages:
                return "This application ran no stage: there is nothing to advise on."
            return (
                f"This is not a streaming application: its {application.batch_stages} stages "
                "belong to no streaming query, and the advice is about those."
            )
        if not any(q.evidence.batches for q in self.queries):
            return "No batch of a streaming query was completed: there is nothing to advise on."
        if not any(q.findings for q in self.queries):
            return "Nothing holds it back that the log shows."
        return "What would gain most comes first."

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, with the keys that ``penstock advise --json`` promises."""
        application = self.application
        return {
            "origin": application.origin,
            "application": application.id,
            "name": application.name,
            "spark": application.spark,
            "streaming": application.streaming,
            "verdict": self.verdict,
            "notes": list(application.notes),
            "executors": len(application.executors),
            "queries": [query.to_dict() for query in self.queries],
            "elastic": self.elastic.to_dict() if self.elastic is not None else None,
            "plans": [outcome.to_dict() for outcome in self.plans],
        }


def advise(
    application: Application,
    *,
    strategies: Sequence[str] = ("penstock",),
    seed: int = 0,
    watch: Callable[[str], None] | None = None,
) -> Advice:
    """Say what holds the streaming queries of an application back.

    Parameters
    ----------
    application : Application
        As `penstock.advise.read_logs` or `penstock.advise.read_address` gives it.
    strategies : sequence of str
        Strategies whose plans are wanted.
    seed : int
    watch : callable, optional
        Called with what is being done.
    """
    tell = watch or (lambda text: None)
    elastic: Elastic | None = None
    plans: tuple[PlanOutcome, ...] = ()
    try:
        work = recorded(application)
        if work is not None:
            tell("elastic executors")
            elastic = elastic_of(application, work)
            plans = _plans(work, strategies, seed, tell)
    except PenstockError as error:
        # Findings need neither; what was recorded may be beyond what can be planned.
        application = application.noting((f"executors and plans were not compared: {error}",))
    tell("findings")
    queries = []
    for query in application.queries:
        evidence = Evidence(application, query, elastic)
        queries.append(QueryAdvice(evidence, found(evidence)))
    return Advice(application, tuple(queries), elastic, plans)


def rows_per_s(evidence: Evidence) -> float:
    """Rows that the query read in a second of the time that counts."""
    low, high = evidence.span_ms
    rows = sum(batch.rows for batch in evidence.batches)
    return rows / ((high - low) / 1e3) if high > low else 0.0


def _plans(
    work: Recorded, names: Sequence[str], seed: int, tell: Callable[[str], None]
) -> tuple[PlanOutcome, ...]:
    base = request(work.topology, work.cluster, seed=seed)
    made = []
    for name in names:
        tell(f"plan of {name}")
        made.append(ask(base, name, seed))
    return tuple(made)
