"""`usually_holds_secrets`: whether a file's name says that it holds passwords, tokens or private keys.

The name alone decides: the file is not opened. A word such as `credentials` counts only in the name of a data file,
since `credentials.py` and `secrets.md` are about secrets.
"""

import re
from pathlib import PurePosixPath
from typing import Final

_DATA: Final = frozenset(
    (
        *("", "cfg", "conf", "config", "csv", "enc", "env", "ini", "json", "jsonl", "plist", "properties", "toml"),
        *("tsv", "txt", "xml", "yaml", "yml"),
    )
)
"""Extensions of files that may hold nothing but a secret; "" stands for none."""

_STRUCTURED: Final = _DATA - {"", "csv", "tsv", "txt"}
_BACKUP: Final = re.compile(r"(?:\.(?:bak|backup|copy|old|orig|save|\d{1,3})|~)+\Z")
_SAMPLE: Final = re.compile(
    r"(?:example|sample|template)\.env"
    r"|.+[._-](?:dist|example|sample|template|tpl)(?:\.(?:env|ini|json|php|tfvars|toml|txt|ya?ml))?"
)
_FOLDERS: Final = re.compile(
    r"(?:^|/)(?:\.(?:aws|azure|gcloud|gnupg|kube|password-store|secrets|ssh)/|\.config/(?:gcloud|gh)/|\.docker/config\.json\Z)"
)


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns))


_NAMES: Final = _any_of(
    # Environments.
    r"\.envrc",
    r"\.env(?:[._-].+)?",
    r".+\.env(?:[._-](?:ci|dev|enc|live|local|prod|stag|test)[a-z\d]*)*",
    r"env\.(?:ci|dev|live|local|private|prod|secret|stag|test)\w*",
    # Private keys.
    r"(?:.+[._-])?id_(?:dsa|ecdsa|ed25519|rsa)(?:_sk)?(?:[._-](?!pub$).+)?",
    r".*\.(?:gpg|jceks|jks|kdbx?|key|keychain|keystore|ovpn|p12|p8|pem|pfx|pgp|pk8|ppk)",
    r".+\.key\.(?:enc|json|txt)",
    r".+_(?:dsa|ecdsa|ed25519|rsa)",
    r"key(?:store)?\.properties",
    r"wg\d{1,3}\.conf",
    # Clouds, clusters, package registries.
    r".*\.tfstate(?:\..+)?",
    r".*\.tfvars(?:\.json)?",
    r".*service[ ._-]?account.*\.json",
    r".*firebase[ ._-]?adminsdk.*\.json",
    r"(?:.+[._-])?kubeconfig(?:[_-][^.]*)?(?:\.(?:conf|json|txt|ya?ml))?",
    r"\.(?:boto|databrickscfg|dockercfg|dockerconfigjson|npmrc|pypirc|s3cfg|terraformrc)|terraform\.rc|rclone\.conf",
    # Databases, servers, editors, browsers.
    r"\.(?:my|mylogin)\.cnf|\.pgpass|pgpass\.conf|\.passwd-s3fs|shadow|(?:.*[._-])?ht(?:digest|passwd)",
    r"local\.settings\.json|localsettings\.php|wp-config(?!-sample)[\w.-]*\.php",
    r"\.ftpconfig|\.remote-sync\.json|recentservers\.xml|sftp(?:-config)?\.json|sitemanager\.xml",
    r"cookies\.txt|logins\.json|wallet\.dat",
    # Shells and network clients.
    r"\.\w+_?history|\.histfile",
    r"[._]netrc|\.(?:curlrc|fetchmailrc|gitcookies|mailrc|msmtprc|muttrc|wgetrc)",
    r".*\.(?:credentials?|secrets?|token)",
)
_LAST_WORDS: Final = _any_of(
    r"(?:.+[._ -])?(?:creds?|passphrases?|passwd|secrets?|token|vault[_-]?pass)",
    r"(?!.*(?:change|common|confirm|forgot|lost|reset|strong|update|weak))(?:.+[._ -])?passwords?",
    r"(?:.+[._ -])?(?:access|api|auth|bearer|bot|oauth|refresh|session)[_-]?tokens?",
    r"(?:.+[._ -])?(?:access|api|auth|deploy|encryption|master|private|root|secret|service|signing|ssh)[_-]?keys?",
    r"(?!.*(?:partition|primary|public|sort))(?:.+[._ -])?key",
)
_ANY_WORD: Final = re.compile(r"(?:.*[._ -])?(?:creds|secrets?)(?:[._ -].*)?")


def usually_holds_secrets(path: str) -> bool:
    """Whether the path names a file that usually holds secrets, or a backup of one, and no sample of one.

    Args:
        path: With forward slashes; of a folder's files, relative to the folder.
    """
    if _FOLDERS.search(path):
        return True
    name = _BACKUP.sub("", PurePosixPath(path).name.lower())
    if _SAMPLE.fullmatch(name):
        return False
    if _NAMES.fullmatch(name):
        return True
    stem, dot, extension = name.removeprefix(".").rpartition(".")
    stem, extension = (stem, extension) if dot else (extension, "")
    if extension not in _DATA:
        return False
    is_word = "credential" in stem or _LAST_WORDS.fullmatch(stem) is not None
    return is_word or (extension in _STRUCTURED and _ANY_WORD.fullmatch(stem) is not None)
