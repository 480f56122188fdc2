"""Decides what counts as a secret, by the name that a value is assigned to and by its characters.

A name says how much its value has to look like a secret. Scanners of source code measure entropy,
which misses short passwords and matches long identifiers. Here a value is random if its letters and
digits alternate more often than the words of an identifier.
"""

# ruff: noqa: SIM905 - a list literal would take a line for each word
import binascii
import re
from functools import cache, lru_cache

NO_SECRET, WEAK, LIKELY, STRONG, CERTAIN = range(5)
"""How much a name says about its value.

The value counts as a secret never, if it looks random, if it is not a plain word, if it is not a
placeholder, or always (a name that the caller added).
"""

# Lower-case literals. Every name of a secret contains one.
NAME_LITERALS = tuple(
    "key token secret pass pw sig cred cookie auth jwt otp psk bearer sess".split()
)

_STRONG_ENDINGS = tuple(
    (
        "password passwords passwd passphrase psk pwd pswd secret secrets secretkey accesskey "
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
_ATTRIBUTES_OF_A_SECRET = frozenset(
    (
        "arn at count date enabled field file filename hint label length name path policy reset "
        "service time ttl type uri url version"
    ).split()
)
# The words before `key`, `token` or `pass` in names of other things: `primary_key`,
# `next_page_token`, `boarding_pass`.
_HARMLESS_QUALIFIERS = {
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
_MAX_NAME_CHARS = 64  # of the end of a name: the words there say what it is
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def name_strength(key: str, extra: tuple[str, ...] = ()) -> int:
    """Return what a name says about its value, from `NO_SECRET` to `CERTAIN`.

    Reads the last 64 characters of the name.
    """
    # Cut before the cache: 4,096 names of any length would be kept.
    return _strength(key[-_MAX_NAME_CHARS:], extra)


def words_of(key: str) -> tuple[str, ...]:
    """Return the words of a name in lower case, without a number at its end as in `token2`."""
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
    if last == "id" or (len(words) > 1 and words[-2] in _HARMLESS_QUALIFIERS.get(last, ())):
        return NO_SECRET  # `session_id` names a session; `sessionid` is a cookie
    if last in _LIKELY_WORDS or joined.endswith(_LIKELY_ENDINGS):
        return LIKELY
    if last in _WEAK_WORDS or joined.endswith(_WEAK_ENDINGS) or (last == "key" and len(words) > 1):
        return WEAK
    is_about_secrets = not _INNER_WORDS.isdisjoint(words) and last not in _ATTRIBUTES_OF_A_SECRET
    return WEAK if is_about_secrets else NO_SECRET


MAX_CHECKED_CHARS = 256
"""Characters of a value that are checked, so that a long one costs no more."""

_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_WORDS = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+"
_MIXED = r"(?=\w*[a-z])(?=\w*[A-Z])(?=\w*[0-9])\w{10,}"
_HEX_RUN = r"(?=(?:[a-f]*[0-9]){4})(?=(?:[0-9]*[a-f]){4})[0-9a-f]{12,}"
_NOT_IN_A_WORD = r"[^A-Za-z0-9]+"
# Forms of values that are not secrets, each with an example. A random password hardly ever has one.
_MASKS = (
    r"(?i:[x*•.:#_?-]{3,})",  # ********
    r"(.)\1*",  # 0000
    r".*\[redacted\].*",  # Bearer [redacted]
    r"<.*>",  # <password>
    r"\[.*\]",  # [hidden]
    r"\([A-Za-z ]{1,40}\)",  # (hidden)
    r"[A-Za-z_-]*\.\.\.",  # sk-...
)
_TEMPLATES = (
    r"\$(?:[A-Za-z_]+|[A-Z0-9_]+)",  # $DB2_PASSWORD
    r"\$\{.*\}.*",  # ${DB_PASSWORD:-none}
    r"\$\(.*\)",  # $(cat password)
    r"\{.*\}|\{[\w.]+\}.*",  # {{ password }}
    r"(?:%\(?\w*\)?[sdr]\W?)+",  # %(user)s:%(password)s
    r"%\w+%",  # %PASSWORD%
    r"@\w+@",  # @PASSWORD@
)
_NUMBERS = (
    r"\d{1,3}",  # 12
    r"0x[0-9a-fA-F]{1,8}",  # 0x1F
    r"(?=.*[.,:/ %TZ+-])[\d.,:/ %TZ+-]+",  # 2025-01-02T03:04:05Z
)
_PLACES = (
    r"/[A-Za-z_.-]+(?:/[\w.@~-]*)*",  # /run/secrets/db
    r"(?:~|\.{1,2})/[\w.@~/-]+",  # ~/.ssh/id_rsa
    r"[A-Za-z]:\\.*",  # C:\keys
    r"[A-Za-z_./-]+\.(?:txt|json|ya?ml|toml|pem|key|py|js|md)",  # server.pem
    r"[a-z][a-z0-9+.-]{1,15}://\S*",  # vault://secret/db
    r"arn:\S+",  # arn:aws:secretsmanager:eu-west-1:1:secret:db
    r"(?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|local|example|invalid|test)(?::\d+)?(?:/.*)?",  # a.com
)
_EXPRESSIONS = (
    r"[A-Za-z_][\w.]*(?:\(.*\)|\[.*\])",  # CharField(max_length=128)
    r"(?:self|cls|this|os|process|env|var|args|config|settings)(?:\.\w+)+",  # env.DB_PASSWORD
)
# What a text has after a quote that closes something.
_REMAINDERS = (
    r"\s.*",  # and then
    r"[,;:)\]}](?:[\s,;:)\]}].*)?",  # ), port=1
    r"[+=|&?%]\s.*",  # + user
    r".*\s[+=%,|]",  # user +
)
# Where a value without quotes ends is a guess, so a part of an expression is one too.
_CODE = (
    r"[,;:)\]}].*",  # )a
    r"\$\w+",  # $pass1
    r"\$[({].*",  # ${a
    r"[{<\[].*",  # {a
    r"[A-Za-z_][\w.]*\(.*",  # f(a
    r"[A-Za-z_]\w*(?:\.\w+)*\[.*",  # rows[a
    r"(?:self|cls|this|os|process|env|var|args|config|settings)\..*",  # os.environ[a
    r".*%[sdr].*",  # %s-%s
    r".*\.\.\.",  # abc123...
    r"(?:~|\.{1,2})?/[\w.@~-]+(?:/[\w.@~-]*)*",  # /tmp1
    r"[\w./-]+\.(?:txt|json|ya?ml|toml|pem|key|py|js|md)",  # key2.pem
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}",  # ann@example.com
)
DATA = "|".join(_MASKS + _TEMPLATES + _NUMBERS + _PLACES + _EXPRESSIONS)
"""The harmless forms of a value in data, and of one in text whose quotes are certain."""
QUOTED = "|".join((DATA, *_REMAINDERS))
"""The harmless forms of a value that seems to be between quotes."""
BARE = "|".join((QUOTED, *_CODE))
"""The harmless forms of a value without quotes."""
_HARMLESS_WORDS = frozenset(
    (
        "admin_password any array auto base64 bearer bool boolean bytearray bytes cancel changeme "
        "char default denied dict digest disabled email empty enabled encrypted enter expired "
        "false file float forgotten hash hashed hidden hmac incorrect int integer invalid jwt list "
        "login masked md5 missing never nil no none null number oauth oauth2 object off on "
        "optional password_hash plain plaintext prompt redacted required secretstr select sha1 "
        "sha256 sha512 str string submit tbd text todo true type undefined unknown unset uuid "
        "valid varchar void yes"
    ).split()
)
_PLACEHOLDER_WORDS = frozenset(
    (
        "a access account actual admin an and api app auth authorization client code confirm "
        "confirmation cookie credential credentials current db dummy enter env example fake field "
        "file get goes here id insert is key my name new of old or pass passphrase passwd password "
        "path placeholder private public put pwd real redacted replace reset root sample secret "
        "service session set some super test the this to token type url use user username value "
        "with your"
    ).split()
)
_PLACEHOLDER_MARKERS = frozenset(
    (
        "api apikey auth authorization cookie credential credentials dummy example fake here key "
        "passphrase passwd password placeholder pwd replace sample secret token username your"
    ).split()
)
PROSE = frozenset(
    (
        "a an and argument as at be by can cannot enter flag for from has if in is it may must no "
        "not of on option or parameter please should so that the then this to value was when with "
        "you your"
    ).split()
)
_MIN_RANDOM_CHARS, _MIN_UNNUMBERED_CHARS = 8, 16
_PIN_CHARS = 4


@cache
def compiled(expression: str, flags: int = 0) -> re.Pattern[str]:
    """Return the pattern, compiled at its first use, so that importing stays fast."""
    return re.compile(expression, flags)


def is_secret_value(value: str, strength: int, forms: str = DATA) -> bool:
    """Return whether a value counts as a secret under a name of this strength.

    Args:
        value: The text of the value without its quotes. The first 256 characters are checked.
        strength: What the name says, from `WEAK` to `CERTAIN`.
        forms: The harmless forms where the value is: `DATA`, `QUOTED` or `BARE`.
    """
    head = value[:MAX_CHECKED_CHARS]
    if strength == CERTAIN:
        return bool(head) and "[redacted]" not in head
    if strength == WEAK:
        forms = BARE  # the name says too little to tell random text from code
    if is_harmless(head, forms):
        return False
    words = head.split()
    if len(words) > 1:
        return _is_secret_phrase(words, strength, forms)
    if looks_random(head) or compiled(_MIXED).fullmatch(head):
        return True
    if strength == WEAK or len(head) < _PIN_CHARS:
        return strength == WEAK and is_basic_credentials(head)
    return strength == STRONG or (
        len(head) > _PIN_CHARS and not compiled(r"[A-Za-z_]+(?:[.-][A-Za-z_]*)*\W?").fullmatch(head)
    )


def is_secret_number(value: float, strength: int, key: str) -> bool:
    """Return whether a number under a name is a PIN or a password of digits, not a count."""
    if strength == CERTAIN:
        return not isinstance(value, bool)
    return (
        strength >= LIKELY
        and type(value) is int
        and value >= 10 ** (_PIN_CHARS - 1)
        and not key.endswith("s")
    )


def is_harmless(value: str, forms: str) -> bool:
    """Return whether a value is certainly not a secret, such as a type, a placeholder or a path."""
    low = value.strip().lower()
    if not low or low in _HARMLESS_WORDS or compiled(forms, re.DOTALL).fullmatch(value):
        return True
    words = [*filter(None, compiled(_NOT_IN_A_WORD).split(low))]
    return _PLACEHOLDER_WORDS.issuperset(words) and not _PLACEHOLDER_MARKERS.isdisjoint(words)


def looks_random(value: str) -> bool:
    """Return whether a word mixes letters, cases and digits as keys do and names do not."""
    head = value[:MAX_CHECKED_CHARS]
    if len(head) < _MIN_RANDOM_CHARS or compiled(r"[0-9A-Z]").search(head) is None:
        return False
    mixed = sum(len(part) for part in compiled(_NOT_IN_A_WORD).split(head) if _is_mixed(part))
    return mixed >= _MIN_RANDOM_CHARS or compiled(_UUID).search(head) is not None


def is_basic_credentials(value: str) -> bool:
    """Return whether a text is the Base64 of `user:password`, as in RFC 7617."""
    if not compiled(r"[A-Za-z0-9+/_-]{8,}={0,2}").fullmatch(value):
        return False
    bare = value.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        decoded = binascii.a2b_base64(bare[: len(bare) // 4 * 4])
        user, colon, password = decoded.decode("ascii").partition(":")
    except ValueError:
        return False
    return bool(colon and password) and (user + password).isprintable()


def _is_mixed(part: str) -> bool:
    """Return whether letters and digits without a sign between them are random."""
    size = len(part)
    if size < 4 or part.isdigit():  # noqa: PLR2004 - three characters say nothing
        return False
    # Dense: a change of case, or between letters and digits, at least every four characters.
    words = len(compiled(_WORDS).findall(part))
    is_dense = 4 * words >= size
    if part.isalpha():
        return size >= _MIN_UNNUMBERED_CHARS and is_dense
    if is_dense and words >= (4 if size >= _MIN_RANDOM_CHARS else 3):
        return True
    return compiled(_HEX_RUN).fullmatch(part) is not None


def _is_secret_phrase(words: list[str], strength: int, forms: str) -> bool:
    """Return whether words between quotes are a passphrase, or one of them is random."""
    if strength == WEAK and len(words) > 4:  # noqa: PLR2004
        return False
    if any(looks_random(word) and not is_harmless(word, forms) for word in words):
        return True
    plain = all(word.isalpha() and word.islower() and word not in PROSE for word in words)
    return strength == STRONG and plain and _PLACEHOLDER_MARKERS.isdisjoint(words)
