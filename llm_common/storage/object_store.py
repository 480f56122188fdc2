"""`ObjectBlobStore`: blobs as objects in S3, Google Cloud Storage, Azure or what obstore supports.

This is the one module that imports obstore (extra `object-store`), and `_answer` the one place
where its errors become ours. What a server says is never passed on, not even as the cause of an
error: it repeats access keys, signatures and signed addresses.
"""

import logging
import re
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

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
_CODE = re.compile(r"<Code>([A-Za-z]{1,64})</Code>")
_STATUS = re.compile(r"status code: ([1-5][0-9]{2})\b")
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
_RETRIES = {"max_retries": 5, "retry_timeout": timedelta(seconds=30)}
_PARALLEL_GETS = 16
_PROBE = ".conditions"  # starts with a dot, as no key does

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

_PATIENCE_S: Final = 30.0
_FIRST_PAUSE_S: Final = 0.02
_MAX_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class BlobVersion:
    """What the bytes under a key are known by; opaque, one of the two may be missing.

    Different bytes have different versions. Two puts of the same bytes may share one, as they do on
    S3: an equal version says that the bytes are the same, and not that none were put in between.
    """

    e_tag: str | None
    version: str | None


class OvertakenError(Exception):
    """Another writer was faster: nothing of the attempt is visible, and it can be made again."""


def retry_overtaken(work: Callable[[], Answer]) -> Answer:
    """Run some work, again after random and ever longer pauses while it raises `OvertakenError`.

    Raises:
        LockTimeoutError: Others were faster for half a minute.
    """
    retrying = Retrying(
        retry=retry_if_exception_type(OvertakenError),
        stop=stop_after_delay(_PATIENCE_S),
        wait=wait_random_exponential(multiplier=_FIRST_PAUSE_S, max=_MAX_PAUSE_S),
        reraise=True,
    )
    try:
        return retrying(work)
    except OvertakenError as exc:
        raise LockTimeoutError(
            f"Other writers changed this object all the time for {_PATIENCE_S:g} s; "
            "save less often under one id"
        ) from exc


def open_object_store(url: str, **options: Any) -> "ObjectStore":
    """Open the obstore store at an address.

    Such as `s3://bucket/prefix`, `gs://…`, `az://account/container/…` or `memory:///`.

    Args:
        url: Which store and which prefix in it; without credentials.
        **options: What `obstore.store.from_url` takes: the store's settings (`region`, `endpoint`,
            `access_key_id`, …), `client_options`, `credential_provider`, and `retry_config`, which
            is five retries within 30 seconds unless given. `allow_http=True` accepts an endpoint
            without encryption, such as a MinIO on this machine. What is left out obstore looks up:
            in the environment, then, for credentials, at the cloud's metadata service.

    Raises:
        StoreError: No store that obstore knows, or an option that it does not.
    """
    if not _SCHEME.match(url):
        shown = f' "{url}"' if _PLAIN_ADDRESS.fullmatch(url) else ""
        raise StoreError(
            f"The address{shown} names no kind of store; use one that begins with s3://, gs:// "
            f"or az://"
        )
    settings: dict[str, Any] = (
        {} if url.startswith(("memory:", "file:")) else {"retry_config": _RETRIES}
    )
    if "allow_http" in options:  # obstore takes it among the client's options only
        allowed = {"allow_http": options.pop("allow_http")}
        options["client_options"] = allowed | (options.get("client_options") or {})
    from_url: Callable[..., ObjectStore] = obstore.store.from_url
    return _answer("be opened", lambda: from_url(url, **(settings | options)))


