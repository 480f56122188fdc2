"""A store, and a browser that looks at it."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from llm_common.agents import FileContextPointerStore
from llm_common.apps.inspector.application import Inspector
from tests.apps.inspector.hostile_data import browser


@pytest.fixture
def store(tmp_path: Path) -> FileContextPointerStore:
    return FileContextPointerStore(tmp_path / "store", durability="rename")


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    return browser(Inspector(tmp_path / "store", tmp_path / "trace"))
