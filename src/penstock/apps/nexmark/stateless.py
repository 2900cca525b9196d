"""Queries of NEXMark that look at one bid at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.apps.nexmark.query import NexmarkQuery, Streaming, register
from penstock.pipeline.builder import Pipeline

BID = ["auction", "bidder", "price", "date_time", "extra"]

#: Euros for a dollar, as published.
EUROS = 0.908

#: Channels with a number of their own.
KNOWN_CHANNELS = ("google", "facebook", "baidu", "apple")

#: Rows of the side input of q13.
SIDE_ROWS = 10_000


def _pass_through(bids: Pipeline, _: int | None) -> Pipeline:
    return bids.select("bids", BID)


def _currency(bids: Pipeline, _: int | None) -> Pipeline:
    euros = {"price": pc.field("price") * pa.scalar(EUROS)}
    return bids.select("euros", {**{name: name for name in BID}, **euros})


def _selection(bids: Pipeline, _: int | None) -> Pipeline:
    chosen = _modulo(pc.field("auction"), 123) == 0
    return bids.filter("some", chosen).select("columns", ["auction", "price"])


def _modulo(column: Any, divisor: int) -> Any:
    """Remainder of whole numbers from 0 on, which Arrow has no function for."""
    by = pa.scalar(divisor, pa.int64())
    return pc.subtract(column, pc.multiply(pc.divide(column, by), by))


def _with_day(bids: Pipeline, _: int | None) -> Pipeline:
    def stamped(batch: pa.RecordBatch) -> pa.RecordBatch:
        times = batch.column("date_time")
        days = pc.cast(pc.cast(times, pa.date32()), pa.string())
        kept = batch.select(BID)
        return kept.append_column("day", days).append_column(
            "minute", pc.strftime(times, format="%H:%M")
        )

    return bids.map("stamped", stamped)


def side_input() -> pa.Table:
    """Return the table that q13 looks bids up in."""
    keys = np.arange(SIDE_ROWS)
    return pa.table({"key": keys, "value": pc.cast(pa.array(keys), pa.string())})


def _side(bids: Pipeline, _: int | None) -> Pipeline:
    values = side_input().column("value").combine_chunks()

    def look_up(batch: pa.RecordBatch) -> pa.RecordBatch:
        keys = _modulo(batch.column("auction"), SIDE_ROWS)
        # The table's keys are its row numbers.
        found = values.take(keys)
        kept = batch.select(["auction", "bidder", "price", "date_time"])
        return kept.append_column("value", found)

    return bids.map("look-up", look_up)


def _calculation(bids: Pipeline, _: int | None) -> Pipeline:
    def calculated(batch: pa.RecordBatch) -> pa.RecordBatch | None:
        price = pc.multiply(batch.column("price"), EUROS)
        wanted = pc.and_(pc.greater(price, 1_000_000.0), pc.less(price, 50_000_000.0))
        kept = batch.set_column(2, "price", price).filter(wanted)
        if not kept.num_rows:
            return None
        hour = pc.hour(kept.column("date_time"))
        day = pc.and_(pc.greater_equal(hour, 8), pc.less_equal(hour, 18))
        night = pc.or_(pc.less_equal(hour, 6), pc.greater_equal(hour, 20))
        kind = pc.case_when(pc.make_struct(day, night), "dayTime", "nightTime", "otherTime")
        return pa.record_batch(
            {
                "auction": kept.column("auction"),
                "bidder": kept.column("bidder"),
                "price": kept.column("price"),
                "bid_time_type": kind,
                "date_time": kept.column("date_time"),
                "extra": kept.column("extra"),
                "c_counts": pc.cast(pc.count_substring(kept.column("extra"), "c"), pa.int64()),
            }
        )

    return bids.map("calculated", calculated)


def _channel(bids: Pipeline, _: int | None) -> Pipeline:
    def numbered(batch: pa.RecordBatch) -> pa.RecordBatch:
        lower = pc.utf8_lower(batch.column("channel"))
        known = pc.index_in(lower, pa.array(KNOWN_CHANNELS))
        found = pc.extract_regex(batch.column("url"), r"(?:&|^)channel_id=(?P<n>[^&]*)")
        number = pc.if_else(
            pc.is_valid(known), pc.cast(known, pa.string()), pc.struct_field(found, "n")
        )
        made = pa.record_batch(
            {
                "auction": batch.column("auction"),
                "bidder": batch.column("bidder"),
                "price": batch.column("price"),
                "channel": batch.column("channel"),
                "channel_id": number,
            }
        )
        return made.filter(pc.is_valid(number))

    return bids.map("numbered", numbered)


def _directories(bids: Pipeline, _: int | None) -> Pipeline:
    def split(batch: pa.RecordBatch) -> pa.RecordBatch:
        parts = pc.split_pattern(batch.column("url"), "/")
        directories = {f"dir{n}": pc.list_element(parts, n + 2) for n in (1, 2, 3)}
        kept = batch.select(["auction", "bidder", "price", "channel"])
        for name, column in directories.items():
            kept = kept.append_column(name, column)
        return kept

    return bids.map("split", split)


def _alone(name: str, summary: str, reads: tuple[str, ...], steps: Any, sql: str) -> NexmarkQuery:
    """Return a query that is put to a stream as it is to a table."""
    return NexmarkQuery(name, summary, reads, steps, sql, streaming=Streaming(sql))


_COLUMNS = "auction, bidder, price, date_time, extra"

Q0 = register(
    _alone("q0", "pass bids through", ("bid",), _pass_through, f"select {_COLUMNS} from bid")
)
Q1 = register(
    _alone(
        "q1",
        "convert prices to euros",
        ("bid",),
        _currency,
        f"select auction, bidder, price * cast({EUROS} as double) as price, date_time, extra "
        "from bid",
    )
)
Q2 = register(
    _alone(
        "q2",
        "select bids of certain auctions",
        ("bid",),
        _selection,
        "select auction, price from bid where auction % 123 = 0",
    )
)
Q10 = register(
    _alone(
        "q10",
        "add day and minute, for a log by day",
        ("bid",),
        _with_day,
        f"select {_COLUMNS}, date_format(date_time, 'yyyy-MM-dd') as day, "
        "date_format(date_time, 'HH:mm') as minute from bid",
    )
)
Q13 = register(
    _alone(
        "q13",
        "look bids up in a table that does not change",
        ("bid",),
        _side,
        "select auction, bidder, price, date_time, value from bid join "
        f"(select id as key, cast(id as string) as value from range({SIDE_ROWS})) side "
        f"on auction % {SIDE_ROWS} = side.key",
    )
)
Q14 = register(
    _alone(
        "q14",
        "convert, filter, and work out columns",
        ("bid",),
        _calculation,
        f"select auction, bidder, cast({EUROS} as double) * price as price, "
        "case when hour(date_time) >= 8 and hour(date_time) <= 18 then 'dayTime' "
        "when hour(date_time) <= 6 or hour(date_time) >= 20 then 'nightTime' "
        "else 'otherTime' end as bid_time_type, date_time, extra, "
        "cast(length(extra) - length(replace(extra, 'c', '')) as bigint) as c_counts from bid "
        f"where cast({EUROS} as double) * price > 1000000 "
        f"and cast({EUROS} as double) * price < 50000000",
    )
)
Q21 = register(
    _alone(
        "q21",
        "add the number of the channel",
        ("bid",),
        _channel,
        "select * from (select auction, bidder, price, channel, case lower(channel) "
        "when 'google' then '0' when 'facebook' then '1' when 'baidu' then '2' "
        "when 'apple' then '3' else nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') "
        "end as channel_id from bid) where channel_id is not null",
    )
)
Q22 = register(
    _alone(
        "q22",
        "take directories from the address",
        ("bid",),
        _directories,
        "select auction, bidder, price, channel, split(url, '/')[3] as dir1, "
        "split(url, '/')[4] as dir2, split(url, '/')[5] as dir3 from bid",
    )
)
