import threading

from llm_common.agents.session.saved import ResultCache
from tests.forking import held_by_a_thread, run_in_child


def test_a_replaced_result_counts_once() -> None:
    cache = ResultCache(max_item_bytes=10, max_bytes=20)
    cache.put(("q", "a"), b"1234567890")
    cache.put(("q", "a"), b"1")
    cache.put(("q", "b"), b"1234567890")
    assert cache.get(("q", "a")) == b"1"
    cache.put(("q", "a"), b"12345678901")
    assert cache.get(("q", "a")) is None
    cache.clear()
    assert len(cache) == 0
    assert not cache.takes(None)


def test_a_child_forked_during_a_change_has_an_empty_cache_f_201() -> None:
    cache = ResultCache(max_item_bytes=10, max_bytes=10)
    cache.put(("q", "a"), b"1234567890")

    def use() -> None:
        assert cache.get(("q", "a")) is None
        cache.put(("q", "b"), b"1234567890")
        assert cache.get(("q", "b")) == b"1234567890"

    with held_by_a_thread(cache._lock):
        assert run_in_child(use) == 0
    assert cache.get(("q", "a")) == b"1234567890"


def test_threads_share_it() -> None:
    cache = ResultCache(max_item_bytes=100, max_bytes=500)

    def work(number: int) -> None:
        for turn in range(300):
            cache.put(("q", str((number + turn) % 20)), b"x" * 100)
            cache.get(("q", str(turn % 20)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache) == 5
