"""A test of a framework is collected where what its first requirement names is installed.

See `Makefile`.
"""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest


def is_installed(requirements: Path) -> bool:
    try:
        distribution(requirements.read_text(encoding="utf-8").partition("==")[0])
    except PackageNotFoundError:
        return False
    return True


@pytest.fixture(autouse=True)
def _default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the results of hooks without a store out of the repository, and apart by test."""
    monkeypatch.setenv("LLM_COMMON_POINTER_STORE_DIR", str(tmp_path / "default-context"))


pytest.register_assert_rewrite("tests.integrations.promises", "tests.integrations.loop_promises")

collect_ignore = [
    f"test_{path.stem}.py" for path in Path(__file__).parent.glob("*.txt") if not is_installed(path)
]
