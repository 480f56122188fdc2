"""What the model sees of a long result if the store fails."""


def assert_cut(text: str) -> None:
    """Check that a list of parts is shown by its beginning and end, and that this is said."""
    assert "characters were not kept: the store failed" in text
    assert "part 1" in text[:200]
    assert "stock" in text[-200:]
    assert 10_000 < len(text) < 110_000
