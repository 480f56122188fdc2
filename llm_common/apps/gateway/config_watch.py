"""Take changed configuration files over while a gateway runs: `ConfigWatch`."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from llm_common.apps.gateway.configuration.gateway_config import GatewayConfig
from llm_common.apps.gateway.gateway import Gateway
from llm_common.errors import ConfigError
from llm_common.runtime import in_thread

_log = logging.getLogger(__name__)

_EVERY_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """Where a configuration comes from.

    Attributes:
        paths: The files, in their order.
        settings: The settings that are not in files.
    """

    paths: tuple[Path, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def read(self) -> GatewayConfig:
        """Return the configuration as the files have it now.

        Raises:
            ConfigError: If a file cannot be read or holds no servers.
        """
        return GatewayConfig.from_files(*self.paths, **self.settings)

    def signature(self) -> tuple[object, ...]:
        """Return a value that changes with the files."""
        states: list[object] = []
        for path in self.paths:
            try:
                status = path.stat()
            except OSError as exc:
                states.append(exc.errno)
            else:
                states.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(states)


class ConfigWatch:
    """Compares the configuration files, and the approvals, with what a gateway uses.

    A file that cannot be read changes nothing, and a log line says so.

    Args:
        gateway: The gateway.
        source: The source of its configuration.
    """

    def __init__(self, gateway: Gateway, source: ConfigSource) -> None:
        self._gateway = gateway
        self._source = source
        # Taken before the first wait, so that a change during the start is not missed.
        self._signature = source.signature()
        self._etag = gateway.records.etag()

    async def run(self) -> None:
        """Follow changes until the task is cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            await self.check()

    async def check(self) -> None:
        """Take over what has changed since the last check."""
        signature = await in_thread(self._source.signature)
        etag = await in_thread(self._gateway.records.etag)
        if (signature, etag) == (self._signature, self._etag):
            return
        self._signature, self._etag = signature, etag
        try:
            config = await in_thread(self._source.read)
        except ConfigError as exc:
            _log.warning("the changed configuration is not used: %s", exc.message)
            return
        await self._gateway.reload(config)
