"""One conversation: `session.Session`, and the four parts behind it.

`results` offloads, reads, finds and queries. `history` pins and folds. `tools` chooses and offers
tools. `packing` packs one prompt. Each can be imported alone, and a session imports one when it is
first used. `saved` keeps the results for all of them.
"""

__all__ = []
