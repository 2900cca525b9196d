"""Queries of NEXMark that keep something for each key, or for each window."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import functions as F
from penstock.apps.nexmark.query import LATENESS_S, NexmarkQuery, Streaming, register
from penstock.pipeline.builder import Pipeline
from penstock.pipeline.keyed.windows import sliding, tumbling

#: Bids of q7 with the same highest price that are kept.
EQUAL_BIDS = 8

#: Prices that divide bids into three ranks.
RANKS = (10_000, 1_000_000)

#: Bids of an auction that q19 keeps.
BEST = 10


def _hot_items(bids: Pipeline, parallelism: int | None) -> Pipeline:
    """Count by window; all windows with one end close in the same batch, so one look is enough."""
    return bids.aggregate(
        "count",
        by="auction",
        num=F.count(),
        window=sliding("date_time", "10 s", "2 s", lateness=LATENESS_S),
        parallelism=parallelism,
    ).map("hot", _most, grouping="fields", by="window_start", parallelism=parallelism)


def _most(batch: pa.RecordBatch) -> pa.Table:
    counts = pa.Table.from_batches([batch])
    best = counts.group_by("window_start", use_threads=False).aggregate([("num", "max")])
    joined = counts.join(best, "window_start", use_threads=False)
    kept = joined.filter(pc.equal(joined.column("num"), joined.column("num_max")))
    return kept.select(["auction", "num", "window_start", "window_end"])


def _highest(bids: Pipeline, parallelism: int | None) -> Pipeline:
    """Keep the best bids of each window under one key; senders keep their best first."""

    def alone(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column("all", pa.repeat(pa.scalar(0, pa.int8()), batch.num_rows))

    def unpacked(batch: pa.RecordBatch) -> pa.Table:
        rows = _unpacked(batch)
        best = rows.group_by("window_end", use_threads=False).aggregate([("price", "max")])
        rows = rows.join(best, "window_end", use_threads=False)
        kept = rows.filter(pc.equal(rows.column("price"), rows.column("price_max")))
        return kept.select(["auction", "price", "bidder", "date_time", "extra", "window_end"])

    return (
        bids.map("alone", alone)
        .aggregate(
            "best",
            by="all",
            best=F.top(EQUAL_BIDS, "price", keep=["auction", "bidder", "date_time", "extra"]),
            window=tumbling("date_time", "10 s", lateness=LATENESS_S),
            parallelism=1,
        )
        .map("unpacked", unpacked)
    )


def _by_arrival(bids: Pipeline, parallelism: int | None) -> Pipeline:
    """Count by window of the time of arrival, as the source stamped it."""
    return bids.aggregate(
        "count",
        by="bidder",
        bid_count=F.count(),
        window=tumbling("stamp_us", "10 s"),
        parallelism=parallelism,
    )


def _auction_statistics(bids: Pipeline, parallelism: int | None) -> Pipeline:
    low, high = RANKS

    def ranked(batch: pa.RecordBatch) -> pa.RecordBatch:
        price = batch.column("price")
        cheap, dear = pc.less(price, low), pc.greater_equal(price, high)
        middle = pc.invert(pc.or_(cheap, dear))
        ranks = {"rank1": cheap, "rank2": middle, "rank3": dear}
        columns = {name: pc.cast(rank, pa.int64()) for name, rank in ranks.items()}
        day = pc.cast(pc.cast(batch.column("date_time"), pa.date32()), pa.string())
        return pa.record_batch(
            {"auction": batch.column("auction"), "day": day, "price": price, **columns}
        )

    return bids.map("ranked", ranked).aggregate(
        "statistics",
        by=("auction", "day"),
        total_bids=F.count(),
        rank1_bids=F.sum("rank1"),
        rank2_bids=F.sum("rank2"),
        rank3_bids=F.sum("rank3"),
        min_price=F.min("price"),
        max_price=F.max("price"),
        avg_price=F.avg("price"),
        sum_price=F.sum("price"),
        parallelism=parallelism,
    )


def _last_bid(bids: Pipeline, parallelism: int | None) -> Pipeline:
    """Keep the latest bid; of bids at one time, the cheapest."""
    kept = ["price", "channel", "url", "extra"]
    return bids.aggregate(
        "last",
        by=("bidder", "auction"),
        best=F.top(1, "date_time", keep=kept),
        parallelism=parallelism,
    ).map("unpacked", _unpacked)


def _best_bids(bids: Pipeline, parallelism: int | None) -> Pipeline:
    def ranked(batch: pa.RecordBatch) -> pa.Table:
        lengths = np.asarray(pc.list_value_length(batch.column("best")), dtype=np.int64)
        ends = np.cumsum(lengths)
        ranks = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths) + 1
        return _unpacked(batch).append_column("rank_number", pa.array(ranks))

    return bids.aggregate(
        "best",
        by="auction",
        best=F.top(BEST, "price", keep=["bidder", "date_time", "channel", "url", "extra"]),
        parallelism=parallelism,
    ).map("ranked", ranked)


def _unpacked(batch: pa.RecordBatch) -> pa.Table:
    """Make one row of each entry of the lists in ``best``, with the other columns beside it."""
    lists = batch.column("best")
    rows = pa.Table.from_struct_array(pc.list_flatten(lists))
    owners = pc.list_parent_indices(lists)
    for name in reversed([name for name in batch.schema.names if name != "best"]):
        rows = rows.add_column(0, name, batch.column(name).take(owners))
    return rows


_DAY = "date_format(date_time, 'yyyy-MM-dd')"

Q5 = register(
    NexmarkQuery(
        "q5",
        "the auctions with most bids, in windows of 10 s that begin every 2 s",
        ("bid",),
        _hot_items,
        "with counts as (select auction, count(*) as num, window as w from bid group by auction, "
        "window(date_time, '10 seconds', '2 seconds')) "
        "select auction, num, w.start as window_start, w.end as window_end from "
        "(select *, max(num) over (partition by w) as most from counts) where num = most",
        open_until="window_end",
        streaming=Streaming(
            "select auction, count(*) as num, window as w from bid group by auction, "
            "window(date_time, '10 seconds', '2 seconds')",
            after="select auction, num, w.start as window_start, w.end as window_end from "
            "(select *, max(num) over (partition by w) as most from batch) where num = most",
        ),
    )
)
Q7 = register(
    NexmarkQuery(
        "q7",
        "the highest bid, in windows of 10 s",
        ("bid",),
        _highest,
        "select auction, price, bidder, date_time, extra, w.end as window_end from "
        "(select *, max(price) over (partition by w) as most from "
        "(select *, window(date_time, '10 seconds') as w from bid)) where price = most",
        open_until="window_end",
        streaming=Streaming(
            "select best.auction, best.price, best.bidder, best.date_time, best.extra, "
            "w.end as window_end from (select window as w, "
            "max(struct(price, auction, bidder, date_time, extra)) as best from bid "
            "group by window(date_time, '10 seconds'))"
        ),
    )
)
Q12 = register(
    NexmarkQuery(
        "q12",
        "bids of each bidder, in windows of 10 s of the time of arrival",
        ("bid",),
        _by_arrival,
        "select bidder, stamp_us div 10000000 * 10000000 as window_start, "
        "stamp_us div 10000000 * 10000000 + 10000000 as window_end, count(*) as bid_count "
        "from bid group by bidder, stamp_us div 10000000",
        open_until="window_end",
    )
)
Q17 = register(
    NexmarkQuery(
        "q17",
        "statistics of each auction by day",
        ("bid",),
        _auction_statistics,
        f"select auction, {_DAY} as day, count(*) as total_bids, "
        f"count_if(price < {RANKS[0]}) as rank1_bids, "
        f"count_if(price >= {RANKS[0]} and price < {RANKS[1]}) as rank2_bids, "
        f"count_if(price >= {RANKS[1]}) as rank3_bids, min(price) as min_price, "
        "max(price) as max_price, avg(price) as avg_price, sum(price) as sum_price "
        f"from bid group by auction, {_DAY}",
        key=("auction", "day"),
        streaming=Streaming(
            f"select auction, {_DAY} as day, count(*) as total_bids, "
            f"count_if(price < {RANKS[0]}) as rank1_bids, "
            f"count_if(price >= {RANKS[0]} and price < {RANKS[1]}) as rank2_bids, "
            f"count_if(price >= {RANKS[1]}) as rank3_bids, min(price) as min_price, "
            "max(price) as max_price, avg(price) as avg_price, sum(price) as sum_price "
            f"from bid group by auction, {_DAY}",
            "update",
        ),
    )
)
Q18 = register(
    NexmarkQuery(
        "q18",
        "the last bid of each bidder for each auction",
        ("bid",),
        _last_bid,
        "select bidder, auction, date_time, price, channel, url, extra from (select *, "
        "row_number() over (partition by bidder, auction order by date_time desc, price, channel, "
        "url, extra) as r from bid) where r = 1",
        key=("bidder", "auction"),
        streaming=Streaming(
            "select bidder, auction, best.date_time, best.price, best.channel, best.url, "
            "best.extra from (select bidder, auction, "
            "max(struct(date_time, price, channel, url, extra)) as best from bid "
            "group by bidder, auction)",
            "update",
        ),
    )
)
Q19 = register(
    NexmarkQuery(
        "q19",
        f"the {BEST} highest bids of each auction",
        ("bid",),
        _best_bids,
        "select auction, price, bidder, date_time, channel, url, extra, rank_number from "
        "(select *, cast(row_number() over (partition by auction order by price desc, bidder, "
        "date_time, channel, url, extra) as bigint) as rank_number from bid) "
        f"where rank_number <= {BEST}",
        key=("auction", "rank_number"),
    )
)
