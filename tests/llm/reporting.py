"""Print what a model answered, so that a person can judge it."""


def report(what: str, value: object) -> None:
    print(f"\n--- {what}: {value}")  # noqa: T201 - for the person who runs it
