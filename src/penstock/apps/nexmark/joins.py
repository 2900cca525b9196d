"""Queries of NEXMark that join two streams, or count in sessions and different values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock import functions as F
from penstock.apps.nexmark.aggregations import RANKS
from penstock.apps.nexmark.query import LATENESS_S, NexmarkQuery, Streaming, register
from penstock.pipeline.builder import Pipeline
from penstock.pipeline.keyed.windows import session

#: Seconds of the windows in which q8 looks for new persons who sell.
NEW_S = 10.0

#: States that q3 looks for, and the category of q3 and q20.
STATES, CATEGORY = ("OR", "ID", "CA"), 10

#: State of q4: the best price of an auction so far, and what it is of.
_BEST = pa.schema([("category", pa.int64()), ("best", pa.int64())])


def _local_items(streams: Pipeline, parallelism: int | None) -> Pipeline:
    return (
        streams.filter("near", pc.field("state").isin(list(STATES)), after="person")
        .select("people", ["id", "name", "city", "state"])
        .filter("some", pc.field("category") == CATEGORY, after="auction")
        .select("items", {"auction": "id", "seller": "seller"})
        .join("match", "people", on={"seller": "id"}, parallelism=parallelism)
        .select("columns", {"name": "name", "city": "city", "state": "state", "id": "auction"})
    )


def _bids_of_auctions(streams: Pipeline, parallelism: int | None) -> Pipeline:
    """Join each auction with the bids that came while it was open."""
    bids = {"of": "auction", "bidder": "bidder", "price": "price", "at": "date_time"}
    is_open = (pc.field("at") >= pc.field("date_time")) & (pc.field("at") <= pc.field("expires"))
    columns = ["id", "seller", "category", "date_time", "expires"]
    return (
        streams.select("offers", bids, after="bid")
        .select("items", columns, after="auction")
        .join("open", "offers", on={"id": "of"}, where=is_open, parallelism=parallelism)
    )


def _category_prices(streams: Pipeline, parallelism: int | None) -> Pipeline:
    """Average the best prices: what a new best price changes is added to sums by category."""
    sums = (
        _bids_of_auctions(streams, parallelism)
        .stateful("best", by="id", update=_better, state=_BEST, parallelism=parallelism)
        .aggregate(
            "sums", by="category", total=F.sum("more"), n=F.sum("first"), parallelism=parallelism
        )
    )
    average = pc.field("total").cast(pa.float64()) / pc.field("n").cast(pa.float64())
    return sums.select("average", {"category": "category", "avg_final": average})


def _better(batch: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return by how much the best prices of auctions rose, and the new ones."""
    grouped = batch.group_by("id", use_threads=False)
    best = grouped.aggregate([("category", "max"), ("price", "max")])
    best = best.rename_columns(["id", "category", "price"])
    known = state.select(["id", "best"])
    both = best.join(known, "id", join_type="left outer", use_threads=False)
    before = pc.fill_null(both.column("best"), 0)
    first = pc.cast(pc.is_null(both.column("best")), pa.int64())
    more = pc.max_element_wise(pc.subtract(both.column("price"), before), pa.scalar(0))
    told = pa.table({"category": both.column("category"), "more": more, "first": first})
    kept = pa.table(
        {
            "id": both.column("id"),
            "category": both.column("category"),
            "best": pc.max_element_wise(both.column("price"), before),
        }
    )
    return told.filter(pc.or_(pc.greater(more, 0), pc.greater(first, 0))), kept


def _winning_bids(streams: Pipeline, parallelism: int | None) -> Pipeline:
    def unpacked(batch: pa.RecordBatch) -> pa.Table:
        best = pa.Table.from_struct_array(pc.list_flatten(batch.column("best")))
        return best.add_column(0, "id", batch.column("id"))

    joined = _bids_of_auctions(streams, parallelism)
    best = F.top(1, "price", keep=["at", "bidder", "seller", "category"])
    return joined.aggregate("best", by="id", best=best, parallelism=parallelism).map(
        "unpacked", unpacked
    )


