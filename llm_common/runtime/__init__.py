"""What a program shares with the library in its process: settings, folders, threads and extras.

For the applications and integrations of this library. The names may change.
"""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports

if TYPE_CHECKING:
    from llm_common._env import (
        GATEWAY_TOKEN,
        POINTER_STORE_DIR,
        TRACE_DIR,
        default_cache_dir,
        default_config_dir,
        read_named,
        read_path,
        read_text,
    )
    from llm_common._threads import ForkSafeLock, PerProcess, in_thread, in_thread_if_long
    from llm_common.errors import install_command, missing_extra

__all__ = [
    "GATEWAY_TOKEN",
    "POINTER_STORE_DIR",
    "TRACE_DIR",
    "ForkSafeLock",
    "PerProcess",
    "default_cache_dir",
    "default_config_dir",
    "in_thread",
    "in_thread_if_long",
    "install_command",
    "missing_extra",
    "read_named",
    "read_path",
    "read_text",
]

_MODULES = {
    "ForkSafeLock": "llm_common._threads",
    "GATEWAY_TOKEN": "llm_common._env",
    "POINTER_STORE_DIR": "llm_common._env",
    "PerProcess": "llm_common._threads",
    "TRACE_DIR": "llm_common._env",
    "default_cache_dir": "llm_common._env",
    "default_config_dir": "llm_common._env",
    "in_thread": "llm_common._threads",
    "in_thread_if_long": "llm_common._threads",
    "install_command": "llm_common.errors",
    "missing_extra": "llm_common.errors",
    "read_named": "llm_common._env",
    "read_path": "llm_common._env",
    "read_text": "llm_common._env",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
