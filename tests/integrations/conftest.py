"""A test of a framework is collected where what its first requirement names is installed.

See `Makefile`.
"""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path


def is_installed(requirements: Path) -> bool:
    try:
        distribution(requirements.read_text(encoding="utf-8").partition("==")[0])
    except PackageNotFoundError:
        return False
    return True


collect_ignore = [
    f"test_{path.stem}.py" for path in Path(__file__).parent.glob("*.txt") if not is_installed(path)
]
