"""One conversation: `session.Session`, and the five parts behind it.

`offloading` replaces long results by previews. `results` reads, finds and queries what is stored.
`history` pins and folds. `tools` chooses and offers tools. `packing` packs one prompt. Each can be
imported alone, and a session imports one when it is first used. `saved` keeps the results for all
of them.
"""

__all__ = []
