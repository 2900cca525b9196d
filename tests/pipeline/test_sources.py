"""Sources: the same rows for the same positions, at the rate that their profile says."""

from __future__ import annotations

import math
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.apps import apps
from penstock.apps.backblaze import Drives
from penstock.apps.searches import Searches
from penstock.apps.taobao import Behavior
from penstock.model import InvalidValue, NotAllowed, PenstockError
from penstock.pipeline.sources import readers
from penstock.pipeline.sources.files import Replay, reader_for
from penstock.pipeline.sources.generator import Generator, Keys
from penstock.pipeline.sources.memory import Lines, Rows
from penstock.pipeline.sources.rates import Profile
from penstock.pipeline.sources.readers import Csv, JsonLines, Parquet, TextLines
from penstock.pipeline.sources.text import Text, vocabulary
from penstock.pipeline.sources.zipf import Zipf
from penstock.pipeline.steps import Source

rates = st.floats(0.5, 5000)
lengths = st.floats(0.01, 50)
swings = st.tuples(st.floats(0, 3000), st.floats(0.5, 3000), st.floats(0.1, 90))
profiles = st.one_of(
    rates.map(Profile.constant),
    st.lists(st.tuples(rates | st.just(0.0), lengths), min_size=1, max_size=6)
    .filter(lambda steps: any(rate for rate, _ in steps))
    .map(Profile.steps),
    swings.map(lambda s: Profile.sine(s[0], s[0] + s[1], s[2])),
    swings.map(lambda s: Profile.square(s[0], s[0] + s[1], s[2])),
)
contents = st.one_of(
    st.builds(Keys, st.integers(1, 3000), st.floats(0, 2)),
    st.builds(Text, st.integers(1, 5), st.integers(1, 500), st.floats(0, 2)),
    *(st.floats(0, 2).map(apps.make(name).content) for name in apps.names()),
)


