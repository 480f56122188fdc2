"""`STOP_WORDS`: the English words that say nothing about what a text is about."""

__all__ = ["STOP_WORDS"]

STOP_WORDS = frozenset(  # one paragraph, since a list would take a page
    """
    a an the this that these those some any such
    i me my mine we us our ours you your yours he him his she her hers it its they them their theirs
    am is are was were be been being do does did doing done have has had having
    can could shall should will would may might must
    and or but nor not no if then than so because as while until though
    of at by for with about into onto to from in on off out over under up down between through during
    who whom whose which what when where why how
    there here all both each either neither more most other own same too very just also only again further once
    please want need help let give tell know like
    s t d ll m re ve don isn aren wasn doesn didn won couldn wouldn
    """.split()  # noqa: SIM905
)
