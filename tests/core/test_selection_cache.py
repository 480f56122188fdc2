"""The cache of replies: only for the same question, for a limited time, up to a limit."""

import pytest

from llm_common.core import SelectionCache

CLIENT = object()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_reply_is_found_until_it_expires() -> None:
    clock = Clock()
    cache = SelectionCache(ttl_s=10, clock=clock)
    cache.put("k", {"calls": []}, client=CLIENT)
    clock.now = 9.9
    assert cache.get("k", client=CLIENT) == {"calls": []}
    clock.now = 10
    assert cache.get("k", client=CLIENT) is None
    assert len(cache) == 0


def test_the_least_recently_used_replies_are_evicted_first() -> None:
    cache = SelectionCache()
    for number in range(1_000):
        cache.put(str(number), {}, client=CLIENT)
    cache.get("0", client=CLIENT)
    cache.put("new", {}, client=CLIENT)
    keys = ("0", "1", "2", "new")
    kept = [key for key in keys if cache.get(key, client=CLIENT) is not None]
    assert kept == ["0", "2", "new"]
    cache.clear()
    assert len(cache) == 0


def test_a_reply_is_a_copy_each_time() -> None:
    cache = SelectionCache()
    reply = {"calls": [{"args": {"x": [1]}}]}
    cache.put("k", reply, client=CLIENT)
    cache.get("k", client=CLIENT)["calls"].clear()
    reply["calls"].clear()
    assert cache.get("k", client=CLIENT) == {"calls": [{"args": {"x": [1]}}]}


def test_another_client_gets_no_reply() -> None:
    cache = SelectionCache()
    cache.put("k", {}, client=CLIENT)
    assert cache.get("k", client=object()) is None


def test_a_reply_that_is_not_json_is_not_stored() -> None:
    cache = SelectionCache()
    cache.put("k", {"x": object()}, client=CLIENT)
    assert len(cache) == 0


@pytest.mark.parametrize("ttl_s", [0, -1, float("nan")])
def test_an_impossible_ttl_raises(ttl_s: float) -> None:
    with pytest.raises(ValueError, match="must be more than 0"):
        SelectionCache(ttl_s=ttl_s)
