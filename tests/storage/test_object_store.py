"""`ObjectBlobStore` over obstore's own stores and over a process that speaks S3.

Its errors, its secrets and its leases.
"""

import copy
import http.server
import logging
import pickle
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
import obstore.store
import pytest
from obstore import exceptions

from llm_common.agents import ObjectContextPointerStore
from llm_common.errors import (
    InvalidIdError,
    LockTimeoutError,
    PointerNotFoundError,
    StoreError,
    StoreFullError,
)
from llm_common.storage import BlobStore
from llm_common.storage.object_store import (
    LEASE_S,
    RENEW_S,
    BlobVersion,
    ObjectBlobStore,
    ObjectLease,
    _request,
    _update,
    open_object_store,
)
from tests.contracts.blob_contract import BlobStoreContract
from tests.programs import printed
from tests.s3_server import make_bucket, s3_options, s3_server

SECRET = "CANARY9f3a5e"


class ConditionalPuts(BlobStoreContract):
    """The further contract of `ObjectBlobStore`, on a store with conditional puts."""

    def test_a_conditional_put_replaces_the_expected_version(self, blobs: ObjectBlobStore) -> None:
        first = blobs.put_if("q/a", b"1", replaces=None)
        assert first is not None
        assert blobs.get_version("q/a") == (b"1", first)
        second = blobs.put_if("q/a", b"2", replaces=first)
        assert second not in (None, first)
        assert blobs.get_version("q/a") == (b"2", second)

    def test_a_conditional_put_keeps_any_other_version(self, blobs: ObjectBlobStore) -> None:
        first = blobs.put_if("q/a", b"1", replaces=None)
        assert blobs.put_if("q/a", b"2", replaces=None) is None
        blobs.put("q/a", b"3")
        assert blobs.put_if("q/a", b"4", replaces=first) is None
        data, third = blobs.get_version("q/a")
        assert data == b"3"
        blobs.delete("q/a")
        assert blobs.put_if("q/a", b"5", replaces=third) is None
        assert blobs.scan("q").blobs == {}
        assert blobs.put_if("q/a", b"6", replaces=None)

    def test_one_of_several_conditional_puts_wins(self, blobs: ObjectBlobStore) -> None:
        known: BlobVersion | None = None
        with ThreadPoolExecutor(4) as threads:
            for turn in range(10):
                data = [f"{turn} {number}".encode() for number in range(4)]
                stored = list(
                    threads.map(
                        lambda one, known=known: blobs.put_if("q/a", one, replaces=known), data
                    )
                )
                (winner,) = (number for number, version in enumerate(stored) if version)
                known = stored[winner]
                assert blobs.get_version("q/a") == (data[winner], known)

    def test_conditional_methods_check_their_keys(self, blobs: ObjectBlobStore) -> None:
        for use in (
            blobs.get_version,
            lambda bad: blobs.put_if(bad, b"x", replaces=None),
            lambda bad: blobs.update(bad, lambda _: b"x"),
        ):
            with pytest.raises(InvalidIdError):
                use("../name")
        with pytest.raises(PointerNotFoundError):
            blobs.get_version("q/none")


class TestInMemory(ConditionalPuts):
    @pytest.fixture
    def blobs(self) -> ObjectBlobStore:
        return ObjectBlobStore(obstore.store.MemoryStore())


class TestInLocalDirectory(BlobStoreContract):
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> BlobStore:
        return ObjectBlobStore(obstore.store.LocalStore(tmp_path))

    def test_concurrent_updates_are_not_lost(self, blobs: BlobStore) -> None:
        """Check that a directory refuses updates, since it has no conditional puts."""
        with pytest.raises(StoreError, match="FileContextPointerStore"):
            blobs.update("q/a", lambda _: b"1")

    test_an_update_treats_a_larger_blob_as_missing = test_concurrent_updates_are_not_lost

    def test_a_name_is_leased_to_one_holder_at_a_time(self, blobs: BlobStore) -> None:
        """Check that a directory refuses leases, for the same reason."""
        with pytest.raises(StoreError, match="FileContextPointerStore"), blobs.lease("run"):
            pytest.fail("leased a name without conditional puts")