class TestProfile:
    @given(profiles, st.floats(0, 300))
    def test_position_counts_the_tuples_that_are_due(self, profile: Profile, now: float) -> None:
        count = profile.position(now)
        if count:
            assert profile.time_of([count - 1])[0] <= now
        assert profile.time_of([count])[0] > now

    @given(profiles, st.integers(0, 10**9))
    def test_moments_ascend(self, profile: Profile, start: int) -> None:
        moments = profile.time_of(np.arange(start, start + 500))
        assert not np.isnan(moments).any()
        finite = moments[np.isfinite(moments)]
        assert (np.diff(finite) >= 0).all()
        assert np.isfinite(moments[: len(finite)]).all()

    @given(profiles, st.floats(0, 200))
    def test_positions_are_the_integral_of_the_rate(self, profile: Profile, now: float) -> None:
        grid = np.linspace(0, now, 4001)
        middles = (grid[1:] + grid[:-1]) / 2
        sampled = sum(profile.rate(float(t)) for t in middles) * now / 4000
        # A jump of the rate falls inside a cell of the sampling.
        tolerance = 1 + 0.01 * sampled + (now / 4000) * 5000 * len(profile.rates_per_s)
        assert abs(profile.position(now) - sampled) <= tolerance

    @given(profiles)
    def test_an_end_is_where_tuples_cease(self, profile: Profile) -> None:
        if profile.total is None:
            assert np.isfinite(profile.time_of([10**7])).all()
        else:
            assert math.isinf(profile.time_of([profile.total])[0])
            assert profile.position(math.inf) == profile.total == profile.position(1e6)
            if profile.total:
                assert math.isfinite(profile.time_of([profile.total - 1])[0])

    def test_a_sine_makes_its_mean_over_a_period(self) -> None:
        sine = Profile.parse("sine:1000..5000/60")
        assert sine.position(60) == 180_000
        assert sine.position(30) - (sine.position(60) - sine.position(30)) == pytest.approx(
            2 * 2 * 2000 * 60 / (2 * math.pi), abs=2
        )
        assert min(sine.rates_per_s) >= 1000
        assert max(sine.rates_per_s) <= 5000

    @pytest.mark.parametrize(
        ("text", "at", "rate"),
        [
            ("2000", 17.0, 2000),
            ("steps:1800x20,3000x20,4500x20", 25.0, 3000),
            ("steps:1800x20,3000x20,4500x20", 500.0, 4500),
            ("square:1000,4000/30", 14.0, 1000),
            ("square:1000,4000/30", 44.0, 1000),
            ("square:1000,4000/30", 29.0, 4000),
            (" 1.5e3 ", 0.0, 1500),
        ],
    )
    def test_forms(self, text: str, at: float, rate: float) -> None:
        profile = Profile.parse(text)
        assert profile.rate(at) == rate
        assert Profile.parse(str(profile)) == profile
        assert Profile.of(text) == Profile.of(profile) == profile

    @pytest.mark.parametrize(
        "text",
        [
            *(
                "",
                "fast",
                "-5",
                "2000/s",
                "1.2.3",
                "steps:",
                "steps:10",
                "steps:10x",
                "steps:1x2;3x4",
            ),
            *("sine:1..2", "sine:1,2/3", "square:1..2/3", "saw:1..2/3", "file:"),
        ],
    )
    def test_an_unknown_form_says_which_there_are(self, text: str) -> None:
        with pytest.raises(
            InvalidValue, match=r"parameter profile of a source must be one of 2000"
        ):
            Profile.parse(text)

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("0", "above 0 at some time"),
            ("1e999", "finite"),
            ("steps:5x0", "longer than 0 seconds"),
            ("sine:5..1/10", "a low and a higher rate"),
            ("square:1,2/0", "above 0"),
            ("file:no/such.csv", "can be read"),
        ],
    )
    def test_a_value_out_of_range_is_told(self, text: str, problem: str) -> None:
        with pytest.raises(InvalidValue, match=problem):
            Profile.parse(text)

    @pytest.mark.parametrize(
        ("wrong", "problem"),
        [
            ({"starts_s": (0.0, 1.0), "rates_per_s": (1.0,)}, "as many as there are rates"),
            ({"starts_s": (1.0,), "rates_per_s": (1.0,)}, "ascend from 0"),
            ({"starts_s": (0.0, 5.0), "rates_per_s": (1.0, 2.0), "period_s": 4.0}, "last piece, 5"),
        ],
    )
    def test_wrong_pieces(self, wrong: dict[str, Any], problem: str) -> None:
        with pytest.raises(InvalidValue, match=problem):
            Profile(**wrong)

    def test_there_is_no_last_position_without_an_end(self) -> None:
        with pytest.raises(InvalidValue, match="because the profile has no end"):
            Profile.constant(1).position(math.inf)

    def test_files(self, tmp_path: Path) -> None:
        table = tmp_path / "load.csv"
        table.write_text("time_s,rate_per_s\n10,100\n20,0\n30,50\n")
        profile = Profile.parse(f"file:{table}")
        assert [profile.position(t) for t in (10, 15, 20, 30, 32)] == [0, 500, 1000, 1000, 1100]
        listed = tmp_path / "load.json"
        listed.write_text('[{"time_s": 30, "rate_per_s": 50}, {"time_s": 10, "rate_per_s": 100},')
        with pytest.raises(InvalidValue, match="JSON"):
            Profile.replayed(listed)
        listed.write_text(listed.read_text() + '{"time_s": 20, "rate_per_s": 0}]')
        assert Profile.replayed(listed) == profile

    @pytest.mark.parametrize(
        ("name", "content", "problem"),
        [
            ("a.csv", "", "at least one"),
            ("a.csv", "time,rate\n1,2\n", "row 1 .* time_s and rate_per_s"),
            ("a.csv", "time_s,rate_per_s\n1,2\n2,x\n", "row 2"),
            ("a.csv", "time_s,rate_per_s\n-1,2\n", "time_s in row 1"),
            ("a.csv", "time_s,rate_per_s\n1,-2\n", "at least 0"),
            ("a.csv", "time_s,rate_per_s\n1,2\n1,3\n", "ascend from 0"),
            ("a.json", "{}", "list of objects"),
            ("a.json", "[3]", "row 1"),
        ],
    )
    def test_wrong_files(self, tmp_path: Path, name: str, content: str, problem: str) -> None:
        (tmp_path / name).write_text(content)
        with pytest.raises(InvalidValue, match=problem):
            Profile.replayed(tmp_path / name)