class ObjectBlobStore:
    """A `BlobStore` of objects `folder/name`, safe among threads, processes and machines.

    Each method is one request, or a few, with the retries and time limits of the obstore client.
    Before its first conditional put a store is asked once, with four small requests and an object
    `.conditions`, whether it keeps conditions at all: some servers that speak S3 ignore them, and
    would lose what two writers put at once.

    Args:
        store: An obstore store; its prefix is the root of the keys. Its credentials are neither
            read nor shown.
    """

    def __init__(self, store: "ObjectStore") -> None:
        self._store = store
        self._conditional = False
        self._where = f" {_address(store)}"

    @classmethod
    def from_url(cls, url: str, **options: Any) -> Self:
        """The store at an address; see `open_object_store`."""
        return cls(open_object_store(url, **options))

    def put(self, key: str, data: bytes) -> None:
        """Stores the bytes as one object; see `BlobStore.put`."""
        check_key(key)
        self._answer("be written", lambda: self._store.put(key, data, use_multipart=False))

    def put_if(self, key: str, data: bytes, *, replaces: BlobVersion | None) -> BlobVersion | None:
        """Stores the bytes if the key still has the version that the caller knows.

        One of several callers wins.

        Args:
            key: `folder/name`.
            data: What to keep.
            replaces: The version that is there, None for no blob at all.

        Returns:
            The new version, or None when another one is there and nothing was changed. A store that
            lost its own answer and asked again may say None though the bytes were put: look before
            giving up what they need.

        Raises:
            StoreError: Also when the store turns out not to keep conditions.
        """
        check_key(key)
        self.check_conditions()
        return self._put_if(key, data, replaces)

    def check_conditions(self) -> None:
        """Ask the store once whether it keeps conditions, by one put of each kind that must fail.

        Raises:
            StoreError: The store ignores conditions, or has none.
        """
        if self._conditional:
            return
        self._put_if(_PROBE, b"", None)
        known = self._version(_PROBE)
        self._answer(
            "be written", lambda: self._store.put(_PROBE, secrets.token_bytes(16), mode="overwrite")
        )
        if self._put_if(_PROBE, b"", None) or self._put_if(_PROBE, b"", known):
            raise StoreError(
                f"The object store{self._where} ignores conditional puts, "
                "so saves at the same time would be lost; use one that keeps them "
                "(If-None-Match and If-Match on S3), "
                "or keep the files on one machine"
            )
        self._conditional = True

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """The bytes of an object; see `BlobStore.get`."""
        data, _ = self.get_version(key, max_bytes=max_bytes)
        if data is None:
            raise CorruptPointerError(
                f"{self.location(key)} has more than {max_bytes:,} bytes; restore it from a copy"
            )
        return data

    def get_version(
        self, key: str, *, max_bytes: int | None = None
    ) -> tuple[bytes | None, BlobVersion]:
        """The bytes of an object, None when there are more than `max_bytes`, and their version.

        Raises:
            PointerNotFoundError: Nothing is stored under the key.
        """
        check_key(key)

        def fetch() -> tuple[bytes | None, BlobVersion]:
            found = self._store.get(key)
            is_small = max_bytes is None or found.meta["size"] <= max_bytes
            data = bytes(found.bytes()) if is_small else None
            return data, BlobVersion(found.meta["e_tag"], found.meta["version"])

        return self._answer("be read", fetch)

    def get_many(
        self, folder: str, names: list[str], *, max_bytes: int | None = None
    ) -> Iterator[bytes | None]:
        """The bytes of each name in turn, None for one that is missing or too large.

        Up to 16 are fetched at a time.

        Raises:
            StoreError: The store cannot be read: that says nothing about the blobs.
        """
        keys = [f"{check_folder(folder)}/{check_name(name)}" for name in names]

        def get_or_none(key: str) -> bytes | None:
            with suppress(PointerNotFoundError, CorruptPointerError):
                return self.get(key, max_bytes=max_bytes)
            return None

        if len(keys) == 1:
            yield get_or_none(keys[0])
            return
        with ThreadPoolExecutor(_PARALLEL_GETS) as threads:
            yield from threads.map(get_or_none, keys)

    def update(
        self, key: str, change: Callable[[bytes | None], bytes], *, max_bytes: int | None = None
    ) -> None:
        """Stores what the change makes of the object, by compare-and-swap.

        See `BlobStore.update`.
        """

        def attempt() -> None:
            data, version = None, None
            with suppress(PointerNotFoundError):
                data, version = self.get_version(key, max_bytes=max_bytes)
            if self.put_if(key, change(data), replaces=version) is None:
                raise OvertakenError

        retry_overtaken(attempt)

    def scan(self, folder: str) -> FolderScan:
        """Every object of a folder.

        Names that are no keys are unrecognized. Each thousand is as of one instant.
        """
        check_folder(folder)
        found = self._answer("be listed", lambda: self._store.list_with_delimiter(folder))
        blobs: dict[str, BlobEntry] = {}
        unrecognized = []
        for item in sorted(found["objects"], key=lambda item: item["path"]):
            name = item["path"].rpartition("/")[2]
            if _is_key(item["path"]):
                blobs[name] = BlobEntry(
                    item["size"], item["e_tag"], item["last_modified"].timestamp()
                )
            else:
                unrecognized.append(name)
        return FolderScan(blobs, unrecognized=tuple(unrecognized))

    def folder_etag(self, folder: str) -> object:
        """None: an object store has no folders."""

    def folders(self) -> Iterator[str]:
        """Every folder that has blobs; each thousand is as of one instant."""
        found = self._answer("be listed", self._store.list_with_delimiter)
        for path in found["common_prefixes"]:
            with suppress(InvalidIdError):
                query_id_of(path)
                yield path

    def sweep(self, folder: str) -> None:
        """Nothing, since puts leave no temporaries."""

    def remove_folder(self, folder: str) -> None:
        """Nothing, since a folder is but the beginning of keys."""

    def delete(self, key: str) -> None:
        """Removes an object; no error when there is none."""
        check_key(key)
        with suppress(PointerNotFoundError):
            self._answer("be changed", lambda: self._store.delete(key))

    def location(self, key: str) -> str:
        """Address of the object, such as `s3://bucket/prefix/folder/name`."""
        check_key(key)
        return f"{_address(self._store)}/{key}"

    def _version(self, key: str) -> BlobVersion | None:
        with suppress(PointerNotFoundError):
            found = self._answer("be read", lambda: self._store.head(key))
            return BlobVersion(found["e_tag"], found["version"])
        return None

    def _put_if(self, key: str, data: bytes, replaces: BlobVersion | None) -> BlobVersion | None:
        mode: PutMode = "create" if replaces is None else _update(replaces)

        def put() -> BlobVersion | None:
            try:
                stored = self._store.put(key, data, mode=mode)
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                return None
            return BlobVersion(stored["e_tag"], stored["version"])

        return self._answer("be written", put)

    def _answer(self, action: str, ask: Callable[[], Answer]) -> Answer:
        return _answer(action, ask, self._where)