@pytest.mark.torture
class TestOnS3(ConditionalPuts):
    @pytest.fixture
    def blobs(self, s3_endpoint: str) -> ObjectBlobStore:
        return s3_store(s3_endpoint)


def blobs_at(url: str, **options: Any) -> ObjectBlobStore:
    return ObjectBlobStore(open_object_store(url, **options))


def s3_store(endpoint: str, **changes: Any) -> ObjectBlobStore:
    bucket = f"b{uuid.uuid4().hex}"
    make_bucket(endpoint, bucket)
    return blobs_at(f"s3://{bucket}/some/prefix", **s3_options(endpoint, **changes))


def test_only_keys_directly_in_the_folder_are_scanned() -> None:
    store = obstore.store.MemoryStore()
    for path in ("q/a", "q/deeper/b", "q/not a key", "q/.hidden", "q2/a", "a"):
        store.put(path, b"1")
    blobs = ObjectBlobStore(store)
    found = blobs.scan("q")
    assert ([*found.blobs], found.unrecognized) == (["a"], (".hidden", "not a key"))
    assert sorted(blobs.folders()) == ["q", "q2"]


def test_more_than_a_thousand_objects_are_listed() -> None:
    blobs = blobs_at("memory:///")
    names = [f"{number:04}" for number in range(1_200)]
    for name in names:
        blobs.put(f"q/{name}", b"1")
    assert [*blobs.scan("q").blobs] == names
    assert list(blobs.get_many("q", names)) == [b"1"] * 1_200


def test_location_is_the_objects_address(tmp_path: Path) -> None:
    s3 = blobs_at("s3://bucket/some/prefix", **s3_options("http://127.0.0.1:9"))
    assert s3.location("q/a") == "s3://bucket/some/prefix/q/a"
    assert blobs_at("memory:///").location("q/a") == "memory:/q/a"
    assert (
        ObjectBlobStore(obstore.store.LocalStore(tmp_path)).location("q/a")
        == f"file://{tmp_path}/q/a"
    )
    gcs = obstore.store.GCSStore("bucket", prefix="p", skip_signature=True)
    assert ObjectBlobStore(gcs).location("q/a") == "gs://bucket/p/q/a"
    azure = obstore.store.AzureStore("box", account_name="me", account_key=SECRET * 4)
    assert ObjectBlobStore(azure).location("q/a") == "az://box/q/a"


class Overtaken(ObjectBlobStore):
    """A store in which another writer is always faster."""

    def put_if(self, key: str, data: bytes, *, replaces: BlobVersion | None) -> BlobVersion | None:
        self.put(key, data + b" of another")
        return super().put_if(key, data, replaces=replaces)