class TestZipf:
    @given(st.integers(1, 5000), st.floats(0, 2), st.integers(0, 2**32))
    def test_ranks_are_the_inverse_of_the_distribution(
        self, keys: int, coefficient: float, seed: int
    ) -> None:
        uniform = np.random.default_rng(seed).random(500)
        law = Zipf(keys, coefficient)
        ends = np.cumsum(law.probabilities)
        ranks = law.ranks(uniform)
        assert (uniform <= ends[ranks] + 1e-9).all()
        assert (uniform >= ends[ranks] - law.probabilities[ranks] - 1e-9).all()

    @pytest.mark.parametrize("coefficient", [0.0, 0.4, 1.0, 2.0])
    def test_keys_come_as_often_as_they_should(self, coefficient: float) -> None:
        rows = 100_000
        drawn = Generator(1, Keys(50, coefficient), seed=4, rows=rows).read(0, rows)
        seen = np.bincount(np.asarray(drawn.column("key")), minlength=50)
        wanted = Zipf(50, coefficient).probabilities * rows
        chi_squared = ((seen - wanted) ** 2 / wanted).sum()
        assert chi_squared < 100  # 49 degrees of freedom

    @pytest.mark.parametrize(("keys", "coefficient"), [(0, 1.0), (True, 1.0), (5, -0.1), (5, 2.1)])
    def test_out_of_range(self, keys: int, coefficient: float) -> None:
        with pytest.raises(InvalidValue):
            Zipf(keys, coefficient)


