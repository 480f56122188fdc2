"""The user's folders for this library, by the conventions of each platform."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from llm_common._env import XDG_CACHE_HOME, XDG_CONFIG_HOME, Variable, read_path
from llm_common.errors import ConfigError

# In the home folder, by `sys.platform`. The empty name stands for every other platform.
_CACHE: Final = {
    "darwin": "Library/Caches/llm-common",
    "win32": "AppData/Local/llm-common/Cache",
    "": ".cache/llm-common",
}
_CONFIG: Final = {
    "darwin": "Library/Application Support/llm-common",
    "win32": "AppData/Roaming/llm-common",
    "": ".config/llm-common",
}


def default_cache_dir() -> Path:
    """Return the user's cache folder for this library, by the platform's convention.

    The folder may not exist.

    Raises:
        ConfigError: If the user has no home folder, as in some containers.
    """
    return _folder_of(XDG_CACHE_HOME, _CACHE)


def default_config_dir() -> Path:
    """Return the user's configuration folder for this library, by the platform's convention.

    The folder may not exist.

    Raises:
        ConfigError: If the user has no home folder, as in some containers.
    """
    return _folder_of(XDG_CONFIG_HOME, _CONFIG)


def _folder_of(variable: Variable, by_platform: Mapping[str, str]) -> Path:
    if chosen := read_path(variable):
        return chosen / "llm-common"
    try:
        home = Path.home()
    except RuntimeError as exc:
        reason = (
            f"this user has no home folder; set {variable.name} to a folder that may be written"
        )
        raise ConfigError(reason, variable=variable.name, value="") from exc
    return home / by_platform.get(sys.platform, by_platform[""])