def test_an_update_that_is_always_overtaken_gives_up(
    no_waits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llm_common.storage.object_store._PATIENCE_S", 0.1)
    blobs = Overtaken(obstore.store.MemoryStore())
    with pytest.raises(LockTimeoutError, match="Other writers kept changing"):
        blobs.update("q/a", lambda _: b"mine")
    assert blobs.get("q/a") == b"mine of another"


def test_an_error_of_the_change_leaves_the_object() -> None:
    blobs = ObjectBlobStore(obstore.store.MemoryStore())
    blobs.put("q/a", b"1")
    with pytest.raises(ZeroDivisionError):
        blobs.update("q/a", lambda _: bytes(1 // 0))
    assert blobs.get("q/a") == b"1"


@pytest.mark.torture
def test_a_server_without_conditions_is_refused_before_anything_is_put() -> None:
    with s3_server("--ignore-conditions") as endpoint:
        assert_refused_before_anything_is_put(s3_store(endpoint))


class Unconditional(obstore.store.MemoryStore):
    """A store that puts whatever the condition says."""

    def put(self, *args: Any, **_: Any) -> Any:
        return obstore.put(self, *args)


def test_a_store_without_conditions_is_refused_before_anything_is_put() -> None:
    assert_refused_before_anything_is_put(ObjectBlobStore(Unconditional()))


def assert_refused_before_anything_is_put(blobs: ObjectBlobStore) -> None:
    uses: list[Callable[[], object]] = [
        lambda: blobs.put_if("q/a", b"1", replaces=None),
        lambda: blobs.update("q/a", lambda _: b"1"),
    ]
    for use in uses:
        with pytest.raises(StoreError, match="ignores conditional puts"):
            use()
    assert blobs.scan("q").blobs == {}


def test_a_missing_bucket_is_not_a_missing_blob() -> None:
    with refusing(404, "NoSuchBucket") as blobs:
        for use in (
            lambda: blobs.put("q/a", b"1"),
            lambda: blobs.put_if("q/a", b"1", replaces=None),
            lambda: blobs.get("q/a"),
            lambda: blobs.scan("q"),
            lambda: list(blobs.get_many("q", ["a", "b"])),
            lambda: list(blobs.folders()),
            lambda: blobs.delete("q/a"),
        ):
            with pytest.raises(StoreError, match="does not exist") as caught:
                use()
            assert not isinstance(caught.value, PointerNotFoundError)


class Refusing(http.server.BaseHTTPRequestHandler):
    """A server that answers every request with an error which repeats the request."""

    status = 403
    code = "SignatureDoesNotMatch"

    def _refuse(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        signed = self.headers.get("Authorization", "")
        body = f"<Error><Code>{self.code}</Code><AWSAccessKeyId>{SECRET}</AWSAccessKeyId><S>{signed}</S></Error>"
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_GET = do_PUT = do_POST = do_DELETE = _refuse  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def refusing(status: int, code: str) -> Iterator[ObjectBlobStore]:
    handler = type("Handler", (Refusing,), {"status": status, "code": code})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield blobs_at(
                "s3://bucket",
                **s3_options(
                    f"http://127.0.0.1:{server.server_port}",
                    access_key_id=SECRET,
                    secret_access_key=SECRET,
                    session_token=SECRET,
                    retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=1)},
                ),
            )
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "code", "kind", "text"),
    [
        (
            403,
            "SignatureDoesNotMatch",
            StoreError,
            "refused the credentials (403 SignatureDoesNotMatch)",
        ),
        (401, "Unauthorized", StoreError, "refused the credentials (401 Unauthorized)"),
        (503, "SlowDown", StoreError, "(503"),
        (507, "XMinioStorageFull", StoreFullError, "No space left"),
        (507, "InsufficientStorage", StoreFullError, "No space left"),
        (400, "QuotaExceeded", StoreFullError, "No space left"),
    ],
)
def test_a_server_error_is_typed_without_the_servers_text(
    status: int, code: str, kind: type[StoreError], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with refusing(status, code) as blobs:
        for use in (
            lambda: blobs.put("q/a", b"1"),
            lambda: blobs.put_if("q/a", b"1", replaces=None),
            lambda: blobs.get("q/a"),
            lambda: blobs.scan("q"),
            lambda: list(blobs.get_many("q", ["a", "b"])),
            lambda: blobs.delete("q/a"),
        ):
            with pytest.raises(StoreError) as caught:
                use()
            assert type(caught.value) is kind
            assert text in str(caught.value)
            assert caught.value.__cause__ is None
            assert caught.value.__context__ is None
            shown = "".join(traceback.format_exception(caught.value))
            assert SECRET not in shown + repr(vars(caught.value)) + repr(blobs) + blobs.location(
                "q/a"
            )
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    "url", ["bkt/prefix", "bkt", "no url", f"user:{SECRET}@host/x", f"host/x?key={SECRET}", ""]
)
def test_an_address_without_a_scheme_is_explained(url: str) -> None:
    for opens in (open_object_store, ObjectContextPointerStore.from_url):
        with pytest.raises(StoreError, match="begins with s3://, gs:// or az://") as caught:
            opens(url)
        assert SECRET not in "".join(traceback.format_exception(caught.value))
        assert (f'"{url}"' in str(caught.value)) == (url in ("bkt/prefix", "bkt"))


