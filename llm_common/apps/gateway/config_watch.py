"""Take changed configuration files over while a gateway runs: `ConfigWatch`."""

import asyncio
import logging
from typing import Final

from llm_common.apps.gateway.gateway import Gateway
from llm_common.errors import ConfigError
from llm_common.runtime import in_thread

_log = logging.getLogger(__name__)

_EVERY_S: Final = 2.0


class ConfigWatch:
    """Compares the configuration files, and the approvals, with what a gateway uses.

    A file that cannot be read changes nothing, and a log line says so.

    Args:
        gateway: The gateway.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        # Taken before the first wait, so that a change during the start is not missed.
        self._states = self._read_states()

    async def run(self) -> None:
        """Follow changes of the files, if there are any, until the task is cancelled."""
        while self._gateway.config.config_paths:
            await asyncio.sleep(_EVERY_S)
            await self.check()

    async def check(self) -> None:
        """Take over what has changed since the last check."""
        states = await in_thread(self._read_states)
        if states == self._states:
            return
        self._states = states
        try:
            config = await in_thread(self._gateway.config.reread)
        except ConfigError as exc:
            _log.warning("the changed configuration is not used: %s", exc.message)
            return
        await self._gateway.reload(config)

    def _read_states(self) -> list[object]:
        """Return values that change with the files of the configuration and of the approvals."""
        states: list[object] = [self._gateway.records.etag()]
        for path in self._gateway.config.config_paths:
            try:
                status = path.stat()
            except OSError as exc:
                states.append(exc.errno)
            else:
                states.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return states
