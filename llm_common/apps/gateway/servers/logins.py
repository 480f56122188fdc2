"""Keep the logins to servers that want OAuth, and send their tokens: `LoginStore`, `StoredLogin`.

A login belongs to the address of a server and to the authorization server that issued it, and not
to a name: an entry that is edited to another address gets no token. The gateway never starts a
login. `llm-common gateway login` does, in `oauth_login`.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    extract_scope_from_www_auth,
    union_scopes,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from mcp.shared.auth_utils import resource_url_from_server_url
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llm_common.apps.gateway.configuration.gateway_config import ServerConfig
from llm_common.apps.gateway.servers.limits import MAX_LOGIN_BYTES, limited_client
from llm_common.errors import LLMCommonError, PointerNotFoundError, StoreError
from llm_common.runtime import default_config_dir, in_thread
from llm_common.storage import FileBlobStore

_FILE: Final = "login.json"
# A token is refreshed a little early, because clocks differ and a request takes time.
_EARLY_S: Final = 30.0
_REFUSED: Final = (400, 401, 403)


class LoginError(LLMCommonError):
    """A login or the renewal of its token failed."""


class Login(BaseModel):
    """A login to a server. Its texts and representations never show a token.

    Attributes:
        resource: The address of the server, without its query.
        issuer: The authorization server.
        token_endpoint: Where its tokens are renewed.
        client: The registration at the authorization server.
        tokens: The tokens.
        expires_at: When the access token expires, in seconds since 1970, or None if unknown.
        wanted_scope: The rights to ask for at the next login, or "". The server has refused a
            request without them.
    """

    model_config = ConfigDict(frozen=True)

    resource: str
    issuer: str
    token_endpoint: str
    client: OAuthClientInformationFull = Field(repr=False)
    tokens: OAuthToken = Field(repr=False)
    expires_at: float | None = None
    wanted_scope: str = ""

    def has_expired(self) -> bool:
        """Return whether the access token has expired, or is about to."""
        return self.expires_at is not None and time.time() > self.expires_at - _EARLY_S


class LoginStore:
    """The logins of a user, in files that only this user can read.

    Args:
        folder: The folder of the logins. None for `logins` in the user's configuration folder.
        timeout_s: Seconds for a renewal. Other processes wait twice as long for it.
    """

    def __init__(self, folder: Path | None = None, *, timeout_s: float = 20.0) -> None:
        folder = folder or default_config_dir() / "logins"
        self._blobs = FileBlobStore(folder, lock_timeout_s=2 * timeout_s)
        self._timeout_s = timeout_s

    def load(self, url: str) -> Login | None:
        """Return the login to a server's address, or None.

        Raises:
            StoreError: If the file cannot be read.
        """
        with suppress(PointerNotFoundError):
            return _login(self._blobs.get(f"{_folder(url)}/{_FILE}"), url)
        return None

    def save(self, login: Login) -> None:
        """Store a login in place of an earlier one to the same address.

        Raises:
            StoreError: If the file cannot be written.
        """
        folder = _folder(login.resource)
        with self._blobs.lock(folder) as opened:
            opened.put((_FILE, _as_json(login)))

    def remove(self, url: str) -> bool:
        """Delete the login to a server's address, and return whether there was one.

        Raises:
            StoreError: If the file cannot be deleted.
        """
        if self.load(url) is None:
            return False
        folder = _folder(url)
        # A renewal holds the lock, and stores its token after a deletion that does not wait.
        with self._blobs.lock(folder) as opened:
            opened.delete(_FILE)
        self._blobs.remove_folder(folder)
        return True

    def note_wanted(self, login: Login, scope: str) -> None:
        """Keep the rights that a server wants besides those of a login, for the next login.

        Raises:
            StoreError: If the file cannot be read or written.
        """
        with self._blobs.lock(_folder(login.resource)) as opened:
            current = _login(opened.get(_FILE), login.resource)
            if current is not None:
                wanted = union_scopes(current.tokens.scope, scope)
                newer = current.model_copy(update={"wanted_scope": wanted})
                opened.put((_FILE, _as_json(newer)))

    def renewed(self, login: Login) -> Login | None:
        """Return a login with newer tokens, or None if the authorization server issues none.

        Waits for other processes, and takes the tokens of one that was faster: most authorization
        servers accept a refresh token only once.

        Raises:
            LoginError: If the authorization server cannot be reached, or fails.
            StoreError: If the file cannot be read or written.
        """
        with self._blobs.lock(_folder(login.resource)) as opened:
            current = _login(opened.get(_FILE), login.resource)
            if current is None or current.tokens.access_token != login.tokens.access_token:
                return current
            newer = _renew(current, self._timeout_s)
            if newer is not None:
                opened.put((_FILE, _as_json(newer)))
            return newer


def _folder(url: str) -> str:
    return hashlib.sha256(resource_url_from_server_url(url).encode()).hexdigest()[:32]


def _login(data: bytes | None, url: str) -> Login | None:
    try:
        login = Login.model_validate_json(data or b"")
    except ValidationError:
        return None  # there is none, or it is of another version, so the user logs in again
    return login if login.resource == resource_url_from_server_url(url) else None


def _as_json(login: Login) -> bytes:
    return login.model_dump_json(exclude_none=True).encode()


def _renew(login: Login, timeout_s: float) -> Login | None:
    """Ask the authorization server for newer tokens."""
    if login.tokens.refresh_token is None:
        return None
    form = {
        "grant_type": "refresh_token",
        "refresh_token": login.tokens.refresh_token,
        "client_id": login.client.client_id,
        "resource": login.resource,
    }
    # The SDK's context knows the ways in which a client proves who it is.
    context = OAuthContext(
        server_url=login.resource,
        client_metadata=OAuthClientMetadata(redirect_uris=login.client.redirect_uris),
        storage=_NO_STORAGE,
        redirect_handler=None,
        callback_handler=None,
        client_info=login.client,
    )
    headers = {"Accept": "application/json"}
    form, headers = context.prepare_token_auth(form, headers)
    try:
        # In an event loop, because a client without one limits each read, and not all of them.
        response = asyncio.run(_posted(login.token_endpoint, form, headers, timeout_s))
    except (TimeoutError, httpx2.HTTPError, httpx2.StreamError) as exc:
        # Its text and its request may hold the token.
        reason = f"{login.issuer} cannot be reached ({type(exc).__name__}); try again later"
        raise LoginError(reason) from None
    if response.status_code in _REFUSED:
        return None
    try:
        response.raise_for_status()
        tokens = OAuthToken.model_validate_json(response.content)
    except (httpx2.HTTPError, ValidationError):
        reason = f"{login.issuer} answered {response.status_code} instead of a token; try later"
        raise LoginError(reason) from None
    # A server that leaves these out means the ones before.
    kept = {"refresh_token": login.tokens.refresh_token, "scope": login.tokens.scope}
    given = tokens.model_dump(exclude_none=True)
    return login.model_copy(
        update={"tokens": OAuthToken(**{**kept, **given}), "expires_at": expiry_of(tokens)}
    )


async def _posted(
    url: str, form: dict[str, str], headers: dict[str, str], timeout_s: float
) -> httpx2.Response:
    client = limited_client(MAX_LOGIN_BYTES, timeout=timeout_s)
    async with asyncio.timeout(timeout_s), client as http:
        return await http.post(url, data=form, headers=headers)


_NO_STORAGE: Final[Any] = None


def expiry_of(tokens: OAuthToken) -> float | None:
    """Return when tokens that were issued just now expire, or None if unknown."""
    return None if tokens.expires_in is None else time.time() + tokens.expires_in


class StoredLogin(httpx2.Auth):
    """Sends the token of a stored login to a server, and renews it when it has expired.

    Without a login, or if the authorization server renews nothing, the server's refusal is passed
    on.

    Args:
        url: The address of the server.
        store: The logins.
    """

    def __init__(self, url: str, store: LoginStore) -> None:
        self._url = url
        self._store = store

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Add the token to a request, and send it again with a newer one if it is refused."""
        # Read for each request, because the user may have logged out since the last one.
        login = await in_thread(self._store.load, self._url)
        if login is not None and login.has_expired():
            login = await in_thread(self._store.renewed, login) or login
        # The scheme and the host.
        is_own = urlsplit(str(request.url))[:2] == urlsplit(self._url)[:2]
        if login is None or not is_own:
            yield request
            return
        request.headers["Authorization"] = f"Bearer {login.tokens.access_token}"
        response = yield request
        if wants_more_rights(response) and (scope := extract_scope_from_www_auth(response)):
            await in_thread(self._store.note_wanted, login, scope)
        if response.status_code != httpx2.codes.UNAUTHORIZED:
            return
        newer = await in_thread(self._store.renewed, login)
        if newer is not None:
            request.headers["Authorization"] = f"Bearer {newer.tokens.access_token}"
            yield request


def wants_more_rights(response: httpx2.Response) -> bool:
    """Return whether a server has refused a request because its login lacks rights."""
    is_forbidden = response.status_code == httpx2.codes.FORBIDDEN
    return is_forbidden and extract_field_from_www_auth(response, "error") == "insufficient_scope"


def stored_login(server: ServerConfig) -> StoredLogin | None:
    """Return what sends a stored login to a server.

    Returns None for a server whose entry has a token, or where logins cannot be stored.
    """
    if not server.may_need_login:
        return None
    try:
        return StoredLogin(server.url, LoginStore())
    except (LLMCommonError, StoreError):  # no home folder, or not a POSIX system
        return None