def http_options(**changes: Any) -> dict[str, Any]:
    return s3_options(
        "http://127.0.0.1:9", access_key_id=SECRET, secret_access_key=SECRET, **changes
    )


@pytest.mark.parametrize("client_options", [None, {}, {"timeout": "1s"}], ids=str)
async def test_the_error_for_plain_http_names_the_option(
    client_options: Any,
) -> None:
    store = ObjectContextPointerStore.from_url(
        "s3://bucket/prefix", **http_options(client_options=client_options)
    )
    with pytest.raises(
        StoreError, match=r"s3://bucket/prefix is http.* allow_http=True .* AWS_ALLOW_HTTP"
    ) as caught:
        await store.save(query_id="q", task_id=None, tool_name="t", args={}, result=1)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(StoreError, match="allow_http=True"):
        blobs_at("http://127.0.0.1:9/bucket").get("q/a")


@pytest.mark.parametrize("client_options", [None, {"connect_timeout": "1s"}], ids=str)
def test_http_can_be_allowed_by_one_option(client_options: Any) -> None:
    retries = {"max_retries": 0, "retry_timeout": timedelta(seconds=1)}
    options = http_options(client_options=client_options, retry_config=retries)
    blobs = blobs_at("s3://bucket", allow_http=True, **options)
    with pytest.raises(
        StoreError, match=r"s3://bucket could not be read\. Check its address, the network"
    ):
        blobs.get("q/a")