class TestGenerator:
    @given(profiles, contents, st.integers(), st.integers(0, 10**7), st.data())
    def test_rows_do_not_depend_on_the_cut(
        self, profile: Profile, content: Any, seed: int, start: int, data: st.DataObject
    ) -> None:
        end = profile.total
        start = start if end is None else min(start, max(end - 1, 0))
        stop = start + 60 if end is None else min(start + 60, end)
        middle = data.draw(st.integers(start, stop))
        made = Generator(profile, content, seed)
        whole = made.read(start, stop)
        parts = pa.concat_tables([made.read(start, middle), made.read(middle, stop)])
        assert whole.equals(parts)
        assert whole.schema.equals(made.schema)
        assert pickle.loads(pickle.dumps(made)).read(start, stop).equals(whole)

    @pytest.mark.parametrize("name", apps.names())
    def test_seeds_differ_and_repeat(self, name: str) -> None:
        app = apps.make(name)
        first, again, other = (app.source(seed=s).read(5, 500) for s in (1, 1, 2))
        assert first.equals(again)
        assert not first.equals(other)

    @pytest.mark.parametrize("name", apps.names())
    def test_it_is_small_when_sent(self, name: str) -> None:
        made = apps.make(name).source("sine:1000..5000/60")
        made.read(0, 1000)
        assert len(pickle.dumps(made)) < 20_000
        cloudpickle = pytest.importorskip("pyspark.cloudpickle")
        assert pickle.loads(cloudpickle.dumps(made)).read(3, 9).equals(made.read(3, 9))

    @given(profiles, st.floats(0, 100))
    def test_what_is_available_is_stamped_up_to_now(self, profile: Profile, now: float) -> None:
        made = Generator(profile, Keys(3))
        reached = made.available(now)
        low = max(reached - 50, 0)
        stamps = np.asarray(made.read(low, reached).column("stamp_us"))
        assert (stamps <= now * 1e6 + 1).all()
        assert (np.diff(stamps) >= 0).all()
        assert made.available(now + 1) >= reached

    def test_a_million_rows_take_well_under_a_second(self) -> None:
        made = Generator("sine:1000..5000/60", Keys(100_000, 1.0))
        made.read(0, 10)
        begin = time.process_time()
        made.read(0, 1_000_000)
        assert time.process_time() - begin < 1.0

    def test_ends(self) -> None:
        assert Generator(10).end is None
        assert Generator(10, rows=7).end == 7
        assert Generator("steps:10x2,0x1").end == 20
        assert Generator("steps:10x2,0x1", rows=7).end == 7
        assert Generator(10, rows=0).read(0, 0).num_rows == 0
        with pytest.raises(InvalidValue, match="up to the end, 7"):
            Generator(10, rows=7).read(0, 8)
        with pytest.raises(InvalidValue, match="ascending"):
            Generator(10).read(5, 3)

    @pytest.mark.parametrize(
        "wrong", [{"rows": -1}, {"rows": 1.5}, {"seed": "x"}, {"profile": None}]
    )
    def test_wrong_values(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(InvalidValue):
            Generator(**{"profile": 10, **wrong})

    def test_words_are_different(self) -> None:
        words = vocabulary(20_000, 3).to_pylist()
        assert len(set(words)) == 20_000
        assert words != vocabulary(20_000, 4).to_pylist()
        assert all(word.isalpha() and word.islower() for word in words)

    @pytest.mark.parametrize("content", [Text, Behavior, Searches, Drives])
    def test_wrong_contents(self, content: Any) -> None:
        whole = [name for name, kind in content.__annotations__.items() if kind == "int"]
        for name in [name for name in whole if not name.endswith("seed")]:
            with pytest.raises(InvalidValue, match=f"parameter {name} of {content.__name__}"):
                content(**{name: 0})
        with pytest.raises(InvalidValue, match="coefficient"):
            content(zipf=-1.0)


class TestMemory:
    def test_they_are_sources(self) -> None:
        sources = (
            Lines(["a"]),
            Rows(pa.table({"x": [1]})),
            Generator(1),
            apps.make("topn").source(),
        )
        assert all(isinstance(source, Source) for source in sources)

    def test_lines(self) -> None:
        lines = Lines(["to be", "or not", "to be"])
        assert (lines.end, lines.available(0.0)) == (3, 3)
        assert lines.read(1, 3).column("line").to_pylist() == ["or not", "to be"]
        assert Lines([]).read(0, 0).schema.equals(lines.schema)
        with pytest.raises(InvalidValue, match="sequence of strings"):
            _ = Lines("to be").end

    def test_rows(self) -> None:
        rows = Rows(pa.table({"x": [1, 2, 3], "at": [0, 5, 9]}), stamp="at")
        assert rows.read(0, 1).to_pylist() == [{"x": 1, "at": 0}]
        with pytest.raises(InvalidValue, match="one of x"):
            Rows(pa.table({"x": [1]}), stamp="at")
        with pytest.raises(InvalidValue, match=r"pyarrow\.Table"):
            Rows([1, 2])
        with pytest.raises(InvalidValue, match="up to the end, 3"):
            rows.read(0, 4)


class TestReplay:
    @given(data=st.data())
    def test_any_range_of_lines(self, data: st.DataObject, tmp_path_factory: Any) -> None:
        folder = tmp_path_factory.mktemp("lines")
        letters = st.text("ab \u00e9", max_size=12)
        files = data.draw(st.lists(st.lists(letters, max_size=40), min_size=1, max_size=3))
        for number, lines in enumerate(files):
            # A last line without an end counts, unless it is empty.
            ended: bool = data.draw(st.booleans())
            ending = "\n" if lines and (ended or not lines[-1]) else ""
            (folder / f"{number}.txt").write_text("\n".join(lines) + ending, encoding="utf-8")
        everything = [line for lines in files for line in lines]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(readers, "LINES_PER_MARK", data.draw(st.integers(1, 9)))
            patch.setattr(readers, "SCAN_BYTES", data.draw(st.integers(1, 50)))
            source = Replay(folder, TextLines(), 100)
            assert source.end == len(everything)
            start = data.draw(st.integers(0, len(everything)))
            stop = data.draw(st.integers(start, len(everything)))
            assert source.read(start, stop).column("line").to_pylist() == everything[start:stop]

    def test_speed_end_and_pickle(self, tmp_path: Path) -> None:
        file = tmp_path / "a.txt"
        file.write_bytes(b"one\r\ntwo\nthree \xff")
        source = Replay(file, TextLines(), "steps:1x1,100x1")
        assert [source.available(t) for t in (0, 1, 1.02, 9)] == [0, 1, 3, 3]
        rows = pickle.loads(pickle.dumps(source)).read(0, 3)
        assert rows.column("line").to_pylist() == ["one", "two", "three \ufffd"]
        assert rows.column("stamp_us").to_pylist() == [1_000_000, 1_010_000, 1_020_000]
        assert rows.schema.equals(source.schema)
        assert Replay(file, TextLines(), rows=2).end == 2

    @pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
    def test_rows_of_columns(self, tmp_path: Path, kind: str) -> None:
        table = pa.table({"b": ["x", None, "z"] * 20, "extra": [0.5] * 60, "a": range(60)})
        schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.int64())])
        path = tmp_path / f"rows.{kind}"
        if kind == "parquet":
            pq.write_table(table, path, row_group_size=7)
        else:
            between = "\t" if kind == "tsv" else ","
            lines = [
                between.join(str("" if v is None else v) for v in r.values())
                for r in table.to_pylist()
            ]
            path.write_text("\n".join([between.join(table.column_names), *lines]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(readers, "LINES_PER_MARK", 7)
            source = Replay(path, reader_for(path, schema, ("a", "b")), 10).checked()
            rows = source.read(5, 33)
        assert source.end == 60
        assert rows.column("a").to_pylist() == list(range(5, 33))
        assert rows.column("b").to_pylist() == table.column("b").to_pylist()[5:33]
        assert rows.column("c").null_count == 28
        assert rows.schema.equals(source.schema)

    def test_a_changed_file_is_told(self, tmp_path: Path) -> None:
        file = tmp_path / "a.txt"
        file.write_text("one\ntwo\nthree\n")
        source = Replay(file, TextLines()).checked()
        file.write_text("one\n")
        with pytest.raises(PenstockError, match="changed while being replayed"):
            source.read(0, 3)

    @pytest.mark.parametrize("name", ["none.csv", "*.csv", "empty"])
    def test_nothing_to_read(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "empty").mkdir()
        with pytest.raises(InvalidValue, match="a file, a folder with files, or a pattern"):
            Replay(tmp_path / name, TextLines()).checked()

    @pytest.mark.parametrize(
        ("reader", "content", "problem"),
        [
            (Csv(pa.schema([("a", pa.int64())]), ("a",)), b"", "empty"),
            (Csv(pa.schema([("a", pa.int64())]), ("a",)), b"b\n1\n", "without a"),
            (Csv(pa.schema([("a", pa.int64())]), ("a",)), b"a\nx\n", "columns a int64.*'x'"),
            (Parquet(pa.schema([("a", pa.int64())])), b"a\n1\n", "a Parquet file"),
            (JsonLines(pa.schema([("a", pa.int64())])), b'{"a": "x"}\n', "with a int64"),
            (JsonLines(pa.schema([("a", pa.int64())]), ("a",)), b'{"b": 1}\n', "without a"),
            (JsonLines(pa.schema([("a", pa.int64())])), b"[1]\n", "one JSON object a line"),
        ],
    )
    def test_wrong_files(self, tmp_path: Path, reader: Any, content: bytes, problem: str) -> None:
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(InvalidValue, match=problem):
            Replay(tmp_path / "file", reader).checked()

    def test_json_has_nested_columns_times_and_gaps(self, tmp_path: Path) -> None:
        file = tmp_path / "rows.jsonl"
        lines = [
            '{"t": "2024-05-01T10:00:00Z", "who": {"id": 7, "x": 1}, "other": [1]}',
            '{"who": null, "t": null}',
            '{"who": {"id": 8}}',
        ]
        file.write_text("\n".join(lines), encoding="utf-8")
        moment = pa.timestamp("us", "UTC")
        schema = pa.schema([("t", moment), ("who", pa.struct([("id", pa.int64())]))])
        source = Replay(file, JsonLines(schema), 1e6).checked()
        assert source.end == 3
        who = source.read(0, 3).column("who").to_pylist()
        assert who == [{"id": 7}, None, {"id": 8}]
        first = source.read(0, 1).column("t").cast(pa.int64()).to_pylist()
        assert first == [1_714_557_600_000_000]
        assert source.read(2, 3).column("t").to_pylist() == [None]

    def test_json_with_empty_lines_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "rows.jsonl").write_text('{"a": 1}\n\n{"a": 2}\n', encoding="utf-8")
        source = Replay(tmp_path / "rows.jsonl", JsonLines(pa.schema([("a", pa.int64())])))
        with pytest.raises(InvalidValue, match="no empty lines"):
            source.read(0, 3)

    def test_compressed_files_and_missing_columns_are_told(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv.gz").write_bytes(b"")
        with pytest.raises(NotAllowed, match=r"compressed file .*; unpack it"):
            Replay(tmp_path, TextLines()).checked()
        pq.write_table(pa.table({"b": [1]}), tmp_path / "b.parquet")
        with pytest.raises(InvalidValue, match=r"columns a, got .*without"):
            Replay(
                tmp_path / "b.parquet", Parquet(pa.schema([("a", pa.int64())]), ("a",))
            ).checked()
