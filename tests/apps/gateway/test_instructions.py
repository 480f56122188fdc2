"""What servers tell hosts about themselves reaches hosts of the gateway."""

from pathlib import Path

import pytest

from llm_common.apps.gateway import GatewayConfig
from tests.apps.gateway.hosts import ERAS, config_of, full, host_of

pytestmark = pytest.mark.mcp


def configured(folder: Path, **settings: object) -> GatewayConfig:
    return config_of(one=full(), settings={"memory_only": False, "folder": folder, **settings})


@pytest.mark.parametrize("era", ERAS)
async def test_instructions_of_a_server_are_below_those_of_the_gateway(
    era: str, tmp_path: Path
) -> None:
    async with host_of(configured(tmp_path), mode=era) as host:
        first = host.instructions or ""
        await host.list_tools()
    async with host_of(configured(tmp_path), mode=era) as host:
        assert host.instructions == f"{first}\n\n[one] Ask this server for everything."


async def test_a_gateway_that_keeps_no_results_passes_on_only_those_of_servers(
    tmp_path: Path,
) -> None:
    config = configured(tmp_path, max_whole_tokens=None)
    async with host_of(config) as host:
        assert host.instructions is None
        await host.list_tools()
    async with host_of(config) as host:
        assert host.instructions == "[one] Ask this server for everything."
