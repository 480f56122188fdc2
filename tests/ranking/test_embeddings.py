"""Static vectors and the prominence of similarities."""

import math
import subprocess
import sys
from importlib.util import find_spec

import pytest

from llm_common.errors import ConfigError
from llm_common.ranking import Embedder, StaticVectors, embeddings
from llm_common.ranking.embeddings import prominence
from tests.ranking.doubles import FixedEmbedder

installed = pytest.mark.skipif(
    find_spec("wordllama") is None, reason="the extra `embeddings` is not installed"
)


def test_only_similarities_far_above_the_mean_count() -> None:
    values = prominence([0.4, 0.41, 0.42, 0.4, 0.9, 0.41, 0.8])
    assert values[4] == 1.0
    assert 0 < values[6] < 1
    assert values[0] == values[1] == values[2] == 0.0


@pytest.mark.parametrize("senseless", [math.nan, math.inf, -math.inf])
def test_a_similarity_that_is_not_finite_counts_as_zero_f_139(senseless: float) -> None:
    assert prominence([0.4, senseless, 0.4, 0.9, 0.4, 0.4]) == [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("flat", [[], [0.3], [0.3, 0.3, 0.3], [0.0, 0.0]])
def test_equal_similarities_have_no_prominence(flat: list[float]) -> None:
    assert prominence(flat) == [0.0] * len(flat)


@pytest.fixture(scope="module")
def vectors() -> StaticVectors:
    return StaticVectors()


@installed
def test_meaning_is_found_without_a_shared_word(vectors: StaticVectors) -> None:
    near, distant = vectors.similarities(
        "automobile repair", ["my car is at the mechanic", "a recipe for onion soup"]
    )
    assert near > distant + 0.1


@installed
def test_the_same_text_has_cosine_one_and_an_empty_text_zero(vectors: StaticVectors) -> None:
    same, empty, broken = vectors.similarities("weather in Oslo", ["weather in Oslo", "", "\ud800"])
    assert same == pytest.approx(1.0, abs=1e-5)
    assert empty == 0.0
    assert math.isfinite(broken)
    assert vectors.similarities("weather", []) == []
    assert vectors.similarities("", ["weather"]) == [0.0]


@installed
def test_cached_vectors_change_nothing_s1_15(vectors: StaticVectors) -> None:
    texts = [f"text number {index} about weather" for index in range(20)]
    fresh = vectors.similarities("weather", texts)
    assert vectors.similarities("weather", texts) == fresh
    assert vectors.similarities("weather", texts[::-1]) == fresh[::-1]


@installed
def test_loading_imports_no_other_package_and_opens_no_connection() -> None:
    program = """
import socket, sys
def refused(*args): raise AssertionError("a connection")
socket.socket.connect = refused
from llm_common.ranking.embeddings import StaticVectors
StaticVectors().similarities("a", ["b"])
print(sorted({"wordllama", "requests", "huggingface_hub"} & set(sys.modules)))
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_the_error_for_a_missing_extra_names_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embeddings, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[embeddings\]'"):
        StaticVectors()


def test_any_class_with_the_method_is_an_embedder() -> None:
    assert isinstance(FixedEmbedder(len), Embedder)
