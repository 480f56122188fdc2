import re
from enum import Enum

import pytest
from hypothesis import given, strategies as st

from llm_common.errors import InvalidIdError
from llm_common.storage.blob import (
    OWN_FOLDER,
    check_folder,
    check_key,
    check_name,
    check_query_id,
    folder_of,
    query_id_of,
)

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
    pytest.param("a" * 201, id="F-008-just"),
    pytest.param(None, id="F-009-none"),
    pytest.param(5, id="F-009-int"),
    pytest.param(b"q", id="F-009-bytes"),
    pytest.param("CON", id="F-010"),
    pytest.param("nul.txt", id="F-010-suffix"),
    pytest.param("com5", id="F-010-com"),
    pytest.param("Lpt0.log", id="F-010-lpt"),
    pytest.param("nul:1", id="F-010-colon"),
    pytest.param("a/con/b", id="F-010-segment"),
    pytest.param("a  b", id="two-spaces"),
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
def test_an_error_names_the_invalid_id_s0_11(query_id: object) -> None:
    with pytest.raises(InvalidIdError) as caught:
        check_query_id(query_id)
    named = repr(query_id[:80]) if isinstance(query_id, str) else type(query_id).__name__
    assert named in str(caught.value)
    assert "hash_query" in str(caught.value)
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize(
    "query_id", ["_pointers", "q", "Q_1.2-3", "a" * 128, "a" * 200, "console", "1", "q-", "nulls.x"]
)
def test_a_plain_id_is_its_own_folder_f_014_s0_11(query_id: str) -> None:
    assert check_query_id(query_id) == folder_of(query_id) == query_id == query_id_of(query_id)


@pytest.mark.parametrize(
    ("query_id", "folder"),
    [
        ("user:42:session", "user;42;session"),
        ("2024/01", "2024~01"),
        ("a b", "a!b"),
        ("me@host.org+x=1,2", "me@host.org+x=1,2"),
        ("https://host/page 1", "https;~~host~page!1"),
    ],
)
def test_ids_that_applications_use_have_readable_folders_s0_11(query_id: str, folder: str) -> None:
    assert folder_of(query_id) == folder
    assert query_id_of(folder) == query_id


IDS = st.text("abZ09_-.:/@+=, ", min_size=1, max_size=200).filter(lambda text: not is_refused(text))
SAFE_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+=,;~!-]*(?<!\.)")


def is_refused(query_id: object) -> bool:
    try:
        check_query_id(query_id)
    except InvalidIdError:
        return True
    return False


@given(st.lists(IDS, max_size=4), st.text())
def test_folders_are_safe_and_one_to_one_s0_11(query_ids: list[str], any_text: str) -> None:
    folders = [folder_of(query_id) for query_id in query_ids]
    assert len(set(folders)) == len(set(query_ids))
    assert [query_id_of(folder) for folder in folders] == query_ids
    assert all(SAFE_FOLDER.fullmatch(folder) and len(folder.encode()) <= 200 for folder in folders)
    assert [check_folder(folder) for folder in folders] == folders
    assert is_refused(any_text) or query_id_of(folder_of(any_text)) == any_text


@given(st.from_regex(r"[a-c_](?:[a-c0-9._:@+=,/-]| (?! )){0,30}[a-c0-9_-]", fullmatch=True))
def test_every_allowed_id_is_accepted_s0_11(query_id: str) -> None:
    assert is_refused(query_id) == bool({".", ".."} & {*query_id.split("/")})


def test_an_enum_member_counts_as_its_value() -> None:
    class Query(str, Enum):  # noqa: UP042 - as callers write it
        FIRST = "first"

    assert folder_of(Query.FIRST) == "first"
    assert type(check_query_id(Query.FIRST)) is str


@pytest.mark.parametrize("folder", ["a/b", "a:b", "a b", "", "..", ".store2"])
def test_what_folder_of_never_returns_is_the_folder_of_no_query(folder: str) -> None:
    with pytest.raises(InvalidIdError):
        query_id_of(folder)
    with pytest.raises(InvalidIdError):
        check_folder(folder)


@pytest.mark.parametrize(
    ("key", "is_key"),
    [
        ("q/" + "n" * 128, True),
        ("q/" + "n" * 129, False),
        (f"{OWN_FOLDER}/gone-00", True),
        ("q", False),
        ("q/a/b", False),
        ("q/", False),
        (b"q/a", False),
    ],
    ids=str,
)
def test_a_key_is_one_folder_and_one_name_of_128_characters(key: object, is_key: bool) -> None:
    if is_key:
        assert "/".join(check_key(key)) == key
    else:
        with pytest.raises(InvalidIdError):
            check_key(key)


def test_an_error_quotes_the_beginning_of_a_name_and_the_type_of_others() -> None:
    with pytest.raises(InvalidIdError, match=f"The name '{'!' * 80}' of a blob is not allowed"):
        check_name("!" * 200)
    with pytest.raises(InvalidIdError, match="The name of type int of a blob is not allowed"):
        check_name(5)