def _new_sellers(streams: Pipeline, parallelism: int | None) -> Pipeline:
    """Look for persons and auctions of one window; the window is part of the key."""
    return (
        streams.map("people", _Begun("id", "name"), after="person")
        .map("sellers", _Begun("seller"), after="auction")
        .deduplicate(
            "sold",
            by=("seller", "start"),
            time="start",
            lateness=NEW_S + LATENESS_S,
            parallelism=parallelism,
        )
        .join(
            "match",
            "sold",
            after="people",
            on={"id": "seller", "start": "start"},
            parallelism=parallelism,
        )
        .select("columns", ["id", "name", "start"])
    )


class _Begun:
    """Adds the start of the window that an event is in."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add it."""
        size = int(NEW_S * 1e6)
        times = pc.cast(batch.column("date_time"), pa.int64())
        starts = pc.multiply(pc.divide(times, size), size)
        start = pc.cast(starts, batch.schema.field("date_time").type)
        return batch.select(list(self.columns)).append_column("start", start)


def _sessions(bids: Pipeline, parallelism: int | None) -> Pipeline:
    return bids.aggregate(
        "sessions",
        by="bidder",
        bid_count=F.count(),
        window=session("date_time", "10 s", lateness=LATENESS_S),
        parallelism=parallelism,
    )


