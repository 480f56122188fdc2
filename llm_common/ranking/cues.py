"""Recognize in a request that it points back, or that it surveys a conversation.

Small word lists, one line a language: English, German, French, Spanish, Italian, Portuguese, Dutch,
Polish, Russian, Turkish, Arabic, Hindi, Chinese, Japanese and Korean. Words that are also articles,
such as `das` and `le`, are left out.
"""

import re
from typing import Final

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
