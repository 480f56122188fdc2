"""A server process on loopback that speaks S3 and keeps conditional puts: moto's, one request at a time.

One at a time, since its own command answers in threads and looks at a condition and puts in two
steps, between which another request may come. With `--ignore-conditions` it puts whatever the
condition says, as some servers do.
"""

import logging
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.request import Request, urlopen

_START_S = 30
_END_S = 5
_ANYBODY = (
    "AWS4-HMAC-SHA256 Credential=test/20250101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
)


@contextmanager
def s3_server(*arguments: str) -> Iterator[str]:
    """The address of a new, empty server, which ends with the block."""
    command = [sys.executable, "-m", "tests.s3_server", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            assert port, "the server did not start"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def make_bucket(endpoint: str, name: str) -> None:
    request = Request(f"{endpoint}/{name}", method="PUT", headers={"Authorization": _ANYBODY})
    with urlopen(request, timeout=_START_S) as reply:
        assert reply.status == 200


def s3_options(endpoint: str, **changes: Any) -> dict[str, Any]:
    """Options of obstore for this server: given credentials, so that no metadata service is asked.

    Little patience.
    """
    return {
        "endpoint": endpoint,
        "region": "us-east-1",
        "access_key_id": "test",
        "secret_access_key": "not-a-secret",
        "client_options": {"allow_http": True, "connect_timeout": "2s", "timeout": "20s"},
        "retry_config": {"max_retries": 2, "retry_timeout": timedelta(seconds=20)},
    } | changes


def _without_conditions(
    application: Callable[..., Iterable[bytes]],
) -> Callable[..., Iterable[bytes]]:
    def answer(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        for condition in ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"):
            environ.pop(condition, None)
        return application(environ, start)

    return answer


def _serve() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application: Any = DomainDispatcherApplication(create_backend_app)
    if "--ignore-conditions" in sys.argv:
        application = _without_conditions(application)
    server = make_server("127.0.0.1", 0, application, threaded=False)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    _serve()
