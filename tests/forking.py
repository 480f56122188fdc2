"""Children that are forked beside threads, as `os.fork` and `multiprocessing` make them."""

import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


def run_in_child(work: Callable[[], object], *, patience_s: int = 60) -> int:
    """Run some work in a forked child and return its exit code, negative for a child that hung."""
    with warnings.catch_warnings():
        # from Python 3.12 on: of forks beside threads
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(patience_s)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


@contextmanager
def held_by_a_thread(lock: AbstractContextManager[object]) -> Iterator[None]:
    """Have another thread hold a lock during the block."""
    held, end = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        yield
    finally:
        end.set()
        thread.join()
