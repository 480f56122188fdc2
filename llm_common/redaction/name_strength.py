"""The names under which secrets are kept, and how much each says about its value."""

# ruff: noqa: SIM905 - a list literal would take a line for each word
import re
from functools import lru_cache

NO_SECRET, WEAK, LIKELY, STRONG, CERTAIN = range(5)
"""What a name says of its value: nothing; secret if it looks random; if it is no plain word.

If it is no placeholder;
in any case (a name that the caller added)."""

# Lower-case literals; every name of a secret contains one.
NAME_LITERALS = tuple("key token secret pass pw sig cred cookie auth jwt otp bearer sess".split())

_STRONG_ENDINGS = tuple(
    (
        "password passwords passwd passphrase pwd pswd secret secrets secretkey accesskey "
        "accountkey apikey apikeys appkey authkey clientkey encryptionkey functionskey masterkey "
        "privatekey sessionkey sharedkey signingkey sshkey subscriptionkey requirepass masterauth"
    ).split()
)
_LIKELY_WORDS = frozenset(("pass", "pw", "passcode", "otp"))
_LIKELY_ENDINGS = tuple("dbpass userpass rootpass smtppass ftppass keypass storepass".split())
_WEAK_WORDS = frozenset(("auth", "bearer", "creds", "jwt", "sig"))
_WEAK_ENDINGS = tuple(
    (
        "token accesstokens authtokens authorization cookie cookies credential credentials "
        "signature sessionid phpsessid sessid"
    ).split()
)
_INNER_WORDS = frozenset(("password", "passwd", "secret", "secrets", "credential"))
_FORMS_OF_A_VALUE = frozenset("b64 base64 data encoded hash plain plaintext raw text value".split())
_SAID_OF_A_SECRET = frozenset(
    (
        "arn at count date enabled field file filename hint label length name path policy reset "
        "service time ttl type uri url version"
    ).split()
)
# What makes of a `key`, `token` or `pass` another thing: `primary_key`, `next_page_token`,
# `boarding_pass`.
_OTHER_THINGS = {
    "key": frozenset(
        (
            "answer arrow cache composite config dedup dict document etag foreign group hash host "
            "hot i18n idempotency index issue item json locale lookup map message meta object page "
            "partition primary project public publishable range registry return routing row s3 "
            "shard sort translation unique"
        ).split()
    ),
    "token": frozenset(
        (
            "bos cancellation cls continuation cursor delta end eos mask next pad page pagination "
            "prev previous sep special start stop sync unk"
        ).split()
    ),
    "pass": frozenset(
        "band boarding by day first high low multi one render season second single".split()
    ),
}
_MAX_NAME_CHARS = 64
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def name_strength(key: str, extra: tuple[str, ...] = ()) -> int:
    """What a name says about its value, from `NO_SECRET` to `CERTAIN`.

    Reads the last 64 characters of the name.
    """
    return _strength(key[-_MAX_NAME_CHARS:], extra)


def words_of(key: str) -> tuple[str, ...]:
    """The words of a name in lower case, without a number at its end as in `token2`."""
    words = [word.lower() for word in _WORD.findall(key)]
    while words and words[-1].isdigit():
        words.pop()
    return tuple(words)


@lru_cache(maxsize=4096)
def _strength(key: str, extra: tuple[str, ...]) -> int:
    words = words_of(key) or ("",)
    if extra and "".join(words).endswith(extra):
        return CERTAIN
    if len(words) > 1 and words[-1] in _FORMS_OF_A_VALUE:
        words = words[:-1]
    joined, last = "".join(words), words[-1]
    if joined.endswith(_STRONG_ENDINGS):
        return STRONG
    if last == "id" or (len(words) > 1 and words[-2] in _OTHER_THINGS.get(last, ())):
        return NO_SECRET  # `session_id` names a session; `sessionid` is a cookie
    if last in _LIKELY_WORDS or joined.endswith(_LIKELY_ENDINGS):
        return LIKELY
    if last in _WEAK_WORDS or joined.endswith(_WEAK_ENDINGS) or (last == "key" and len(words) > 1):
        return WEAK
    is_about_secrets = not _INNER_WORDS.isdisjoint(words) and last not in _SAID_OF_A_SECRET
    return WEAK if is_about_secrets else NO_SECRET
