"""Run the examples of docs/gateway.md and of the pages in docs/gateway in their order."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from llm_common.apps.gateway import GatewayConfig

ROOT = Path(__file__).parents[3]
SERVERS = ROOT / ".mcp-servers" / "mcp-server-git" / "bin"
PAGES = [ROOT / "docs" / "gateway.md", *sorted((ROOT / "docs" / "gateway").glob("*.md"))]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)


def of(kind: str) -> list[str]:
    return [text for name, text in BLOCKS if name == kind]


def run(command: list[str], folder: Path, code: int = 0) -> str:
    scripts = folder / "bin"
    scripts.mkdir(exist_ok=True)
    script = scripts / "llm-common"
    script.write_text(
        f"#!{sys.executable}\nfrom llm_common.apps.cli import main\nmain()\n", encoding="utf-8"
    )
    script.chmod(0o700)
    path = os.pathsep.join([str(scripts), str(SERVERS), os.environ["PATH"]])
    settings = {"PATH": path, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache")}
    shown = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert shown.returncode == code, shown.stderr
    return shown.stdout or shown.stderr


@pytest.mark.mcp_servers
def test_the_five_minutes_work(tmp_path: Path) -> None:
    if not SERVERS.exists():
        pytest.skip("make test-mcp sets the servers up")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@localhost"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "Begin the work"]):
        subprocess.run([*git, *command], check=True)
    (tmp_path / "mcp.json").write_text(of("json")[0], encoding="utf-8")
    [doctor] = of("sh")
    shown = run(["sh", "-c", doctor], tmp_path)
    assert re.fullmatch(re.escape(of("text")[0]).replace("…", r"[\d,]+"), shown)
    said = run([sys.executable, "-W", "error", "-c", of("python")[0]], tmp_path)
    assert "Begin the work" in said
    assert said.endswith("True\n")


@pytest.mark.mcp
def test_every_configuration_on_the_pages_is_valid(tmp_path: Path) -> None:
    found = []
    for number, text in enumerate(of("json")):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(json.loads(text)), encoding="utf-8")
        found.append(list(GatewayConfig.from_files(path).servers))
    assert found == [["git"], [], ["files"], ["git"]]  # the gateway leaves itself out


@pytest.mark.mcp
def test_every_option_on_the_pages_exists() -> None:
    commands = (ROOT / "llm_common" / "apps" / "cli").glob("gateway_*commands.py")
    source = "".join(path.read_text(encoding="utf-8") for path in commands)
    for option in re.findall(r"`(?:llm-common gateway )?(--[a-z-]+)", TEXT):
        name = option.removeprefix("--no-").removeprefix("--").replace("-", "_")
        assert re.search(rf'\b{name}: |"{option}"', source), option