def _ranked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add the day, and for each rank the columns of the bids that are in it."""
    price = batch.column("price")
    low, high = (pa.scalar(rank) for rank in RANKS)
    cheap, dear = pc.less(price, low), pc.greater_equal(price, high)
    ranks = {"rank1": cheap, "rank2": pc.invert(pc.or_(cheap, dear)), "rank3": dear}
    day = pc.cast(pc.cast(batch.column("date_time"), pa.date32()), pa.string())
    made: dict[str, Any] = {"channel": batch.column("channel"), "day": day}
    for name, which in ranks.items():
        made[f"{name}_bids"] = pc.cast(which, pa.int64())
        for column in ("bidder", "auction"):
            made[f"{name}_{column}s"] = pc.if_else(which, batch.column(column), None)
    for column in ("bidder", "auction"):
        made[f"total_{column}s"] = batch.column(column)
    return pa.record_batch(made)


def _statistics(bids: Pipeline, by: tuple[str, ...], parallelism: int | None) -> Pipeline:
    ranks = ("rank1", "rank2", "rank3")
    reduce: dict[str, Any] = {"total_bids": F.count()}
    reduce |= {f"{rank}_bids": F.sum(f"{rank}_bids") for rank in ranks}
    for column in ("bidders", "auctions"):
        names = [f"{rank}_{column}" for rank in ("total", *ranks)]
        reduce |= {name: F.count_distinct(name) for name in names}
    return bids.map("ranked", _ranked).aggregate(
        "statistics", by=by, reduce=reduce, parallelism=parallelism
    )


def _by_day(bids: Pipeline, parallelism: int | None) -> Pipeline:
    return _statistics(bids, ("day",), parallelism)


def _by_channel(bids: Pipeline, parallelism: int | None) -> Pipeline:
    return _statistics(bids, ("channel", "day"), parallelism)


def _expanded(streams: Pipeline, parallelism: int | None) -> Pipeline:
    bids = ["auction", "bidder", "price", "channel", "date_time"]
    auctions = {"id": "id", "item_name": "item_name", "seller": "seller", "expires": "expires"}
    return (
        streams.filter("some", pc.field("category") == CATEGORY, after="auction")
        .select("items", auctions)
        .select("offers", bids, after="bid")
        .join("match", "items", on={"auction": "id"}, parallelism=parallelism)
        .select("columns", [*bids, "item_name", "seller", "expires"])
    )


_OPEN = (
    "from auction a join bid b on a.id = b.auction "
    "and b.date_time between a.date_time and a.expires"
)
_LOW, _HIGH = RANKS
_CHOSEN = {
    "total": "true",
    "rank1": f"price < {_LOW}",
    "rank2": f"price >= {_LOW} and price < {_HIGH}",
    "rank3": f"price >= {_HIGH}",
}
_COUNTS = ", ".join(
    [
        *(f"count(*) filter (where {chosen}) as {rank}_bids" for rank, chosen in _CHOSEN.items()),
        *(
            f"count(distinct {column}) filter (where {chosen}) as {rank}_{column}s"
            for column in ("bidder", "auction")
            for rank, chosen in _CHOSEN.items()
        ),
    ]
)
_DAY = "date_format(date_time, 'yyyy-MM-dd')"

_Q3 = (
    "select p.name, p.city, p.state, a.id from auction a join person p on a.seller = p.id "
    f"where a.category = {CATEGORY} and p.state in {STATES}"
)
_Q20 = (
    "select b.auction, b.bidder, b.price, b.channel, b.date_time, a.item_name, a.seller, a.expires "
    f"from bid b join auction a on b.auction = a.id where a.category = {CATEGORY}"
)
_Q11 = (
    "select bidder, session_window.start as window_start, session_window.end as window_end, "
    "count(*) as bid_count from bid group by bidder, session_window(date_time, '10 seconds')"
)

Q3 = register(
    NexmarkQuery(
        "q3",
        "persons of some states who sell in one category",
        ("person", "auction"),
        _local_items,
        _Q3,
        streaming=Streaming(_Q3),
    )
)
Q4 = register(
    NexmarkQuery(
        "q4",
        "average of the best prices by category",
        ("auction", "bid"),
        _category_prices,
        "select category, avg(final) as avg_final from (select a.id, a.category, "
        f"max(b.price) as final {_OPEN} group by a.id, a.category) group by category",
        key=("category",),
    )
)
Q8 = register(
    NexmarkQuery(
        "q8",
        "new persons who sell within the same 10 s",
        ("person", "auction"),
        _new_sellers,
        "select distinct p.id, p.name, w.start from (select *, window(date_time, '10 seconds') "
        "as w from person) p join (select seller, window(date_time, '10 seconds') as v "
        "from auction) a "
        "on p.id = a.seller and p.w = a.v",
    )
)
Q9 = register(
    NexmarkQuery(
        "q9",
        "the winning bid of each auction",
        ("auction", "bid"),
        _winning_bids,
        "select id, price, at, bidder, seller, category from (select a.id, b.price, "
        "b.date_time as at, b.bidder, a.seller, a.category, row_number() over (partition by a.id "
        f"order by b.price desc, b.date_time, b.bidder) as r {_OPEN}) where r = 1",
        key=("id",),
    )
)
Q11 = register(
    NexmarkQuery(
        "q11",
        "bids of each bidder, in sessions",
        ("bid",),
        _sessions,
        _Q11,
        open_until="window_end",
        streaming=Streaming(_Q11),
    )
)
Q15 = register(
    NexmarkQuery(
        "q15",
        "bids, bidders and auctions by day",
        ("bid",),
        _by_day,
        f"select {_DAY} as day, {_COUNTS} from bid group by {_DAY}",
        key=("day",),
    )
)
Q16 = register(
    NexmarkQuery(
        "q16",
        "bids, bidders and auctions by channel and day",
        ("bid",),
        _by_channel,
        f"select channel, {_DAY} as day, {_COUNTS} from bid group by channel, {_DAY}",
        key=("channel", "day"),
    )
)
Q20 = register(
    NexmarkQuery(
        "q20",
        "bids with the auction that they are for",
        ("bid", "auction"),
        _expanded,
        _Q20,
        streaming=Streaming(_Q20),
    )
)
