import pytest

from llm_common.errors import InvalidIdError
from llm_common.storage import check_key, check_query_id

FORBIDDEN_IDS = [
    pytest.param("../../x", id="F-001"),
    pytest.param("/abs/x", id="F-002"),
    pytest.param("..\\..\\x", id="F-003"),
    pytest.param("C:\\x", id="F-004-drive"),
    pytest.param("\\\\srv\\s", id="F-004-unc"),
    pytest.param("", id="F-005-empty"),
    pytest.param(" ", id="F-005-blank"),
    pytest.param(".", id="F-006-dot"),
    pytest.param("..", id="F-006-dots"),
    pytest.param("a\0b", id="F-007"),
    pytest.param("a" * 300, id="F-008"),
    pytest.param("a" * 129, id="F-008-just"),
    pytest.param(None, id="F-009-none"),
    pytest.param(5, id="F-009-int"),
    pytest.param(b"q", id="F-009-bytes"),
    pytest.param("CON", id="F-010"),
    pytest.param("nul.txt", id="F-010-suffix"),
    pytest.param("q.", id="F-010-trailing-dot"),
    pytest.param("ｑ．．／", id="F-011-wide"),
    pytest.param("cafe\u0301", id="F-011-nfd"),
    pytest.param("a\u202eb", id="F-011-direction"),
    pytest.param("a\n", id="F-011-newline"),
    pytest.param("%2e%2e%2f", id="F-012"),
    pytest.param(".lock", id="F-013-lock"),
    pytest.param(".git", id="F-013-git"),
    pytest.param("-rf", id="hyphen"),
]


@pytest.mark.parametrize("query_id", FORBIDDEN_IDS)
def test_ids_outside_the_allow_list_are_refused_without_being_repeated(query_id: object) -> None:
    with pytest.raises(InvalidIdError) as caught:
        check_query_id(query_id)
    assert not isinstance(query_id, str) or len(query_id) < 4 or query_id not in str(caught.value)


@pytest.mark.parametrize("query_id", ["_pointers", "q", "Q_1.2-3", "a" * 128, "console", "1"])
def test_plain_ids_are_accepted_f_014(query_id: str) -> None:
    assert check_query_id(query_id) == query_id


def test_a_key_has_two_parts() -> None:
    assert check_key("q/a.meta.json") == ("q", "a.meta.json")
    with pytest.raises(InvalidIdError):
        check_key(None)
