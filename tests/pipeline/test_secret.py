"""Passwords that are named, and read where they are used."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from penstock.common.errors import InvalidValue, NotAllowed
from penstock.pipeline import Kafka, Secret


def test_it_is_read_where_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "password"
    file.write_text("hush hush\r\n")
    monkeypatch.setenv("HUSH", "hush hush")
    for secret in (Secret(file=str(file)), Secret(environment="HUSH")):
        kafka = Kafka("broker:9092", settings={"sasl.password": secret})
        assert kafka.client({})["sasl.password"] == "hush hush"
        sent = pickle.dumps(kafka)
        assert b"hush hush" not in sent
        assert "hush hush" not in repr(kafka) + repr(secret)
        assert pickle.loads(sent).client({})["sasl.password"] == "hush hush"


@pytest.mark.parametrize("given", [{}, {"environment": "A", "file": "b"}])
def test_it_is_in_one_place(given: dict[str, str]) -> None:
    with pytest.raises(InvalidValue, match="one of them, the other left out"):
        Secret(**given)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n")
    with pytest.raises(NotAllowed, match=r"the file .*empty is empty or not set"):
        Secret(file=str(empty)).read()
    with pytest.raises(NotAllowed, match="cannot be read here"):
        Secret(file=str(tmp_path / "no")).read()
    with pytest.raises(NotAllowed, match="environment variable NOT_SET_ANYWHERE is empty"):
        Secret(environment="NOT_SET_ANYWHERE").read()
