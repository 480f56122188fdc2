"""`llm-common demo`: an agent asks eight questions of public data, without a key or a network.

`questions` has the questions, `public_data` the tools, and `agent` asks one after the other.
`baselines` are simpler ways to fill a prompt, and `report` prints what each of them shows.
"""

__all__: list[str] = []