@pytest.mark.parametrize(
    ("url", "options"),
    [
        (f"ftp://user:{SECRET}@host/x", {}),
        ("no url", {}),
        ("s3://bucket", {"no_such_option": SECRET}),
    ],
)
def test_an_invalid_address_is_not_repeated_in_the_error(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(StoreError) as caught:
        blobs_at(url, **options)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_error_of_obstore_is_left_untranslated() -> None:
    kinds = [
        kind
        for kind in vars(exceptions).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    ]
    assert len(kinds) > 10
    for kind in (*kinds, FileNotFoundError, ValueError, NotImplementedError, PermissionError):

        def fail(kind: type[Exception] = kind) -> None:
            raise kind(SECRET)

        with pytest.raises(StoreError) as caught:
            _request("be read", fail)
        for twin in (copy.copy(caught.value), pickle.loads(pickle.dumps(caught.value))):
            assert SECRET not in repr(twin)


def test_importing_the_agents_does_not_import_obstore() -> None:
    program = "import sys, llm_common.agents, llm_common.storage; print('obstore' in sys.modules)"
    assert printed(program) == "False\n"


@pytest.mark.parametrize(
    ("version", "condition"),
    [
        (BlobVersion("e", None), {"e_tag": "e"}),
        (BlobVersion(None, "v"), {"version": "v"}),
        (BlobVersion("e", "v"), {"e_tag": "e", "version": "v"}),
    ],
)
def test_a_condition_names_what_the_store_reported(
    version: BlobVersion, condition: dict[str, str]
) -> None:
    assert _update(version) == condition


def test_conditions_are_probed_once() -> None:
    store = obstore.store.MemoryStore()
    blobs = ObjectBlobStore(store)
    assert blobs.put_if("q/a", b"1", replaces=None)
    obstore.delete(store, ".conditions")
    assert blobs.put_if("q/b", b"1", replaces=None)
    assert [entry["path"] for entry in obstore.list(store).collect()] == ["q/a", "q/b"]


KEY = ".store/lease-run"


@dataclass
class Server(ObjectBlobStore):
    """A store with a version for each put of a lease, and timers that fire when the test says so.

    Any other object is a clock, which the lease puts to ask for the store's time.
    """

    time_s: float = 1_000.0
    content: tuple[bytes, BlobVersion] | None = None
    put_at_s: float = 0.0
    puts: int = 0
    is_down: bool = False
    loses_responses: bool = False
    timers: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def put_if(self, key: str, data: bytes, *, replaces: BlobVersion | None) -> BlobVersion | None:
        assert key == KEY
        if self.is_down:
            raise StoreError("The object store does not answer. Try again")
        if replaces != (self.content and self.content[1]):
            return None
        self.puts += 1
        version = BlobVersion(None, str(self.puts))
        self.content, self.put_at_s = (data, version), self.time_s
        return None if self.loses_responses else version

    def get_version(
        self, key: str, *, max_bytes: int | None = None
    ) -> tuple[bytes | None, BlobVersion]:
        assert (key, max_bytes) == (KEY, None)
        if self.is_down:
            raise StoreError("The object store does not answer. Try again")
        if self.content is None:
            raise PointerNotFoundError("Nothing is stored. Use another name")
        return self.content

    def put(self, key: str, data: bytes) -> None:
        assert (key.startswith(".store/clock-"), data) == (True, b"")

    def modified_s(self, key: str) -> float:
        return self.put_at_s if key == KEY else self.time_s

    def delete(self, key: str) -> None:
        if key == KEY:
            self.content = None

    def start_timer(self, wait_s: float, work: Callable[[], None]) -> threading.Timer:
        self.timers.append((wait_s, work))
        return threading.Timer(wait_s, work)

    def hold(self) -> ObjectLease:
        return ObjectLease(self, "run", start_timer=self.start_timer)

    def pass_time(self, seconds: float) -> None:
        """Advance the clock, and fire the newest timer if it is due."""
        self.time_s += seconds
        if self.timers and seconds >= self.timers[-1][0]:
            self.timers.pop()[1]()


@pytest.fixture
def server() -> Server:
    return Server()


def test_a_renewed_lease_is_never_taken_over(server: Server) -> None:
    lease = server.hold()
    for _ in range(10):
        server.pass_time(RENEW_S)
        with pytest.raises(LockTimeoutError, match="run is held"):
            server.hold()
    lease.release()
    server.hold().release()
    assert server.content is None


def test_a_lease_whose_holder_died_is_taken_over_after_a_minute(server: Server) -> None:
    server.hold()
    server.timers.clear()  # the holder renews nothing any more
    server.time_s += LEASE_S - 1
    with pytest.raises(LockTimeoutError):
        server.hold()
    server.time_s += 1
    lease = server.hold()
    with pytest.raises(LockTimeoutError):
        server.hold()
    lease.release()


@pytest.mark.parametrize("is_noticed", [False, True], ids=["at-the-release", "by-a-renewal"])
def test_a_lease_that_was_taken_over_is_not_given_back(
    server: Server, caplog: pytest.LogCaptureFixture, is_noticed: bool
) -> None:
    slept = server.hold()
    renew = server.timers.pop()[1]
    server.time_s += LEASE_S
    server.hold()
    if is_noticed:
        renew()
    assert ("a lease was lost" in caplog.text) is is_noticed
    slept.release()
    with pytest.raises(LockTimeoutError):
        server.hold()


def test_a_renewal_that_fails_is_tried_again(server: Server) -> None:
    server.hold()
    server.is_down = True
    server.pass_time(RENEW_S)
    server.is_down = False
    server.pass_time(RENEW_S)
    server.time_s += LEASE_S - 1
    with pytest.raises(LockTimeoutError):
        server.hold()


def test_a_lease_is_held_until_another_holder_takes_it_over(server: Server) -> None:
    slept = server.hold()
    assert slept.is_held()
    server.pass_time(RENEW_S)
    assert slept.is_held()
    server.time_s += LEASE_S
    assert slept.is_held()  # nobody wanted it
    server.hold()
    assert not slept.is_held()
    server.content = None
    assert not slept.is_held()


def test_a_lease_is_held_for_a_minute_while_the_store_does_not_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = server.hold()
    server.is_down = True
    assert lease.is_held()
    monkeypatch.setattr("llm_common.storage.object_store.LEASE_S", 0.0)
    assert not lease.is_held()


def test_a_lost_response_is_no_loss_of_the_lease() -> None:
    server = Server(loses_responses=True)
    lease = server.hold()
    server.pass_time(RENEW_S)
    lease.release()
    assert server.content is None
