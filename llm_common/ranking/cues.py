"""Recognize in a request what it names, that it points back, or that it surveys a conversation.

Small word lists tell the last two, one line a language: English, German, French, Spanish, Italian,
Portuguese, Dutch, Polish, Russian, Turkish, Arabic, Hindi, Chinese, Japanese and Korean. Words that
are also articles, such as `das` and `le`, are left out.
"""

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from llm_common.ranking.lexical import folded

_WORDS_BACK: Final = """
    that this it these those them same again now also then instead yes yeah yep yup ok okay sure no
    nope ahead proceed continue previous previously earlier last latest recent recently newest new
    just above my our
    ja nein okay danke dies diese dieser dieses diesen ihn jetzt nochmal wieder stattdessen gleiche
    gleichen vorige vorigen letzte letzten neueste neuesten neue neuen gerade mein meine meinen
    oui non merci ca cela celui celle cette cet maintenant aussi encore plutot meme precedent
    precedente dernier derniere nouveau nouvelle recent mon ma mes
    si no gracias vale eso esto ese esa este esta ahora tambien mismo misma anterior ultimo ultima
    nuevo nueva reciente mi mis
    grazie questo questa quello quella ora anche ancora stesso stessa precedente nuovo nuova mio mia
    sim nao isso isto esse essa agora tambem mesmo mesma novo nova meu minha
    nee oke bedankt dat dit deze die nu ook opnieuw zelfde vorige laatste nieuwste nieuwe mijn
    tak nie dobrze ta te teraz tez znowu poprzedni poprzednia ostatni ostatnia nowy nowa moj moja
    да нет хорошо это этот эта эту эти его её их теперь тоже снова опять тот последний последнюю
    предыдущий новый новую мой мою
    evet hayır tamam bu bunu şu onu şimdi yine aynı önceki son yeni benim
    نعم لا هذا هذه ذلك تلك الآن أيضا نفس السابق الأخير الجديد
    हाँ नहीं यह वह इसे उसे अब फिर वही पिछला पिछली नया नई मेरा मेरी
"""  # noqa: RUF001 - other alphabets
_LETTERS_BACK: Final = """
    是的 好的 这 這 那 它 刚才 剛才 上一 上次 之前 最新 最近 新的 同样 再次 我的
    はい いいえ それ これ その この さっき 先ほど 前の 最新 最近 新しい 同じ もう一度 私の
    그것 이것 그거 이거 방금 아까 이전 마지막 최신 최근 새로운 같은 다시
"""
_STEMS_SURVEY: Final = """
    summar recap overview discuss debat opinion think thought conclu
    zusammenfass uberblick diskut besproch besprech meinung
    resum synthese apercu discut avis
    resumen opina riassum riepilog discuss sintesi opini
    samenvat overzicht besprok mening podsum omow dyskut
    резюм обобщ обсуд обсужд мнени özet tartış görüş
    لخص ملخص ناقش सारांश चर्चा
"""  # noqa: RUF001 - other alphabets
_LETTERS_SURVEY: Final = """
    总结 總結 概述 摘要 讨论 討論 看法 意见 意見 要約 まとめ 議論 概要 요약 논의 의견 개요
"""


def _pattern(words: str, letters: str, *, is_stem: bool) -> re.Pattern[str]:
    """Compile words that stand alone or begin a word, and letters that may be within one."""
    listed = "|".join(map(re.escape, folded(words).split()))
    end = "" if is_stem else r"(?!\w)"
    return re.compile(rf"(?<!\w)(?:{listed}){end}|{'|'.join(folded(letters).split())}")


_POINTS_BACK: Final = _pattern(_WORDS_BACK, _LETTERS_BACK, is_stem=False)
_SURVEYS: Final = _pattern(_STEMS_SURVEY, _LETTERS_SURVEY, is_stem=True)


def points_back(request: str) -> bool:
    """Return whether a request refers to what came last: "that", "it", "yes", "the new one"."""
    return _POINTS_BACK.search(folded(request)) is not None


def surveys(request: str) -> bool:
    """Return whether a request asks for a summary, a discussion or opinions, and not for a fact."""
    return _SURVEYS.search(folded(request)) is not None


NameKind = Literal["url", "email", "quoted", "path", "file", "symbol"]


class Name(NamedTuple):
    """A part of a text that its form tells from words.

    Attributes:
        start: Where it begins in the text.
        end: Where it ends, with the quotes around it.
        kind: What it looks like.
        text: The name, without quotes and the punctuation of the sentence.
    """

    start: int
    end: int
    kind: NameKind
    text: str


CODE_EXTENSIONS: Final = frozenset(  # one paragraph, since a list would take a page
    """
    asm bash bat c cc cfc cjs clj cljs cmake coffee cpp cr cs css cu cxx d dart ejs el elm erl ex
    exs f90 fs fsx glsl go gradle graphql groovy h hh hpp hrl hs htm html hxx ino ipynb java jl js
    jsx kt kts less lisp lua m mjs mk ml mli mm mts nim nix pas php pl pm proto ps1 purs py pyi pyx
    r rb re rkt rs s sass scala scm scss sh sol sql sv svelte swift tcl tf ts tsx v vb vhd vim vue
    wat wgsl zig zsh
    """.split()  # noqa: SIM905
)
"""Extensions of files that hold program text, without the dot, in lower case."""

