"""`ObjectBlobStore`: blobs as objects in S3, Google Cloud Storage or Azure, by obstore.

Only this module imports obstore (extra `object-store`), and only `_request` translates its errors.
A server's message is never passed on, not even as the cause of an error. It can repeat access keys,
signatures and signed addresses.
"""

import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from llm_common.errors import (
    CorruptPointerError,
    InvalidIdError,
    LockTimeoutError,
    PointerNotFoundError,
    StoreError,
    StoreFullError,
    missing_extra,
)

try:
    import obstore.store
    from obstore import exceptions
except ImportError as exc:
    raise missing_extra("object stores need an extra", "object-store") from exc

from llm_common.storage.blob import (
    OWN_FOLDER,
    BlobEntry,
    FolderScan,
    check_folder,
    check_key,
    check_name,
    query_id_of,
)

if TYPE_CHECKING:
    from obstore import PutMode, UpdateVersion
    from obstore.store import ObjectStore

_OBSTORE_ERRORS = (exceptions.BaseError, OSError, ValueError, NotImplementedError)
# obstore reports the server's status and error code in the text of its errors only.
_CODE = re.compile(r"<Code>([A-Za-z]{1,64})</Code>")
_STATUS = re.compile(r"status code: ([1-5][0-9]{2})\b")
# obstore has no error class for a full store.
_FULL = frozenset({"507", "QuotaExceeded", "XMinioStorageFull"})
_DENIED_ERRORS = (
    exceptions.PermissionDeniedError,
    exceptions.UnauthenticatedError,
    PermissionError,
)
_DENIED_STATUSES = frozenset({"401", "403"})
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/|memory:|file:")
_PLAIN_ADDRESS = re.compile(r"[A-Za-z0-9_./-]{1,100}")
_BUCKET_MISSING = frozenset({"NoSuchBucket", "ContainerNotFound"})
# obstore's own defaults retry for three minutes, too long for a caller who waits.
_RETRIES = {"max_retries": 5, "retry_timeout": timedelta(seconds=30)}
_PROBE = ".conditions"  # no key starts with a dot

T = TypeVar("T")

_PATIENCE_S: Final = 30.0
_MAX_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class BlobVersion:
    """An opaque version of the bytes under a key. A store may provide only one field.

    Different bytes have different versions. On S3, two puts of the same bytes share a version.
    Equal versions prove equal bytes, but not that no put came between.
    """

    e_tag: str | None
    version: str | None


class OvertakenError(Exception):
    """Another writer was faster. The attempt left no trace and can be repeated."""


def retry_overtaken(work: Callable[[], T]) -> T:
    """Run some work until it no longer raises `OvertakenError`, with random back-off.

    Raises:
        LockTimeoutError: If other writers were faster for half a minute.
    """
    retrying = Retrying(
        retry=retry_if_exception_type(OvertakenError),
        stop=stop_after_delay(_PATIENCE_S),
        wait=wait_random_exponential(multiplier=0.02, max=_MAX_PAUSE_S),
        reraise=True,
    )
    try:
        return retrying(work)
    except OvertakenError as exc:
        raise LockTimeoutError(
            f"Other writers kept changing this object for {_PATIENCE_S:g} s. "
            "Save less often under the same id"
        ) from exc


def open_object_store(url: str, **options: Any) -> "ObjectStore":
    """Open the object store at an address, such as `s3://bucket/prefix`.

    Also accepts `gs://…`, `az://account/container/…` and `memory:///`.

    Args:
        url: Address of the store and the prefix in it, without credentials.
        **options: Options of `obstore.store.from_url`: the store's settings (`region`, `endpoint`,
            `access_key_id`, …), `client_options`, `credential_provider` and `retry_config`. The
            default of the last is five retries within 30 seconds. `allow_http=True` accepts an
            endpoint without encryption, such as a local MinIO. obstore looks up missing settings in
            the environment, and missing credentials also at the cloud's metadata service.

    Raises:
        StoreError: If obstore does not support the store or an option.
    """
    if not _SCHEME.match(url):
        # Any other text may hold credentials, so it is not repeated.
        quoted = f' "{url}"' if _PLAIN_ADDRESS.fullmatch(url) else ""
        raise StoreError(
            f"The address{quoted} names no kind of store. Use an address that begins with s3://, "
            "gs:// or az://"
        )
    settings: dict[str, Any] = {}
    if not url.startswith(("memory:", "file:")):  # these refuse the option
        settings["retry_config"] = _RETRIES
    if "allow_http" in options:  # obstore accepts it only among the client's options
        allow_http = {"allow_http": options.pop("allow_http")}
        options["client_options"] = allow_http | (options.get("client_options") or {})
    from_url: Callable[..., ObjectStore] = obstore.store.from_url
    return _request("be opened", lambda: from_url(url, **(settings | options)))


