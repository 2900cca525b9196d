"""The driver of a pipeline: batches in order, each planned, run, committed; on any backend."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from penstock.model import InvalidValue, Plan
from penstock.pipeline.carry import Deal, Keep, Parcel, Party, Receive, Send, Settle, Stage
from penstock.pipeline.execute import StepFailed
from penstock.pipeline.frames import ERROR, SINK, STATS, Frame, decode, decode_json
from penstock.pipeline.held import Instance, held_by, table_for
from penstock.pipeline.journal import Journal
from penstock.pipeline.layout import Layout
from penstock.pipeline.wave import ON_ERROR, Wave
from penstock.pipeline.windowed import advanced_watermarks
from penstock.state.catalog import Block, Catalog, chain
from penstock.state.home import Keeping
from penstock.state.recovery import Pull, Unrecoverable, plan_recovery
from penstock.state.runs import Span, StateLost
from penstock.state.spread import Spread, Tolerance, spread, tolerance, worst
from penstock.strategies.route.keys import HASHING

Ranges = Mapping[str, tuple[tuple[int, int], ...]]


class Backend(Protocol):
    """Something that runs tasks in places, and returns the frames for the driver."""

    def run(self, layout: Layout, wave: Wave) -> Iterable[bytes]:
        """Run a batch; raise if any task could not be run."""
        ...

    def job(self, name: str, stages: Sequence[Stage]) -> Iterable[bytes]:
        """Run stages one after the other, each task in its place."""
        ...

    def place(self, home: str) -> str:
        """Return what tells the place at a home from all others there ever were; "" is anywhere."""
        ...

    def keepers(self) -> Mapping[str, str]:
        """Return, for each node that is there, the home of the process that keeps fragments."""
        ...

    def alive(self) -> frozenset[str]:
        """Return the places that are there."""
        ...


@dataclass(frozen=True, eq=False)
class InstanceStats:
    """What one instance did in one batch."""

    vertex: str
    instance: int
    rows_in: int
    sent: Mapping[int, Mapping[int, int]]
    sinks: Mapping[str, int]
    partitions: Mapping[str, list[int]]
    skipped: int
    sample: Any
    stamps: Mapping[int, int]
    cpu_s: float
    wall_s: float
    rss_bytes: int
    saved: Mapping[str, Any] | None = None
    hot_keys: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    event_times: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows_out(self) -> int:
        """Rows sent on all wires and to all sinks."""
        sent = sum(sum(targets.values()) for targets in self.sent.values())
        return sent + sum(self.sinks.values())


@dataclass(frozen=True, eq=False)
class BatchResult:
    """What a committed batch did."""

    batch_id: int
    wave: Wave
    ranges: Ranges
    stats: tuple[InstanceStats, ...]
    rows_to_sinks: Mapping[str, int]

    @property
    def rows_in(self) -> int:
        """Rows that the sources read."""
        first = set(self.wave.layers[0])
        return sum(s.rows_in for s in self.stats if s.vertex in first)

    @property
    def skipped(self) -> int:
        """Rows that were left out because a function failed on them."""
        return sum(s.skipped for s in self.stats)


@dataclass(frozen=True)
class Carried:
    """What a change of plan took.

    Parameters
    ----------
    seconds : float
        Time that the stream stood still.
    state_bytes : int
        State that was carried.
    moved, rebuilt, dealt : int
        Instances whose state was copied, was put together from fragments, or changed its keys.
    """

    seconds: float = 0.0
    state_bytes: int = 0
    moved: int = 0
    rebuilt: int = 0
    dealt: int = 0


@dataclass(eq=False)
class Driver:
    """Runs the batches of one pipeline in order.

    Parameters
    ----------
    layout : Layout
    backend : Backend
    root : Path or str
        Folder, or address, of the journal.
    plan : Plan
        The plan of the next batch; `adopt` changes it.
    on_error : str
        ``stop`` or ``skip``.
    keeping : Keeping, optional
        How state is kept; by default in a shared folder under `root`.
    """

    layout: Layout
    backend: Backend
    root: Path | str
    plan: Plan
    on_error: str = "stop"
    keeping: Keeping | None = None
    retiring: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.on_error not in ON_ERROR:
            raise InvalidValue("on_error", "a run", "one of " + ", ".join(ON_ERROR), self.on_error)
        keeping = self.keeping or Keeping()
        if keeping.in_checkpoint and not keeping.shared:
            keeping = replace(keeping, shared=f"{self.root}/state")
        self._keeping = keeping
        self.journal = Journal(f"{self.root}/journal")
        self.token = uuid.uuid4().hex
        self.number = self.journal.last_number()
        done = self.journal.committed(self.journal.last_commit()) or {}
        self.batch = int(done.get("batch", -1))
        if done and done.get("hashing") != HASHING:
            raise InvalidValue(
                "checkpoint",
                "a run",
                f"of a release that hashes keys as this one does ({HASHING})",
                done.get("hashing", 1),
            )
        self.watermarks: dict[str, int | None] = dict(done.get("watermarks", {}))
        self.passed: dict[str, int | None] = dict(done.get("passed", {}))
        self.catalog = Catalog()
        self.held = held_by(self.layout, done.get("state", {}))
        saved = any(not held.empty for held in self.held.values())
        if saved and not keeping.in_checkpoint:
            raise StateLost(
                f"{self.root} is of a run whose state was kept by its executors alone, and they "
                "are gone; start anew in another folder, or keep state in a checkpoint, too"
            )
        for step in self.layout.sinks():
            assert step.sink is not None
            step.sink.recover(self.batch)
        self.adopt(self.plan)

    # ---- what comes next

    @property
    def next_batch(self) -> int:
        """Number of the next batch."""
        return self.batch + 1

    def pending(self) -> Ranges | None:
        """Ranges of a batch that was begun and not committed; it must be run first."""
        for number in range(self.number, self.journal.last_commit(), -1):
            entry = self.journal.begun(number)
            if entry is not None and "ranges" in entry:
                return _ranges(entry["ranges"])
        done = self.journal.committed(self.journal.last_commit()) or {}
        return _ranges(done["pending"]) if done.get("pending") else None

    def position(self) -> dict[str, int]:
        """Position that every source has reached in committed batches."""
        done = self.journal.committed(self.journal.last_commit())
        return {} if done is None else {k: int(v) for k, v in done["positions"].items()}

    def survives(self) -> Tolerance | None:
        """Say what losses of nodes the state survives now; None without any by peers."""
        if not self._keeping.by_peers:
            return None
        homes = self._keeper_homes()
        found = [
            tolerance(
                self._own_keeper(name, index, homes),
                self._blocks(name, index),
                homes,
                asked=self._keeping.check + 1,
            )
            for name, held in self.held.items()
            for index, instance in enumerate(held.instances)
            if instance.version >= 0
        ]
        return worst(found) if found else None

    def promise(self) -> str:
        """Say in words what the state survives now; empty before there is any."""
        if all(held.empty for held in self.held.values()):
            return ""
        keeping = self._keeping_now()
        said = []
        if keeping.by_peers:
            found = self.survives()
            said.append("survives nothing: peers have none of it" if found is None else str(found))
            if keeping.every > 1:
                said.append(f"changes of up to {keeping.every - 1} batches may be lost with a node")
        if keeping.in_checkpoint:
            said.append(f"all of it is in the checkpoint at {keeping.shared}")
        return "; ".join(said)

    # ---- batches

    def wave(self, ranges: Ranges, number: int, *, backup: bool = False) -> Wave:
        """Describe the next batch to its tasks; `backup`: peers get what changed in any case."""
        keeping = self._keeping_now()
        homes = {name: tuple(map(str, spots)) for name, spots in self.plan.placement.items()}
        keepers: dict[str, str] = {}
        spreads: dict[str, tuple[Spread, ...]] = {}
        whole: set[tuple[str, int]] = set()
        if keeping.by_peers and self.held:
            keepers = self._keeper_homes()
            if len(keepers) < 2:
                # There is nobody else.
                keepers = {}
            for name, held in self.held.items():
                instances = held.instances[: self.plan.parallelism[name]]
                wanted = [self._spread(name, i, keepers) for i in range(len(instances))]
                spreads[name] = tuple(
                    replace(one, keepers=tuple(keepers[place] for place in one.keepers))
                    for one in wanted
                )
                whole |= {
                    (name, i)
                    for i, instance in enumerate(instances)
                    if instance.version >= 0
                    and (instance.worn or self._thin(name, i, wanted[i], keepers))
                }
            if not (backup or whole or self._due(number)):
                # A layer of keepers that nothing is sent to would only take time.
                keepers, spreads = {}, {}
        return Wave(
            batch_id=self.next_batch,
            version=number,
            layers=self.layout.layers,
            parallelism=dict(self.plan.parallelism),
            routing=dict(self.plan.routing),
            ranges=dict(ranges),
            homes=homes,
            keeping=keeping,
            bases={n: tuple(i.version for i in h.instances) for n, h in self.held.items()},
            floors={
                name: tuple(
                    max(
                        (block.last for block in self._blocks(name, i) if not block.first),
                        default=-1,
                    )
                    for i in range(len(held.instances))
                )
                for name, held in self.held.items()
            },
            backed={n: tuple(i.backed for i in h.instances) for n, h in self.held.items()},
            keepers=tuple(keepers.values()),
            spreads=spreads,
            whole=frozenset(whole),
            watermarks=dict(self.watermarks),
            passed=dict(self.passed),
            on_error=self.on_error,
            token=self.token,
        )

    def run_batch(self, ranges: Ranges, extra: dict[str, Any] | None = None) -> BatchResult:
        """Run and commit the next batch.

        Parameters
        ----------
        ranges : mapping
            Positions of each source that belong to it.
        extra : dict, optional
            More to write down with the commit.

        Raises
        ------
        StepFailed
            When a function failed and `on_error` is ``stop``. Nothing of the batch remains.
        """
        cuts = {name: [list(cut) for cut in cuts] for name, cuts in ranges.items()}
        number = self._begin({"ranges": cuts})
        wave = self.wave(ranges, number)
        frames = [Frame.unpack(bytes(data)) for data in self.backend.run(self.layout, wave)]
        _raise_error(frames)
        stats = tuple(_stats(decode_json(f.body)) for f in frames if f.kind == STATS)
        written = self._sinks(wave.batch_id, frames, stats)
        positions = self.position()
        positions.update({name: cuts[-1][1] for name, cuts in ranges.items() if cuts})
        for one in stats:
            if one.saved is not None:
                self.note_saved(wave, one.vertex, one.instance, one.saved)
        following = advanced_watermarks(
            self.layout.pipeline.steps, self.watermarks, [one.event_times for one in stats]
        )
        done = {
            "batch": wave.batch_id,
            "hashing": HASHING,
            "positions": positions,
            "state": {name: held.to_dict() for name, held in self.held.items()},
            "watermarks": following,
            "passed": self.watermarks,
        }
        self.journal.commit(number, {**done, **(extra or {})})
        self.passed, self.watermarks = self.watermarks, following
        self.batch = wave.batch_id
        return BatchResult(wave.batch_id, wave, ranges, stats, written)

    def _due(self, number: int) -> bool:
        """Whether any instance is to send peers what it changes in an attempt."""
        every = self._keeping.every
        return any(
            number - instance.backed >= every
            for held in self.held.values()
            for instance in held.instances
        )

    def _begin(self, entry: dict[str, Any]) -> int:
        """Take the next number, which no other attempt will have."""
        self.number += 1
        self.journal.begin(self.number, entry)
        return self.number

    # ---- plans

    def adopt(self, plan: Plan) -> Carried:
        """Use another plan from the next batch on, after carrying the state that it moves.

        Raises
        ------
        StateLost
            When state cannot be carried or put together. The plan before it stays in charge.
        """
        started = time.perf_counter()
        names = {vertex.name for vertex in self.layout.vertices}
        if set(plan.parallelism) != names:
            raise InvalidValue("plan", "a run", f"for {sorted(names)}", sorted(plan.parallelism))
        tables = {name: table_for(name, held, plan) for name, held in self.held.items()}
        routing = {**plan.routing, **{n: t for n, t in tables.items() if t is not None}}
        plan = replace(plan, routing=routing)
        took = Carried()
        if self._keeping.by_peers and plan.pinned:
            took = self._carry(plan)
        changed = {
            name: table
            for name, table in tables.items()
            if table is not None
            and (table, plan.parallelism[name])
            != (self.held[name].table, len(self.held[name].instances))
        }
        if any(not self.held[name].empty for name in changed):
            took = self._deal(plan, changed, took)
        for name, held in self.held.items():
            held.table = tables[name]
            count = plan.parallelism[name]
            held.instances += [Instance() for _ in range(count - len(held.instances))]
            for index in range(count, len(held.instances)):
                self.catalog.forget(self.layout.pipeline.name, name, index)
            del held.instances[count:]
        self.plan = plan
        if took.dealt:
            self._commit_state()
        return replace(took, seconds=time.perf_counter() - started)

    def retire(self, nodes: Iterable[str]) -> Carried:
        """Have nodes keep nothing from now on; what they kept is given to others at once."""
        started = time.perf_counter()
        self.retiring |= set(nodes)
        number = self._begin({"retired": sorted(self.retiring)})
        wave = replace(self.wave({}, number), tidy=False)
        parties = [
            Party(name, index, held.instances[index].version, held.by, held.route, None, whole=True)
            for name, held in self.held.items()
            for index in range(len(held.instances))
            if (name, index) in wave.whole
        ]
        if not parties or not wave.keepers:
            return Carried(time.perf_counter() - started)
        places = tuple(self.held[p.vertex].instances[p.instance].place for p in parties)
        keepers = tuple(self.backend.place(home) for home in wave.keepers)
        stages = (Stage(places, Settle(wave, tuple(parties))), Stage(keepers, Keep(wave)))
        answers = self._answers("spread fragments anew", stages)
        size = 0
        for answer in answers:
            key = (answer["vertex"], answer["instance"])
            self.note_saved(wave, *key, answer["saved"])
            size += int(answer["saved"]["bytes"])
        self._commit_state()
        return Carried(time.perf_counter() - started, size)

    def _carry(self, plan: Plan) -> Carried:
        """Bring the state of instances whose home changes to the new one."""
        alive = self.backend.alive()
        wanted: list[tuple[str, int, Instance, str]] = []
        for name, held in self.held.items():
            spots = plan.placement[name]
            for index, instance in enumerate(held.instances):
                if instance.version < 0 or not instance.place:
                    continue
                if index >= len(spots) and instance.place in alive:
                    # It is dealt to the others from where it is.
                    continue
                target = self.backend.place(str(spots[min(index, len(spots) - 1)]))
                if target != instance.place:
                    wanted.append((name, index, instance, target))
        if not wanted:
            return Carried()
        copies = [w for w in wanted if w[2].place in alive]
        rebuilt = [w for w in wanted if w[2].place not in alive]
        size = self._send(copies, {}) + self._rebuild(rebuilt, alive)
        for _, _, instance, target in wanted:
            # What could not be put together is in the checkpoint, where the task finds it.
            instance.place = target
        return Carried(state_bytes=size, moved=len(copies), rebuilt=len(rebuilt))

    def _rebuild(self, wanted: list[tuple[str, int, Instance, str]], alive: frozenset[str]) -> int:
        """Put state together from fragments, first from as few as needed, then from all."""
        size, left = 0, wanted
        why: dict[tuple[str, int], str] = {}
        for everything in (False, True):
            pieces: dict[tuple[str, int], tuple[Pull, ...]] = {}
            for name, index, _, target in left:
                try:
                    plan = plan_recovery(self._blocks(name, index), alive, target)
                except Unrecoverable as error:
                    why[name, index] = str(error)
                else:
                    pieces[name, index] = plan.pulls + (plan.spares if everything else ())
            tried = [w for w in left if pieces.get((w[0], w[1]))]
            missing: dict[tuple[str, int], str] = {}
            size += self._send(tried, pieces, missing)
            why.update(missing)
            for name, index, instance, _ in tried:
                # Some of its fragments are not what they should be: it is to be coded anew.
                instance.worn = instance.worn or (name, index) in missing
            done = {(w[0], w[1]) for w in tried} - set(missing)
            left = [w for w in left if (w[0], w[1]) not in done]
        if left and not self._keeping.in_checkpoint:
            told = "; ".join(f"{n}[{i}]: {why.get((n, i), 'no copies')}" for n, i, _, _ in left)
            raise StateLost(f"state cannot be put together from what peers have: {told}")
        for name, index, instance, _ in left:
            instance.backed = -1
            self.catalog.forget(self.layout.pipeline.name, name, index)
        if not self._keeping.in_checkpoint:
            for _, _, instance, _ in wanted:
                # Less only where backups are not made with every batch.
                instance.version = instance.backed
        return size

    def _send(
        self,
        wanted: list[tuple[str, int, Instance, str]],
        pieces: Mapping[tuple[str, int], tuple[Pull, ...]],
        missing: dict[tuple[str, int], str] | None = None,
    ) -> int:
        """Run the job that carries; return the bytes, and note what is missing."""
        if not wanted:
            return 0
        parcels: dict[str, list[Parcel]] = {}
        for to, (name, index, instance, _) in enumerate(wanted):
            if (name, index) in pieces:
                for pull in pieces[name, index]:
                    run = Span(pull.block.first, pull.block.last)
                    parcel = Parcel(name, index, instance.backed, to, ((run, pull.index),))
                    parcels.setdefault(pull.keeper, []).append(parcel)
            else:
                parcel = Parcel(name, index, instance.version, to)
                parcels.setdefault(instance.place, []).append(parcel)
        runs = [
            (
                name,
                index,
                tuple({Span(p.block.first, p.block.last) for p in pieces.get((name, index), ())}),
            )
            for name, index, _, _ in wanted
        ]
        stages = (
            Stage(tuple(parcels), Send(tuple(tuple(p) for p in parcels.values()))),
            Stage(tuple(target for *_, target in wanted), Receive(tuple(runs))),
        )
        answers = self._answers("carry state", stages if parcels else stages[1:])
        size = 0
        for answer in answers:
            size += int(answer["bytes"])
            key = (answer["vertex"], answer["instance"])
            gone = dict(answer["missing"])
            if not gone and not answer["runs"]:
                gone = {"all": "nothing of it came"}
            if gone and missing is None:
                raise StateLost(f"{key[0]}[{key[1]}] could not be copied: {gone}")
            if gone and missing is not None:
                missing[key] = "; ".join(f"versions {run}: {why}" for run, why in gone.items())
        return size

    def _deal(self, plan: Plan, tables: Mapping[str, Any], took: Carried) -> Carried:
        """Move router partitions between instances, as a new version of those that change."""
        number = self._begin({"dealt": sorted(tables)})
        before = self.plan
        senders: list[tuple[Party, str]] = []
        takers: list[tuple[Party, str]] = []
        for name, table in tables.items():
            held, count = self.held[name], plan.parallelism[name]
            if held.empty or held.table is None:
                continue
            old, new = held.table.partitions, table.partitions
            moved = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
            spots = plan.placement[name]
            for index in range(max(len(held.instances), count)):
                known = held.instances[index] if index < len(held.instances) else Instance()
                party = Party(name, index, known.version, held.by, held.route, table)
                spot = spots[min(index, len(spots) - 1)]
                place = known.place or (self.backend.place(str(spot)) if plan.pinned else "")
                if known.version >= 0 and any(a == index for a, _ in moved):
                    senders.append((party, place))
                if index < count and any(index in pair for pair in moved):
                    takers.append((party, place))
        if not senders:
            return took
        # Instances that are new are spread and saved like the others.
        self.plan = plan
        shape = {name: list(held.instances) for name, held in self.held.items()}
        try:
            for name in tables:
                held, count = self.held[name], plan.parallelism[name]
                held.instances += [Instance() for _ in range(count - len(held.instances))]
            wave = replace(self.wave({}, number, backup=True), tidy=False)
            to = {(p.vertex, p.instance): i for i, (p, _) in enumerate(takers)}
            stages = [
                Stage(
                    tuple(place for _, place in senders),
                    Deal(wave, tuple(party for party, _ in senders), to),
                ),
                Stage(
                    tuple(place for _, place in takers),
                    Settle(wave, tuple(party for party, _ in takers)),
                ),
            ]
            if wave.keepers:
                places = tuple(self.backend.place(home) for home in wave.keepers)
                stages.append(Stage(places, Keep(wave)))
            answers = self._answers("deal partitions anew", stages)
        except BaseException:
            self.plan = before
            for name, instances in shape.items():
                self.held[name].instances = instances
            raise
        where = {(party.vertex, party.instance): place for party, place in takers}
        for answer in answers:
            if answer["saved"] is not None:
                key = (answer["vertex"], answer["instance"])
                self.note_saved(wave, *key, answer["saved"], where[key])
        size = sum(int(answer["bytes"]) for answer in answers)
        return replace(took, state_bytes=took.state_bytes + size, dealt=len(takers))

    def _commit_state(self) -> None:
        """Write down versions that were made between batches: what they replace soon goes."""
        pending = self.pending()
        done = self.journal.committed(self.journal.last_commit()) or {}
        done["hashing"] = HASHING
        done["state"] = {name: held.to_dict() for name, held in self.held.items()}
        done["pending"] = None if pending is None else {n: list(c) for n, c in pending.items()}
        self.journal.commit(self.number, done)

    def _answers(self, name: str, stages: Sequence[Stage]) -> list[dict[str, Any]]:
        frames = [Frame.unpack(bytes(data)) for data in self.backend.job(name, stages)]
        _raise_error(frames)
        return [decode_json(frame.body) for frame in frames if frame.kind == STATS]

    # ---- where state is kept

    def _keeping_now(self) -> Keeping:
        """Return how state is kept under the plan: without pins, only a checkpoint is of use."""
        keeping = self._keeping
        if keeping.by_peers and not self.plan.pinned:
            if not keeping.in_checkpoint:
                raise InvalidValue(
                    "state", "a run", "checkpoint or both: the plan pins nothing", keeping.mode
                )
            keeping = replace(keeping, mode="checkpoint")
        return keeping

    def _keeper_homes(self) -> dict[str, str]:
        """Return the homes of those that may keep fragments, by place."""
        return {
            self.backend.place(home): home
            for node, home in self.backend.keepers().items()
            if node not in self.retiring
        }

    def _own_keeper(self, name: str, index: int, homes: Mapping[str, str]) -> str:
        """Return the place that keeps fragments on the node of an instance."""
        node = self.plan.placement[name][index].node
        # The homes are spots, such as node-1/0: asking the backend again would cost a call each.
        return next((p for p, home in homes.items() if home.rpartition("/")[0] == node), "")

    def _spread(self, name: str, index: int, homes: Mapping[str, str]) -> Spread:
        key = f"{self.layout.pipeline.name}/{name}/{index}"
        own = self._own_keeper(name, index, homes)
        return spread(own, key, homes, r=self._keeping.raw, c=self._keeping.check)

    def _thin(self, name: str, index: int, wanted: Spread, homes: Mapping[str, str]) -> bool:
        """Whether an instance's fragments survive less than they could."""
        own = self._own_keeper(name, index, homes)
        blocks = self._blocks(name, index)
        if not blocks:
            return bool(wanted.keepers)
        now = tolerance(own, blocks, homes).nodes
        return now < tolerance(own, [wanted], homes).nodes

    def note_saved(
        self, wave: Wave, name: str, index: int, saved: Mapping[str, Any], place: str | None = None
    ) -> None:
        """Take note of a version that an instance saved, and of who keeps its fragments."""
        if place is None:
            peers = wave.keeping.by_peers
            place = self.backend.place(wave.homes[name][index]) if peers else ""
        instance = self.held[name].instances[index]
        instance.version, instance.place = int(saved["version"]), place
        if "backed" not in saved or not wave.spreads[name][index].keepers:
            return
        one, topology = wave.spreads[name][index], self.layout.pipeline.name
        keepers = tuple(self.backend.place(home) for home in one.keepers)
        first, last = saved["backed"]
        size = int(saved["bytes"])
        self.catalog.add(Block(topology, name, index, first, last, one.r, one.c, keepers, size))
        instance.backed = last
        instance.worn = instance.worn and first > 0
        self.catalog.retain(topology, name, index, [last])

    def _blocks(self, name: str, index: int) -> tuple[Block, ...]:
        """Find what peers have of an instance, the newest run first."""
        backed = self.held[name].instances[index].backed
        return chain(self.catalog.find(self.layout.pipeline.name, name, index), backed)

    def _sinks(
        self, batch_id: int, frames: list[Frame], stats: tuple[InstanceStats, ...]
    ) -> dict[str, int]:
        rows: dict[str, list[pa.Table]] = {}
        for frame in frames:
            if frame.kind == SINK:
                name = self.layout.pipeline.steps[frame.wire].name
                rows.setdefault(name, []).append(decode(frame.body))
        written = {}
        for step in self.layout.sinks():
            tables = rows.get(step.name)
            table = pa.concat_tables(tables, promote_options="permissive") if tables else None
            assert step.sink is not None
            step.sink.commit(batch_id, table)
            written[step.name] = sum(s.sinks.get(step.name, 0) for s in stats)
        return written


def _ranges(cuts: Mapping[str, Any]) -> Ranges:
    return {name: tuple((a, b) for a, b in found) for name, found in cuts.items()}


def _stats(values: dict[str, Any]) -> InstanceStats:
    values["sent"] = {
        int(wire): {int(target): rows for target, rows in targets.items()}
        for wire, targets in values["sent"].items()
    }
    values["hot_keys"] = {
        target: {int(key): rows for key, rows in found.items()}
        for target, found in values["hot_keys"].items()
    }
    values["stamps"] = {int(step): count for step, count in values["stamps"].items()}
    return InstanceStats(**values)


def _raise_error(frames: Iterable[Frame]) -> None:
    for frame in frames:
        if frame.kind == ERROR and frame.wire == 1:
            raise StateLost(decode_json(frame.body))
        if frame.kind == ERROR:
            raise StepFailed(**decode_json(frame.body))
