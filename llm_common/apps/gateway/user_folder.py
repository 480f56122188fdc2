"""The folder for the gateway's files of a user: `default_config_dir`."""

import sys
from pathlib import Path

from llm_common._env import XDG_CONFIG_HOME, read_path
from llm_common.errors import ConfigError


def default_config_dir() -> Path:
    """Return the user's configuration folder for this library, by the platform's convention.

    The folder may not exist.

    Raises:
        ConfigError: If the user has no home folder, as in some containers.
    """
    if chosen := read_path(XDG_CONFIG_HOME):
        return chosen / "llm-common"
    try:
        home = Path.home()
    except RuntimeError as exc:
        variable = XDG_CONFIG_HOME.name
        reason = f"this user has no home folder; set {variable} to a folder that may be written"
        raise ConfigError(reason, variable=variable, value="") from exc
    if sys.platform == "darwin":
        return home / "Library/Application Support/llm-common"
    if sys.platform == "win32":
        return home / "AppData/Roaming/llm-common"
    return home / ".config/llm-common"
