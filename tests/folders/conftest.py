"""Indexes of the tests are kept in a folder of each test."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from llm_common.folders import FolderPack, pack_folder
from tests.folders.tree import Pack, write


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/llm-common"


@pytest.fixture
def packed(tmp_path: Path) -> Pack:
    def pack(query: str, files: Mapping[str, str | bytes], **options: Any) -> FolderPack:
        return pack_folder(query, write(tmp_path / "tree", files), **options)

    return pack
