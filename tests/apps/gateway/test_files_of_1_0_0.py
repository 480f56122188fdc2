"""Records and logins that version 1.0.0 wrote: see `tests/files_of_1_0_0/README.md`."""

import shutil
from pathlib import Path

import mcp_types as types
import pytest

from llm_common.apps.gateway import GatewayConfig, ServerConfig
from llm_common.apps.gateway.servers.logins import LoginStore
from llm_common.apps.gateway.servers.records import ServerRecords, approve, changed_names, pending
from llm_common.apps.gateway.servers.tool_listing import ServerTool

pytestmark = pytest.mark.mcp
FOLDER = Path(__file__).parents[2] / "files_of_1_0_0"
PAY = ServerConfig(command="pay-server", args=("--read",), env={"ZONE": "north"})
FAR = ServerConfig.model_validate(
    {"url": "https://mcp.example.com/mcp", "llmCommon": {"readOnly": True}}
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of the files with the modes that git does not keep."""
    for name in ("gateway", "logins"):
        shutil.copytree(FOLDER / name, tmp_path / name)
    for path in tmp_path.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return tmp_path


def config_of(folder: Path) -> GatewayConfig:
    return GatewayConfig(servers={"pay": PAY, "far": FAR}, folder=folder / "gateway")


def test_remembered_tools_are_listed_before_their_server_has_started(folder: Path) -> None:
    records = ServerRecords(folder / "gateway")
    records.load([PAY, FAR])
    names = {}
    for name, server in config_of(folder).servers.items():
        tools = records.tools_of(name, server)
        assert tools is not None
        names[name] = [tool.name for tool in tools]
    assert names == {"pay": ["pay", "refund"], "far": ["search"]}
    assert (records.of(PAY).may_start, records.of(FAR).may_start) == (True, False)


def test_only_what_changed_after_its_approval_waits_for_one(folder: Path) -> None:
    config = config_of(folder)
    pay, far = pending(config)
    [change] = pay.tools
    assert change.lines == ("- Pays.", "+ Pays, now faster.")
    assert (pay.starts, far.tools) == ("", ())
    assert far.starts
    approve(config, [pay, far])
    assert pending(config) == ()


def test_a_definition_that_is_sent_again_has_not_changed(folder: Path) -> None:
    records = ServerRecords(folder / "gateway")
    records.load([PAY])
    definition = types.Tool.model_validate(
        {
            "name": "refund",
            "title": "Refund",
            "description": "Pays back.",
            "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": False},
        }
    )
    tool = ServerTool("pay", "refund", "Pays back.", definition.input_schema, definition=definition)
    assert changed_names(records.of(PAY).approved, [tool]) == frozenset()


def test_a_login_is_found_by_the_address_of_its_server(folder: Path) -> None:
    login = LoginStore(folder / "logins").load("https://mcp.example.com/mcp")
    assert login is not None
    assert login.tokens.access_token == "made-up-access"
    assert login.client.client_id == "made-up-client"
    assert login.has_expired()
