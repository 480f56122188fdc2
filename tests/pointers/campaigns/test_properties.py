"""The laws that hypothesis tries, each with 20,000 examples, and with a rule that breaks it."""

import json
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from llm_common.context import allocate_budget
from llm_common.errors import MalformedReplyError
from tests.context import test_packer, test_request, test_scoring
from tests.core import test_extraction
from tests.pointers import test_format
from tests.ranking import test_scan
from tests.redaction import test_redactor
from tests.text import test_fence

EXAMPLES = 20_000

PACKER_ORDER = test_packer.TestDeterminism.test_the_order_of_the_pool_never_matters_and_it_is_never_changed_s1_11_s1_15

LAWS: list[tuple[Callable[..., None], dict[str, Any]]] = [
    (test_request.test_parts_are_whole_and_add_up_to_the_budget_s1_03, {}),
    (
        test_scoring.test_every_item_is_scored_once_and_finite_in_any_order_s1_11,
        {"strategy": "spec"},
    ),
    (
        test_scoring.test_every_item_is_scored_once_and_finite_in_any_order_s1_11,
        {"strategy": "measured"},
    ),
    (PACKER_ORDER, {"self": test_packer.TestDeterminism()}),
    (test_scan.test_the_order_of_the_texts_never_matters_s1_11, {}),
    (test_scan.test_any_text_can_be_searched_for_and_in, {}),
    (test_extraction.test_a_proper_prefix_of_an_object_is_never_a_value_f_087, {}),
    (test_extraction.test_any_text_gives_a_json_value_or_a_malformed_reply_error, {}),
    (test_redactor.test_a_named_secret_is_redacted_after_any_noise, {}),
    (test_fence.test_no_text_contains_its_nonce_s0_53, {}),
    (test_format.test_no_stored_text_breaks_the_blocks_f_147, {}),
]


def with_settings(
    monkeypatch: pytest.MonkeyPatch, law: Callable[..., None], **changes: Any
) -> Callable[..., None]:
    """Return the law with other settings of hypothesis."""
    own = law._hypothesis_internal_use_settings  # type: ignore[attr-defined]
    monkeypatch.setattr(
        law, "_hypothesis_internal_use_settings", settings(own, deadline=None, **changes)
    )
    return law


@pytest.mark.torture
@pytest.mark.parametrize(("law", "given"), LAWS, ids=[law.__name__ for law, _ in LAWS])
def test_a_law_holds_in_twenty_thousand_examples_l16(
    monkeypatch: pytest.MonkeyPatch, law: Callable[..., None], given: dict[str, Any]
) -> None:
    with_settings(
        monkeypatch,
        law,
        max_examples=EXAMPLES,
        database=None,
        suppress_health_check=list(HealthCheck),
    )(**given)


def mends_what_is_cut(text: str) -> object:
    for end in ("", "}", '"}', "]}"):
        try:
            return json.loads(text + end)
        except ValueError:
            continue
    raise MalformedReplyError("no JSON", reason="invalid")


def rounds_parts(asked: Any) -> Any:
    allocation = allocate_budget(asked)
    return replace(allocation, files=int(allocation.files * 0.999))


BROKEN: list[tuple[Callable[..., None], ModuleType, str, Callable[..., Any]]] = [
    (LAWS[0][0], test_request, "allocate_budget", rounds_parts),
    (
        test_extraction.test_a_proper_prefix_of_an_object_is_never_a_value_f_087,
        test_extraction,
        "extract_json",
        mends_what_is_cut,
    ),
    (
        test_redactor.test_a_named_secret_is_redacted_after_any_noise,
        test_redactor,
        "redact_text",
        str,
    ),
]


@pytest.mark.parametrize(
    ("law", "module", "name", "rule"), BROKEN, ids=[name for _, _, name, _ in BROKEN]
)
def test_the_harness_catches_a_rule_that_breaks_the_law_l16(
    monkeypatch: pytest.MonkeyPatch,
    law: Callable[..., None],
    module: ModuleType,
    name: str,
    rule: Callable[..., Any],
) -> None:
    monkeypatch.setattr(module, name, rule)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        with_settings(
            monkeypatch, law, phases=[Phase.generate], report_multiple_bugs=False, database=None
        )()
