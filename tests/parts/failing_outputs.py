"""Outputs of commands, as these tools print them: what failed among much that did not."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Output:
    """The output of one command.

    Attributes:
        tool: The tool.
        text: The output.
        wanted: What a reader has to see of the failure. "" if nothing failed.
    """

    tool: str
    text: str
    wanted: str = ""


# Lines of a tool at work, with a number and the same number below 60.
_NOISE: Final = {
    "pytest": "tests/test_orders.py::test_case_{number} PASSED                    [{small:3}%]\n",
    "go": "=== RUN   TestCase{number}\n--- PASS: TestCase{number} (0.00s)\n",
    "cargo": "   Compiling crate-{number} v0.1.{number}\n",
    "gcc": "[{number}/800] Building CXX object src/CMakeFiles/app.dir/unit_{number}.cpp.o\n",
    "npm": "npm http fetch GET 200 https://registry.example/package-{number} {small}ms\n",
    "maven": "[INFO] Copying resource {number} of module core-{small}\n",
    "docker": "#{small} {number}.1 Get:{number} http://deb.example stable/main pkg{number}\n",
    "shell": "copied file_{number}.txt to /backup/file_{number}.txt\n",
    "jest": "  \u2713 renders case {number} ({small} ms)\n",
    "app": "2026-03-05 10:{small:02}:{small:02} INFO worker: handled job {number}\n",
}

_FAILURES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "pytest": (
        (
            (
                "____ test_total ____\n\n    def test_total():\n>       assert total([1, 2]) == 4\n"
                "E       assert 3 == 4\n\ntests/test_orders.py:12: AssertionError\n"
            ),
            "assert 3 == 4",
        ),
        ("FAILED tests/test_api.py::test_login - KeyError: 'token'\n", "KeyError: 'token'"),
        (
            "ERROR tests/test_db.py - sqlalchemy.exc.OperationalError: no such table: users\n",
            "no such table: users",
        ),
        (
            "tests/test_orders.py::test_refund FAILED                      [ 42%]\n",
            "test_refund FAILED",
        ),
    ),
    "go": (
        (
            "=== RUN   TestSum\n    sum_test.go:12: got 3, want 4\n--- FAIL: TestSum (0.00s)\n",
            "got 3, want 4",
        ),
        (
            (
                "panic: runtime error: index out of range [5] with length 3\n\ngoroutine 7 [running]:\n"
                "main.pick(...)\n\t/app/pick.go:9 +0x1d\n"
            ),
            "index out of range [5]",
        ),
        (
            "./main.go:14:2: undefined: frobnicate\nFAIL\texample/app [build failed]\n",
            "build failed",
        ),
        ("FAIL\texample/app/store\t0.412s\n", "example/app/store"),
    ),
    "cargo": (
        (
            (
                "error[E0382]: borrow of moved value: `x`\n  --> src/main.rs:7:20\n   |\n"
                '7  |     println!("{x}");\n'
            ),
            "src/main.rs:7:20",
        ),
        (
            'error: could not compile `app` (bin "app") due to 1 previous error\n',
            "could not compile",
        ),
        (
            (
                "thread 'store::tests::reads' panicked at src/store.rs:41:9:\nassertion `left == right` "
                "failed\n  left: 2\n right: 3\n"
            ),
            "src/store.rs:41:9",
        ),
        ("test store::tests::writes ... FAILED\n", "store::tests::writes ... FAILED"),
    ),
    "gcc": (
        ("src/unit_9.cpp:17:5: error: 'foo' was not declared in this scope\n", "was not declared"),
        (
            "/usr/bin/ld: app.o: undefined reference to `draw(int)'\n",
            "undefined reference to `draw",
        ),
        ("make: *** [Makefile:14: app] Error 2\n", "Makefile:14: app"),
        ("ninja: build stopped: subcommand failed.\n", "subcommand failed"),
    ),
    "npm": (
        (
            "npm ERR! code ELIFECYCLE\nnpm ERR! errno 1\nnpm ERR! app@1.0.0 build: `tsc`\n",
            "ELIFECYCLE",
        ),
        (
            "npm error code E404\nnpm error 404 Not Found - GET https://r.example/left\n",
            "404 Not Found",
        ),
        ("src/app.ts(12,5): error TS2304: Cannot find name 'Foo'.\n", "Cannot find name 'Foo'"),
        (
            (
                "Error: Cannot find module 'express'\nRequire stack:\n- /app/server.js\n    at Module._load "
                "(node:internal:1)\n"
            ),
            "Cannot find module 'express'",
        ),
    ),
    "maven": (
        ("[ERROR] /src/Main.java:[12,5] cannot find symbol\n", "cannot find symbol"),
        ("[INFO] BUILD FAILURE\n", "BUILD FAILURE"),
        (
            (
                'Exception in thread "main" java.lang.NullPointerException: name is null\n'
                "\tat app.Main.run(Main.java:9)\n"
            ),
            "name is null",
        ),
        ("Caused by: java.sql.SQLException: connection is closed\n", "connection is closed"),
    ),
    "docker": (
        (
            (
                'E: Unable to locate package libfoo\n------\nERROR: failed to solve: process "/bin/sh -c '
                'apt-get install libfoo" did not complete successfully: exit code: 100\n'
            ),
            "exit code: 100",
        ),
        ("Error response from daemon: pull access denied for private/app\n", "pull access denied"),
        ("#9 4.2 /bin/sh: 1: make: not found\n#9 ERROR: exit code: 127\n", "exit code: 127"),
        (
            "fatal: unable to access 'https://git.example/a/': Could not resolve host\n",
            "resolve host",
        ),
    ),
    "shell": (
        ("cp: cannot stat '/data/a.csv': No such file or directory\n", "/data/a.csv"),
        ("bash: jq: command not found\n", "jq: command not found"),
        ("rm: cannot remove '/srv/x': Permission denied\n", "/srv/x"),
        ("Segmentation fault (core dumped)\n", "Segmentation fault"),
    ),
    "jest": (
        ("  \u2715 rejects an empty cart (5 ms)\n", "rejects an empty cart"),
        (
            (
                "  \u25cf Cart \u203a total\n\n    expect(received).toBe(expected)\n\n    Expected: 4\n"
                "    Received: 3\n\nTests:       1 failed, 213 passed, 214 total\n"
            ),
            "1 failed, 213 passed",
        ),
        ("not ok 17 - reads the file\n", "not ok 17"),
        (
            "  3 failing\n\n  1) cart\n\n      AssertionError [ERR_ASSERTION]: 3 is not 4\n",
            "3 is not 4",
        ),
        ("src/cart.js\n  2:10  error  'total' is never used  no-unused\n", "'total' is never used"),
        ("  \u25cf Cart \u203a reads the owner\n\n    no owner was given\n", "reads the owner"),
        (
            "TypeError: cart.total is not a function\n    at Object.<anonymous> (cart.js:3:9)\n",
            "cart.js:3",
        ),
    ),
    "app": (
        (
            (
                'Traceback (most recent call last):\n  File "/app/a.py", line 10, in <module>\n    main()\n'
                "  File \"/app/b.py\", line 22, in main\n    raise KeyError('user_id')\nKeyError: 'user_id'\n"
            ),
            "KeyError: 'user_id'",
        ),
        (
            (
                'Traceback (most recent call last):\n  File "/app/a.py", line 3, in take\n'
                "    raise NotReady(name)\napp.states.NotReady: the queue is closed\n"
            ),
            "the queue is closed",
        ),
        ("2026-03-05 10:09:01 ERROR worker: job 71 lost its lease\n", "lost its lease"),
        ("2026-03-05 10:09:01 CRITICAL db: disk is full\n", "disk is full"),
        ("[error] /src/Main.scala:6: an argument is missing\n", "an argument is missing"),
        ("Failed to connect to the bus: the host is down\n", "the host is down"),
        (
            'time="2026-03-05T10:09:01Z" level=error msg="queue is gone" queue=mail\n',
            "queue is gone",
        ),
    ),
}

_SUCCESSES: Final = (
    "0 errors, 0 warnings\n",
    "Found 0 errors in 212 files\n",
    "no errors found\n",
    "reading src/error_handler.py ... ok\n",
    "tests/test_errors.py::test_error_is_raised PASSED [ 12%]\n",
    "=== 812 passed, 3 skipped in 41.20s ===\n",
    "test error::tests::formats_error ... ok\n",
    "[INFO] Tests run: 214, Failures: 0, Errors: 0, Skipped: 0\n",
    "[INFO] BUILD SUCCESS\n",
    "Tests:       214 passed, 214 total\n",
    "\u2713 shows the error page (12 ms)\n",
    "ok      example/app/errors   0.412s\n",
    "--- PASS: TestFailureMode (0.00s)\n",
    "Installed error-stack-parser@2.1.4\n",
    "Compiling failure v0.1.8\n",
    "Compiling thiserror v1.0.69\n",
    "Finished without errors\n",
    "failed: 0\n",
    "ok: 12  changed: 3  unreachable: 0  failed: 0\n",
    "errors=0 warnings=2\n",
    "exit code 0\n",
    "process exited with status 0\n",
    "0 failed, 812 passed\n",
    "downloaded exceptions-1.0.tar.gz\n",
    "created docs/errors/not_found.md\n",
    "GET /errors 200 12ms\n",
    "INFO retries: no failures since the last start\n",
    "All checks passed!\n",
    "Success: no issues found in 284 source files\n",
    "class ErrorPage registered\n",
    "indexed table failure_modes with 40 rows\n",
    "fallback for missing icons is enabled\n",
    "default settings loaded\n",
    "panic mode is off\n",
    "the exception list has 4 entries\n",
    "zero errors reported\n",
    "PASS src/error.test.ts\n",
    "compiled successfully in 3.2 s\n",
    "kernel: fault tolerance active\n",
    "audit: 0 vulnerabilities, no failed checks\n",
    "GET /orders returned 200 in 12 ms\n",
    "no tests failed\n",
    "0 jobs failed\n",
    "test error: shows the page ... ok\n",
    "\u2713 a build failed page is shown\n",
    "job 71 ended with status 3 of 9\n",
    "tests/test_orders.py::test_refund XFAIL (known error: bug 12)   [ 95%]\n",
    "SKIPPED [1] tests/test_db.py:3: fatal: no server\n",
    "test_refund (tests.Orders) ... skipped 'error: no server'\n",
    "not ok 3 - reads the file # TODO error: not written\n",
    "\u2716 2 problems (0 errors, 2 warnings)\n",
    "-rw-r--r-- 1 ann adm 2416 Apr 27 2026 error.h\n",
)


def _noise(tool: str, numbers: range) -> str:
    return "".join(_NOISE[tool].format(number=number, small=number % 60) for number in numbers)


def _failing() -> Iterator[Output]:
    """Yield outputs of ten tools, four or more of each, with the failure in the midst."""
    for tool, failures in _FAILURES.items():
        for number, (failure, wanted) in enumerate(failures):
            before = _noise(tool, range(150 + 90 * number))
            yield Output(tool, before + failure + _noise(tool, range(1_000, 1_300)), wanted)


def _succeeding() -> Iterator[Output]:
    """Yield outputs in which nothing failed, although words in them speak of failures."""
    tools = list(_NOISE)
    for number, line in enumerate(_SUCCESSES):
        tool = tools[number % len(tools)]
        yield Output(tool, _noise(tool, range(200)) + line + _noise(tool, range(300, 500)))


FAILING: Final = tuple(_failing())
SUCCEEDING: Final = tuple(_succeeding())