class ObjectBlobStore:
    """A `BlobStore` of objects `folder/name`, safe for threads, processes and machines.

    Each method makes one or a few requests, with the retries and time limits of the obstore client.
    Before the first conditional put, `check_conditions` probes the server once.

    Args:
        store: An obstore store. Its prefix is the root of the keys. Its credentials are never read
            or shown.
    """

    def __init__(self, store: "ObjectStore") -> None:
        self._store = store
        self._conditional = False
        self._where = f" {_address(store)}"

    def put(self, key: str, data: bytes) -> None:
        """Store the bytes as an object. See `BlobStore.put`."""
        check_key(key)
        # A multipart upload is several requests, and a killed writer would leave its parts behind.
        self._request("be written", lambda: self._store.put(key, data, use_multipart=False))

    def put_if(self, key: str, data: bytes, *, replaces: BlobVersion | None) -> BlobVersion | None:
        """Store the bytes if the key still has the version that the caller expects.

        Of several concurrent callers, one succeeds.

        Args:
            key: `folder/name`.
            data: The bytes to store.
            replaces: The expected version. None expects no blob.

        Returns:
            The new version, or None if the key had another version and nothing was changed. After a
            lost response and a retry it can be None although the bytes were put. Check before you
            delete anything that they need.

        Raises:
            StoreError: If the request fails, or the server ignores conditions.
        """
        check_key(key)
        self.check_conditions()
        return self._put_if(key, data, replaces)

    def check_conditions(self) -> None:
        """Probe once whether the server honours conditions, with puts that have to fail.

        Some servers that speak S3 ignore them, and would lose one of two concurrent saves. The
        probe takes four small requests and leaves an object `.conditions`.

        Raises:
            StoreError: If the server ignores conditions, or does not support them.
        """
        if self._conditional:
            return
        self._put_if(_PROBE, b"", None)  # the object now exists, whoever created it
        replaced = self._version(_PROBE)
        # Random bytes, since S3 derives the ETag from the content.
        self._request(
            "be written", lambda: self._store.put(_PROBE, secrets.token_bytes(16), mode="overwrite")
        )
        if self._put_if(_PROBE, b"", None) or self._put_if(_PROBE, b"", replaced):
            raise StoreError(
                f"The object store{self._where} ignores conditional puts, "
                "so concurrent saves would be lost. Use a store that honours them "
                "(If-None-Match and If-Match on S3), or keep the files on one machine"
            )
        # Set without a lock: two threads may both probe, and come to the same result.
        self._conditional = True

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the bytes of an object. See `BlobStore.get`."""
        data, _ = self.get_version(key, max_bytes=max_bytes)
        if data is None:
            raise CorruptPointerError(
                f"{self.location(key)} has more than {max_bytes:,} bytes. Restore it from a copy"
            )
        return data

    def get_version(
        self, key: str, *, max_bytes: int | None = None
    ) -> tuple[bytes | None, BlobVersion]:
        """Return the bytes of an object, None if they exceed `max_bytes`, and their version.

        Raises:
            PointerNotFoundError: If the object does not exist.
        """
        check_key(key)

        def fetch() -> tuple[bytes | None, BlobVersion]:
            response = self._store.get(key)
            data = None
            # The size is in the headers, so an oversized object is not downloaded.
            if max_bytes is None or response.meta["size"] <= max_bytes:
                data = bytes(response.bytes())
            return data, BlobVersion(response.meta["e_tag"], response.meta["version"])

        return self._request("be read", fetch)

    def get_many(
        self, folder: str, names: list[str], *, max_bytes: int | None = None
    ) -> Iterator[bytes | None]:
        """Yield the bytes of each name, None for a missing or oversized object.

        Fetches up to 16 in parallel.

        Raises:
            StoreError: If the store cannot be read, which proves nothing about the objects.
        """
        keys = [f"{check_folder(folder)}/{check_name(name)}" for name in names]

        def get_or_none(key: str) -> bytes | None:
            with suppress(PointerNotFoundError, CorruptPointerError):
                return self.get(key, max_bytes=max_bytes)
            return None

        with ThreadPoolExecutor(max_workers=16) as threads:
            yield from threads.map(get_or_none, keys)

    def update(
        self, key: str, change: Callable[[bytes | None], bytes], *, max_bytes: int | None = None
    ) -> None:
        """Replace an object by a function of its bytes, with compare-and-swap."""

        def attempt() -> None:
            data, version = None, None
            with suppress(PointerNotFoundError):
                data, version = self.get_version(key, max_bytes=max_bytes)
            if self.put_if(key, change(data), replaces=version) is None:
                raise OvertakenError

        retry_overtaken(attempt)

    def scan(self, folder: str) -> FolderScan:
        """List the objects of a folder. Those with an invalid name are unrecognized.

        The server lists a thousand objects at a time, and only each thousand is consistent.
        """
        check_folder(folder)
        listing = self._request("be listed", lambda: self._store.list_with_delimiter(folder))
        blobs: dict[str, BlobEntry] = {}
        unrecognized = []
        # S3 lists in order, other kinds of stores do not.
        for item in sorted(listing["objects"], key=lambda item: item["path"]):
            name = item["path"].rpartition("/")[2]
            if _is_key(item["path"]):
                blobs[name] = BlobEntry(
                    item["size"], item["e_tag"], item["last_modified"].timestamp()
                )
            else:
                unrecognized.append(name)
        return FolderScan(blobs, unrecognized=tuple(unrecognized))

    def folder_etag(self, folder: str) -> object:
        """Return None, since an object store has no folders."""

    def folders(self) -> Iterator[str]:
        """Yield every folder that has blobs."""
        listing = self._request("be listed", self._store.list_with_delimiter)
        for path in listing["common_prefixes"]:
            with suppress(InvalidIdError):
                query_id_of(path)
                yield path

    def sweep(self, folder: str) -> None:
        """Do nothing, since puts leave no temporaries."""

    def remove_folder(self, folder: str) -> None:
        """Do nothing, since a folder is only a prefix of keys."""

    def delete(self, key: str) -> None:
        """Remove an object, if it exists."""
        check_key(key)
        with suppress(PointerNotFoundError):
            self._request("be changed", lambda: self._store.delete(key))

    @contextmanager
    def lease(self, name: str) -> Iterator[Callable[[], bool]]:
        """Hold a name with an object in the store's own folder. See `ObjectLease`.

        Raises:
            LockTimeoutError: If the name is held.
            StoreError: If a request fails, or the server ignores conditions.
        """
        lease = ObjectLease(self, name)
        try:
            yield lease.is_held
        finally:
            lease.release()

    def location(self, key: str) -> str:
        """Return the address of an object, such as `s3://bucket/prefix/folder/name`."""
        check_key(key)
        return f"{_address(self._store)}/{key}"

    def modified_s(self, key: str) -> float:
        """Return when an object was put, by the store's clock.

        Raises:
            PointerNotFoundError: If the object does not exist.
        """
        check_key(key)
        meta = self._request("be read", lambda: self._store.head(key))
        return meta["last_modified"].timestamp()

    def _version(self, key: str) -> BlobVersion | None:
        with suppress(PointerNotFoundError):
            meta = self._request("be read", lambda: self._store.head(key))
            return BlobVersion(meta["e_tag"], meta["version"])
        return None

    def _put_if(self, key: str, data: bytes, replaces: BlobVersion | None) -> BlobVersion | None:
        mode: PutMode = "create" if replaces is None else _update(replaces)

        def put() -> BlobVersion | None:
            try:
                stored = self._store.put(key, data, mode=mode)
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                return None
            return BlobVersion(stored["e_tag"], stored["version"])

        return self._request("be written", put)

    def _request(self, action: str, send: Callable[[], T]) -> T:
        return _request(action, send, self._where)


def _request(action: str, send: Callable[[], T], where: str = "") -> T:
    """Send a request to the store, and translate obstore's errors.

    Args:
        action: The action for the error text, after "the object store could not".
        send: Sends the request.
        where: A space and the store's address, once it is known.
    """
    try:
        return send()
    except _OBSTORE_ERRORS as exc:
        failure = _store_error(exc, action, where)
    # Outside the handler, so that the server's message is not the error's context either.
    raise failure


def _store_error(error: Exception, action: str, where: str) -> StoreError:
    message, store = str(error), f"object store{where}"
    codes: list[str] = []
    for pattern in (_STATUS, _CODE):
        match = pattern.search(message)
        if match:
            codes.append(match[1])
    reason = f" ({' '.join(codes)})" if codes else ""
    no_bucket = not _BUCKET_MISSING.isdisjoint(codes)
    if isinstance(error, FileNotFoundError) and action != "be written" and not no_bucket:
        return PointerNotFoundError(
            f"Nothing is stored under this key in the {store}. Use a key that the store lists"
        )
    if not _FULL.isdisjoint(codes) or "No space left on device" in message:
        return StoreFullError(
            f"No space left in the {store}{reason}, and nothing was changed. "
            "Free some and save again"
        )
    if isinstance(error, FileNotFoundError) or no_bucket:
        text = (
            f"The bucket or folder of the {store} does not exist{reason}. "
            "Create it, or check its name"
        )
    elif isinstance(error, _DENIED_ERRORS) or not _DENIED_STATUSES.isdisjoint(codes):
        text = f"The {store} refused the credentials{reason}. Check them and their permissions"
    elif "BadScheme" in message:
        text = (
            f"The endpoint of the {store} is http, without encryption. To allow it, "
            'pass allow_http=True to from_url, client_options={"allow_http": True} to obstore, '
            "or set AWS_ALLOW_HTTP=true. For a server that speaks S3, pass "
            "s3://bucket/prefix as the address and the server as endpoint="
        )
    elif isinstance(error, NotImplementedError | exceptions.NotSupportedError):
        text = (
            f"The {store} does not support conditional puts. "
            "For a directory, use FileContextPointerStore"
        )
    elif isinstance(error, exceptions.UnknownConfigurationKeyError | ValueError):
        text = (
            "The object store does not support one of the options. "
            "See obstore's options for this kind of store"
        )
    else:
        text = (
            f"The {store} could not {action}{reason}. Check its address, the network and its state"
        )
    return StoreError(text)


def _update(replaced: BlobVersion) -> "UpdateVersion":
    condition: UpdateVersion = {}
    if replaced.e_tag is not None:
        condition["e_tag"] = replaced.e_tag
    if replaced.version is not None:
        condition["version"] = replaced.version
    return condition


def _is_key(path: str) -> bool:
    with suppress(InvalidIdError):
        check_key(path)
        return True
    return False


def _address(store: "ObjectStore") -> str:
    """Return scheme, bucket and prefix, without the other settings, which hold credentials."""
    if isinstance(store, obstore.store.S3Store):
        root = f"s3://{store.config.get('bucket', '')}"
    elif isinstance(store, obstore.store.GCSStore):
        root = f"gs://{store.config.get('bucket', '')}"
    elif isinstance(store, obstore.store.AzureStore):
        root = f"az://{store.config.get('container_name', '')}"
    elif isinstance(store, obstore.store.LocalStore):
        return f"file://{store.prefix or ''}"
    else:
        return "memory:"
    return "/".join(filter(None, (root, (store.prefix or "").strip("/"))))


LEASE_S: Final = 60.0
RENEW_S: Final = 15.0

StartTimer = Callable[[float, Callable[[], None]], threading.Timer]

_log = logging.getLogger(__name__)


class ObjectLease:
    """Holds an object in the store's own folder from its creation to `release`.

    Args:
        blobs: The store of the object.
        name: The lease, which names the object.
        start_timer: Calls a function after some seconds in another thread.

    Raises:
        InvalidIdError: If `name` is not allowed.
        LockTimeoutError: If somebody else holds it.
        StoreError: If the store cannot be read or written.
    """

    def __init__(
        self, blobs: ObjectBlobStore, name: str, *, start_timer: StartTimer | None = None
    ) -> None:
        self._blobs = blobs
        self._name = name
        self._key = f"{OWN_FOLDER}/lease-{check_name(name)}"
        self._start_timer = start_timer or _start_timer
        self._process = os.getpid()
        self._token = secrets.token_hex(16).encode()
        self._puts = 0
        self._lock = threading.Lock()
        self._version = self._taken()
        self._timer: threading.Timer | None = self._start_timer(RENEW_S, self._renew)

    def _taken(self) -> BlobVersion:
        version = self._put(None)
        if version is None:
            with suppress(PointerNotFoundError):
                _, old = self._blobs.get_version(self._key)
                if self._age_s() < LEASE_S:
                    raise self._refused()
                version = self._put(old)
        if version is None:
            raise self._refused()
        return version

    def _refused(self) -> LockTimeoutError:
        return LockTimeoutError(
            f"{self._name} is held. Wait until its holder has ended, or {LEASE_S:g} s if it died"
        )

    def _age_s(self) -> float:
        """Return the seconds since the last put, by the store's clock."""
        # A put that is made just now tells the store's time.
        clock = f"{OWN_FOLDER}/clock-{secrets.token_hex(8)}"
        self._blobs.put(clock, b"")
        try:
            return self._blobs.modified_s(clock) - self._blobs.modified_s(self._key)
        finally:
            self._blobs.delete(clock)

    def _put(self, replaces: BlobVersion | None) -> BlobVersion | None:
        """Put this lease's bytes, and return their version, or None if somebody else was faster."""
        # Counted, since S3 gives the same version to the same bytes.
        self._puts += 1
        data = self._token + b" %d" % self._puts
        begun_s = time.monotonic()
        version = self._blobs.put_if(self._key, data, replaces=replaces)
        if version is None:
            # After a lost response, the retry finds the bytes of the first try.
            with suppress(PointerNotFoundError):
                stored, stored_version = self._blobs.get_version(self._key)
                if stored == data:
                    version = stored_version
        if version is not None:
            self._renewed_s = begun_s
        return version

    def is_held(self) -> bool:
        """Ask the store whether nobody has taken the lease over.

        While the store does not answer, the lease lasts for 60 seconds after its last renewal.
        """
        try:
            data, _ = self._blobs.get_version(self._key)
        except PointerNotFoundError:
            return False
        except StoreError:
            return time.monotonic() - self._renewed_s < LEASE_S
        return data is not None and data.startswith(self._token)

    def _renew(self) -> None:
        with self._lock:
            if self._timer is None:
                return
            try:
                version = self._put(self._version)
            except StoreError as exc:
                # It may be renewed the next time, before anybody takes it over.
                _log.warning("a lease was not renewed (%s)", type(exc).__name__)
            else:
                if version is None:
                    _log.warning("a lease was lost: it was not renewed for %g s", LEASE_S)
                    self._timer = None
                    return
                self._version = version
            self._timer = self._start_timer(RENEW_S, self._renew)

    def release(self) -> None:
        """Give the object back, unless it was taken over. Does nothing in a forked child.

        Raises:
            StoreError: If the object cannot be removed. It is then free after 60 seconds.
        """
        if self._process != os.getpid():
            return
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is None:
            return
        timer.cancel()
        with suppress(PointerNotFoundError):
            _, version = self._blobs.get_version(self._key)
            if version == self._version:
                self._blobs.delete(self._key)


def _start_timer(wait_s: float, work: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(wait_s, work)
    # The timer must not keep a process alive.
    timer.daemon = True
    timer.start()
    return timer
