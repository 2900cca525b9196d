"""The contract of a router, as checks that can be run one by one."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.common.arrays import IntArray
from penstock.model import InvalidValue
from penstock.strategies.route import Destination, Router, hash_keys
from penstock.testing.broken import ContractBroken, require, require_described

Check = Callable[[Router], None]

#: Batches that the generated check draws.
EXAMPLES = 30

#: The busiest of 8 instances may get this many times the mean of 20,000 different keys.
UNEVEN = 1.15

WORDS = ("to", "be", "or", "not", "to", "be", "", "Überraschung", "日本", "𝄞", "a much longer word")


def check_router(router: Router) -> None:
    """Run every check of `ROUTER_CHECKS`.

    Raises
    ------
    ContractBroken
        On the first promise that is not kept.
    """
    for check in ROUTER_CHECKS.values():
        check(router)


def check_describes_itself(router: Router) -> None:
    """Check that it has a name, a summary, an origin and says how many places a key may be in."""
    require(isinstance(router, Router), f"{router!r} lacks a member of the protocol")
    require_described(router)
    choices = router.choices
    require(choices is None or choices >= 1, f"choices must be at least 1 or None, is {choices}")


def check_same_batch_same_way(router: Router) -> None:
    """Check that a batch routed twice goes the same way, and that nothing it is given changes."""
    keys = np.arange(5000) % 700
    loads = np.arange(7.0)
    to = Destination(7, loads=loads, hot=frozenset(hash_keys([3]).tolist()), position=11)
    one, two = _route(router, keys, to), _route(router, keys, to)
    require((one == two).all(), "a batch routed twice goes two ways")
    require((loads == np.arange(7.0)).all(), "the loads it was given were changed")
    require((keys == np.arange(5000) % 700).all(), "the keys it was given were changed")


def check_few_places(router: Router) -> None:
    """Check that a key reaches no more instances than promised, over many batches."""
    if router.choices is None:
        return
    reached: dict[int, set[int]] = {}
    to = Destination(9, loads=np.zeros(9))
    for batch in range(20):
        keys = np.random.default_rng(batch).integers(0, 300, 500)
        went = _route(router, keys, to)
        for key, instance in zip(keys.tolist(), went.tolist(), strict=True):
            reached.setdefault(key, set()).add(instance)
        to = _following(to, went)
    worst = max(reached, key=lambda key: len(reached[key]))
    require(
        len(reached[worst]) <= router.choices,
        f"key {worst} went to {sorted(reached[worst])}, promised are {router.choices}",
    )


def check_spreads(router: Router) -> None:
    """Check that many different keys load all instances about equally."""
    for keys in (np.arange(20_000), [f"user-{i}" for i in range(20_000)]):
        held = np.bincount(_route(router, keys, Destination(8)), minlength=8)
        require(held.max() <= UNEVEN * held.mean(), f"keys are distributed {held.tolist()}")


def check_one_by_one(router: Router) -> None:
    """Check that a batch goes where its tuples would have gone one by one.

    The batch is small: routers that look at loads may do so less often in a large one.
    """
    keys = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9] * 4
    to = Destination(4, loads=np.array([2.0, 0.0, 5.0, 1.0]))
    whole = _route(router, keys, to)
    for place, key in enumerate(keys):
        single = _route(router, [key], to)
        require(
            single[0] == whole[place],
            f"tuple {place} goes to {whole[place]} in a batch and to {single[0]} alone",
        )
        to = _following(to, single)


def check_any_form_of_key(router: Router) -> None:
    """Check that a key goes to the same place however it is held."""
    to = Destination(5)
    numbers = [7, 0, 255, 3, 7]
    _same(router, to, [np.array(numbers, dtype=t) for t in ("u1", "i2", ">i4", "i8", "u8", "O")])
    _same(router, to, [list(WORDS), np.array(WORDS), np.array(WORDS, dtype=object)])
    _same(router, to, [list(WORDS), np.array([word.encode() for word in WORDS])])
    if importlib.util.find_spec("pyarrow") is None:
        return
    arrow: Any = importlib.import_module("pyarrow")
    text = arrow.array(WORDS)
    _same(
        router,
        to,
        [
            list(WORDS),
            text,
            text.cast(arrow.large_string()),
            text.cast(arrow.binary()),
            text.dictionary_encode(),
            arrow.concat_arrays([arrow.array(["x"]), text]).slice(1),
            arrow.chunked_array([text.slice(0, 4), text.slice(4)]),
        ],
    )
    counted = [arrow.array(numbers, kind) for kind in (arrow.uint8(), arrow.int64())]
    _same(router, to, [numbers, *counted, counted[1].dictionary_encode()])


def check_hashed_keys(router: Router) -> None:
    """Check that keys and their hashes are routed alike."""
    to = Destination(6)
    same = _route(router, list(WORDS), to) == router.route_hashes(hash_keys(list(WORDS)), to)
    require(bool(same.all()), "keys and their hashes go to different instances")


def check_empty_batch(router: Router) -> None:
    """Check that an empty batch gives an empty answer."""
    nothing: tuple[Any, ...] = ([], np.empty(0, dtype=np.int64), np.empty(0, dtype="U3"))
    for keys in nothing:
        _route(router, keys, Destination(3))


def check_one_instance(router: Router) -> None:
    """Check that a single instance gets everything."""
    hot = frozenset(hash_keys(["to"]).tolist())
    _route(router, list(WORDS), Destination(1, loads=np.ones(1), hot=hot))


def check_nulls(router: Router) -> None:
    """Check that nulls are one key, like any other."""
    if router.choices == 1:
        for keys in ([None, 1, None, None], ["a", None, None]):
            went = _route(router, keys, Destination(64))
            nulls = {int(went[i]) for i, key in enumerate(keys) if key is None}
            require(len(nulls) == 1, f"nulls go to {sorted(nulls)}")
    _route(router, [None, None], Destination(2))


def check_strange_keys(router: Router) -> None:
    """Check that mixtures, and objects without a hash of ours, are refused with a sentence."""
    for keys in ([1, "one"], [0.5, "half"], [[1], [2, 3]]):
        try:
            router.route(keys, Destination(2))
        except InvalidValue:
            continue
        raise ContractBroken(f"{keys!r} must be refused")


def check_generated_keys(router: Router) -> None:
    """Check that hypothesis finds no keys that go nowhere, or two ways."""
    from hypothesis import given, settings
    from hypothesis import strategies as st

    numbers = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40)
    words = st.lists(st.text(max_size=20), max_size=40)

    @settings(max_examples=EXAMPLES, deadline=None, database=None)
    @given(numbers | words, st.integers(1, 12), st.integers(0, 100))
    def run(keys: list[Any], instances: int, position: int) -> None:
        to = Destination(instances, position=position)
        went = _route(router, keys, to)
        require((went == _route(router, keys, to)).all(), "a batch routed twice goes two ways")
        if router.choices == 1:
            for key, instance in zip(keys, went.tolist(), strict=True):
                alone = int(_route(router, [key], to)[0])
                require(alone == instance, f"{key!r} goes to {instance} and to {alone}")

    run()


def _route(router: Router, keys: Any, to: Destination) -> IntArray:
    """Route a batch and check what must hold of any."""
    went = router.route(keys, to)
    require(
        isinstance(went, np.ndarray) and went.shape == (len(keys),),
        f"{len(keys)} keys need as many instances, got {went!r}",
    )
    require(np.issubdtype(went.dtype, np.integer), f"instances must be integers, are {went.dtype}")
    if len(went):
        low, high = int(went.min()), int(went.max())
        require(
            low >= 0 and high < to.instances,
            f"instances are from 0 to {to.instances - 1}, keys went to {low} to {high}",
        )
    return went


def _following(to: Destination, went: IntArray) -> Destination:
    """Count what was sent, as the sender does between two batches."""
    before = np.zeros(to.instances) if to.loads is None else to.loads
    loads = before + np.bincount(went, minlength=to.instances)
    return replace(to, loads=loads, position=to.position + len(went))


def _same(router: Router, to: Destination, forms: Sequence[Any]) -> None:
    first = _route(router, forms[0], to)
    for form in forms[1:]:
        kind = f"{type(form).__name__} of {getattr(form, 'type', getattr(form, 'dtype', ''))}"
        require((_route(router, form, to) == first).all(), f"keys in a {kind} go elsewhere")


#: Every check by its name.
ROUTER_CHECKS: Mapping[str, Check] = {
    "describes itself": check_describes_itself,
    "same batch, same way": check_same_batch_same_way,
    "few places for a key": check_few_places,
    "spreads": check_spreads,
    "one by one": check_one_by_one,
    "any form of key": check_any_form_of_key,
    "hashed keys": check_hashed_keys,
    "empty batch": check_empty_batch,
    "one instance": check_one_instance,
    "nulls": check_nulls,
    "strange keys": check_strange_keys,
    "generated keys": check_generated_keys,
}
