"""What a preview claims of records."""

import re
from dataclasses import dataclass
from typing import Final

_CLAIM: Final = re.compile(r"(?P<condition>.+): (?P<count>[\d,]+) of (?P<total>[\d,]+) records")
_ALL: Final = "All of these"


@dataclass(frozen=True, slots=True)
class Claim:
    """A line `CONDITION: n of m records`."""

    condition: str
    count: int
    total: int


def claims_in(preview: str) -> list[Claim]:
    """Return the claims of a preview, in their order."""
    claims = []
    for line in preview.splitlines():
        match = _CLAIM.fullmatch(line)
        if match is not None:
            count, total = (int(match[name].replace(",", "")) for name in ("count", "total"))
            claims.append(Claim(match["condition"], count, total))
    return claims


def claimed_count(claims: list[Claim]) -> int | None:
    """Return how many records are claimed to be meant, or None."""
    if not claims:
        return None
    [*_, last] = claims
    return last.count if len(claims) == 1 or last.condition == _ALL else None
