"""`llm-common demo`: an agent asks eight questions of public data, without a key or a network.

`public_data` has the questions and the tools, and `agent` asks one question, and fills as many
tokens in simpler ways. `report` prints what each of them shows.
"""

__all__: list[str] = []