def _answer(action: str, ask: Callable[[], Answer], where: str = "") -> Answer:
    """What the store answers, with obstore's errors as ours.

    Args:
        action: What could not be done, after "the object store could not".
        ask: The request.
        where: A space and the address, once it is known.
    """
    try:
        return ask()
    except _OBSTORE_ERRORS as exc:
        failure = _store_error(exc, action, where)
    raise failure  # outside of the handler, so that the server's words are no context of it either


def _store_error(error: Exception, action: str, where: str) -> StoreError:
    said, store = str(error), f"object store{where}"
    codes = [match[1] for match in (_STATUS.search(said), _CODE.search(said)) if match]
    told = f" ({' '.join(codes)})" if codes else ""
    no_bucket = not _BUCKET_MISSING.isdisjoint(codes)
    if isinstance(error, FileNotFoundError) and action != "be written" and not no_bucket:
        return PointerNotFoundError(
            f"Nothing is stored under this key in the {store}; use one that the store lists"
        )
    if not _FULL.isdisjoint(codes) or "No space left on device" in said:
        return StoreFullError(
            f"No room left in the {store}{told}; nothing was changed: free some and save again"
        )
    if isinstance(error, FileNotFoundError) or no_bucket:
        text = (
            f"The bucket or folder of the {store} does not exist{told}; "
            "create it, or check its name"
        )
    elif isinstance(error, _DENIED_ERRORS) or not _DENIED_STATUSES.isdisjoint(codes):
        text = (
            f"The {store} refused the credentials{told}; check them and what they are allowed to do"
        )
    elif "BadScheme" in said:
        text = (
            f"The endpoint of the {store} is http, without encryption; to allow it, "
            'pass allow_http=True to from_url, client_options={"allow_http": True} to obstore, '
            "or set AWS_ALLOW_HTTP=true. A server that speaks S3 has "
            "the address s3://bucket/prefix, and endpoint= names the server"
        )
    elif isinstance(error, NotImplementedError | exceptions.NotSupportedError):
        text = (
            f"The {store} cannot replace an object on condition; "
            "for a directory use FileContextPointerStore"
        )
    elif isinstance(error, exceptions.UnknownConfigurationKeyError | ValueError):
        text = (
            "The object store does not know an option that was given; "
            "see those of obstore for this kind of store"
        )
    else:
        text = f"The {store} could not {action}{told}; check its address, the network and its state"
    return StoreError(text)


def _update(replaced: BlobVersion) -> "UpdateVersion":
    facts: UpdateVersion = {}
    if replaced.e_tag is not None:
        facts["e_tag"] = replaced.e_tag
    if replaced.version is not None:
        facts["version"] = replaced.version
    return facts


def _is_key(path: str) -> bool:
    with suppress(InvalidIdError):
        check_key(path)
        return True
    return False


def _address(store: "ObjectStore") -> str:
    """Scheme, bucket and prefix; of the settings, which hold credentials, nothing else is read."""
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
