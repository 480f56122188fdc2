import pytest
from hypothesis import given, strategies as st

from llm_common.context import extract_keywords
from llm_common.context.mentions import MAX_ENTITIES, extract_entities, similarity, stem_counts


def entities_of(text: str) -> list[tuple[str, str]]:
    return [(entity.kind, entity.text) for entity in extract_entities(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("explain config.ts.", [("file", "config.ts")]),
        (
            "see README, Makefile and .gitignore",
            [("file", "README"), ("file", "Makefile"), ("file", ".gitignore")],
        ),
        ("open src/app/main.py:12", [("path", "src/app/main.py")]),
        ("in ./run and ~/notes", [("path", "./run"), ("path", "~/notes")]),
        (r"C:\Users\me\app.cs", [("path", r"C:\Users\me\app.cs")]),
        ("@src/app.py please", [("path", "src/app.py")]),
        ("HttpClient and parseHTML", [("symbol", "HttpClient"), ("symbol", "parseHTML")]),
        (
            "call get_user, MAX_SIZE or __init__",
            [("symbol", "get_user"), ("symbol", "MAX_SIZE"), ("symbol", "__init__")],
        ),
        (
            "os.path.join and run() and load(x)",
            [("symbol", "os.path.join"), ("symbol", "run"), ("symbol", "load")],
        ),
        ("see https://example.com/a_b(c).", [("url", "https://example.com/a_b(c)")]),
        ("(https://example.com/x.py)", [("url", "https://example.com/x.py")]),
        ('the "sign in" page', [("quoted", "sign in")]),
        ("it's the user's 'old way', isn't it", [("quoted", "old way")]),
        ("\u201cnot found\u201d", [("quoted", "not found")]),
        ("`main.py` and `run()`", [("file", "main.py"), ("symbol", "run")]),
        ("`cat main.py`", [("quoted", "cat main.py"), ("file", "main.py")]),
        ("and/or, e.g. 3.14, i.e. 24/7, the file(s) -- ...", []),
        ("", []),
    ],
)
def test_entities_of_a_text_and_their_kinds(text: str, expected: list[tuple[str, str]]) -> None:
    assert entities_of(text) == expected


def test_a_repeated_entity_is_returned_once_at_its_first_mention() -> None:
    assert entities_of("b.py a.py b.py") == [("file", "b.py"), ("file", "a.py")]


def test_entities_are_bounded_and_come_from_both_ends_of_a_long_text() -> None:
    assert len(extract_entities(" ".join(f"f{index}.py" for index in range(500)))) == MAX_ENTITIES
    assert entities_of("a.py " + "word " * 10_000 + "b.py") == [("file", "a.py"), ("file", "b.py")]


@given(st.text())
def test_every_entity_occurs_in_the_text(text: str) -> None:
    assert all(entity.text and entity.text in text for entity in extract_entities(text))


def test_keywords_are_distinct_words_without_stop_words() -> None:
    assert extract_keywords("Fix the API endpoint, and fix get_user!") == (
        "fix",
        "api",
        "endpoint",
        "get_user",
    )
    assert extract_keywords("?? !! a the") == ()
    assert len(extract_keywords(" ".join(f"word{index}" for index in range(200)))) == 64


@pytest.mark.parametrize(
    "family",
    ["parse parses parsed parsing parser parsers", "query queries", "work works working worked",
     "class classes", "file files", "user users", "debug debugging debugged",
         "apply applied applies"],
)  # fmt: skip
def test_forms_of_a_word_have_the_same_stem(family: str) -> None:
    assert list(stem_counts(family).values()) == [len(family.split())]


@pytest.mark.parametrize("pair", ["bus business", "status stat", "app apply", "string strict"])
def test_different_words_have_different_stems(pair: str) -> None:
    assert len(stem_counts(pair.replace("us", "bus") if pair == "bus business" else pair)) == 2


def test_texts_without_common_words_have_similarity_zero() -> None:
    assert similarity(stem_counts("the rain"), stem_counts("the sun")) == 0.0
    assert similarity(stem_counts(""), stem_counts("rain")) == 0.0
    assert similarity({}, {}) == 0.0


def test_more_common_words_raise_the_similarity() -> None:
    query = stem_counts("rain and wind in the mountains")
    near, distant = (
        similarity(query, stem_counts(text))
        for text in ("winds of the mountain", "a mountain of paper work")
    )
    assert near > distant > 0
    assert similarity(query, query) == pytest.approx(1.0)


@given(st.text(), st.text())
def test_similarity_is_symmetric_and_bounded(left: str, right: str) -> None:
    left_counts, right_counts = stem_counts(left), stem_counts(right)
    assert (
        0.0 <= similarity(left_counts, right_counts) == similarity(right_counts, left_counts) <= 1.0
    )