FILE_EXTENSIONS: Final = CODE_EXTENSIONS | frozenset(
    """
    adoc avro bin bmp cfg conf config csv dat db diff doc docx dockerfile env gif gz ico ini jar
    jpeg jpg json json5 jsonc jsonl lock log markdown md mdx mp3 mp4 ndjson odt parquet patch pdf
    pem pkl png ppt pptx properties rst so sqlite svg tar tex toml tsv txt wav webp whl xls xlsx xml
    yaml yml zip
    """.split()  # noqa: SIM905
)
"""Extensions that tell a file name from other words with a dot."""

_URL: Final = re.compile(r"(?:https?|ftp|file|ssh|git)://[^\s<>\"'`]{1,2000}", re.IGNORECASE)
# A single quote beside a letter is an apostrophe, as in `don't`.
_QUOTED: Final = re.compile(
    r"(?<!\w)(?:"
    r"\"[^\"\n]{1,200}\"|`[^`\n]{1,200}`|'[^'\n]{1,200}'(?!\w)"
    r"|\u201c[^\u201d\n]{1,200}\u201d|\u00ab[^\u00bb\n]{1,200}\u00bb"
    r"|\u2018[^\u2019\n]{1,200}\u2019(?!\w))"
)
_EMAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}")
_SEPARATOR: Final = re.compile(r"[/\\]")
# A plural such as `file(s)` is not a call.
_TOKEN: Final = re.compile(r"(?:\b[A-Za-z]:(?=[/\\]))?[\w.~@+$/\\-]+(?P<call>\((?!s\)))?")
_TRAILING: Final = ".-+@$"
_ROOTED: Final = re.compile(r"(?:[A-Za-z]:|~|\.{1,2})?[/\\]\w")
_FILE_NAMES: Final = frozenset(  # a paragraph, since a list would take a page
    """
    CHANGELOG CONTRIBUTING Dockerfile Gemfile Jenkinsfile LICENSE Makefile Procfile README Rakefile
    """.split()  # noqa: SIM905
)
_HIDDEN_FILE: Final = re.compile(r"\.[a-z][a-z0-9._-]+")
_IDENTIFIER: Final = re.compile(r"[^\W\d]\w*")
# Each part has two characters or more, because `e.g.` and `i.e.` name nothing.
_DOTTED: Final = re.compile(r"[^\W\d]\w+(?:\.[^\W\d]\w+)+")
# Capitals need two small letters after them, because `URLs` and `PDFs` are plain plurals.
_CAMEL: Final = re.compile(r"[a-z]+[A-Z]|[A-Z]+[a-z0-9]+[A-Z]|[A-Z]{2,}[a-z]{2}")


def names_in(text: str) -> list[Name]:
    """Return what a text names, in its order. What is named within quotes follows the quote.

    Symbols are names such as `HttpClient`, `get_user`, `os.path.join` and `run()`, the last
    without its parentheses. A path without a known extension begins at a root or with a dot. Takes
    time linear in the text.
    """
    names: list[Name] = []
    for match in _URL.finditer(text):
        # Without the punctuation of the sentence around it.
        url = match[0].rstrip(".,;:!?")
        while url.endswith(")") and url.count(")") > url.count("("):
            url = url[:-1].rstrip(".,;:!?")
        names.append(Name(match.start(), match.end(), "url", url))
    # Blanked at the same length, so that the positions of later names stay the same.
    text = _URL.sub(_blank, text)
    for match in _QUOTED.finditer(text):
        phrase = match[0][1:-1].strip()
        if phrase:
            names.append(Name(match.start(), match.end(), "quoted", phrase))
    for match in _EMAIL.finditer(text):
        names.append(Name(match.start(), match.end(), "email", match[0]))
    names += _tokens(_EMAIL.sub(_blank, text))
    return sorted(names, key=lambda name: (name.start, -name.end))


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _tokens(text: str) -> Iterator[Name]:
    """Yield the paths, files and symbols of a text."""
    for match in _TOKEN.finditer(text):
        name = match[0].removesuffix("(").lstrip("@+$-").rstrip(_TRAILING)
        kind = _kind(name, called=match["call"] is not None)
        if kind:
            yield Name(match.start(), match.end(), kind, name)


def _kind(name: str, *, called: bool) -> NameKind | None:
    """Return the kind of a name, or None for a plain word."""
    _, dot, extension = name[1:].rpartition(".")  # a leading dot marks a hidden file
    has_extension = dot != "" and extension.lower() in FILE_EXTENSIONS
    if _SEPARATOR.search(name):
        # Without an extension, only a name from a root or a dot: `read/write` is no path.
        return "path" if has_extension or _ROOTED.match(name) else None
    if called and (_IDENTIFIER.fullmatch(name) or _DOTTED.fullmatch(name)):
        return "symbol"
    if has_extension or name in _FILE_NAMES or _HIDDEN_FILE.fullmatch(name):
        return "file"
    looks_like_code = "_" in name.strip("_") or name[:2] == "__" or _CAMEL.match(name)
    if _DOTTED.fullmatch(name) or (_IDENTIFIER.fullmatch(name) and looks_like_code):
        return "symbol"
    return None
