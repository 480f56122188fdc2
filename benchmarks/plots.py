"""Draw the plots of docs/benchmarks.md from the figures in its tables: `python -m benchmarks.plots`.

Each plot is an SVG without scripts and fonts. It paints its own background, and follows the
reader's colour scheme.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "benchmarks.md"
IMAGES: Final = ROOT / "docs" / "images"

_WIDTH, _LABEL_WIDTH, _NOTE_WIDTH = 760, 330, 110
_BAR, _GAP, _ROW_GAP = 9, 2, 9
_LEGEND_HEIGHT, _MARGIN = 30, 12
_COLOURS: Final = ("a", "b", "c")
# Each pair of text and background has a contrast above 7.
_STYLE: Final = """\
rect.page { fill: #ffffff }
text { fill: #24292f; font: 12px system-ui, sans-serif }
text.ours { font-weight: 700 }
line { stroke: #8c959f; stroke-width: 1 }
.a { fill: #3f51b5 } .b { fill: #00838f } .c { fill: #b26a00 }
@media (prefers-color-scheme: dark) {
rect.page { fill: #1e2129 }
text { fill: #e6e8ee }
.a { fill: #8c9eff } .b { fill: #4dd0e1 } .c { fill: #ffb74d }
}"""


@dataclass(frozen=True)
class Row:
    """The bars of one subject.

    Attributes:
        label: The subject.
        shares: The length of each bar, from 0 to 1.
        note: A text to the right of the bars.
    """

    label: str
    shares: Sequence[float]
    note: str = ""


@dataclass(frozen=True)
class Plot:
    """Horizontal bars of several subjects.

    Attributes:
        title: What the bars measure, for readers who do not see them.
        series: The name of each bar of a subject.
        rows: The subjects from top to bottom. Ours, llm-common and its `fold`, are bold.
    """

    title: str
    series: Sequence[str]
    rows: Sequence[Row]

    def svg(self) -> str:
        """Return the plot as an SVG document."""
        row_height = len(self.series) * (_BAR + _GAP) + _ROW_GAP
        height = _LEGEND_HEIGHT + len(self.rows) * row_height + _MARGIN
        parts = [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
                f'viewBox="0 0 {_WIDTH} {height}" role="img">'
            ),
            f"<title>{escape(self.title)}</title>",
            f"<style>\n{_STYLE}\n</style>",
            f'<rect class="page" width="{_WIDTH}" height="{height}"/>',
        ]
        parts += self._legend()
        for index, row in enumerate(self.rows):
            parts += self._bars(row, top=_LEGEND_HEIGHT + index * row_height)
        bottom = height - _MARGIN
        parts.append(
            f'<line x1="{_LABEL_WIDTH}" y1="{_LEGEND_HEIGHT}" x2="{_LABEL_WIDTH}" y2="{bottom}"/>'
        )
        return "\n".join([*parts, "</svg>", ""])

    def _legend(self) -> list[str]:
        parts = []
        for index, name in enumerate(self.series):
            left = _LABEL_WIDTH + index * 110
            parts.append(
                f'<rect class="{_COLOURS[index]}" x="{left}" y="9" width="10" height="10"/>'
            )
            parts.append(f'<text x="{left + 15}" y="18">{escape(name)}</text>')
        return parts

    def _bars(self, row: Row, *, top: int) -> list[str]:
        bars_height = len(row.shares) * (_BAR + _GAP)
        middle = top + bars_height / 2 + 4
        kind = ' class="ours"' if row.label.startswith(("llm-common", "fold")) else ""
        parts = [
            (
                f'<text{kind} x="{_LABEL_WIDTH - 8}" y="{middle:g}" text-anchor="end">'
                f"{escape(row.label)}</text>"
            )
        ]
        longest = _WIDTH - _LABEL_WIDTH - _NOTE_WIDTH
        for index, share in enumerate(row.shares):
            y = top + index * (_BAR + _GAP)
            parts.append(
                f'<rect class="{_COLOURS[index]}" x="{_LABEL_WIDTH}" y="{y}" '
                f'width="{max(1, round(share * longest))}" height="{_BAR}"/>'
            )
        parts.append(
            f'<text x="{_WIDTH - _MARGIN}" y="{middle:g}" text-anchor="end">'
            f"{escape(row.note)}</text>"
        )
        return parts


def table(page: str, header: str) -> list[list[str]]:
    """Return the cells of the table whose header begins with these cells, row by row.

    Raises:
        ValueError: If the page has no such table, or several.
    """
    pattern = rf"^\| {re.escape(header)} .*\n\|[-|]+\|\n((?:\|.*\n)+)"
    matches = re.findall(pattern, page, re.MULTILINE)
    if len(matches) != 1:
        raise ValueError(f"{len(matches)} tables begin with | {header}")
    rows = []
    for line in matches[0].splitlines():
        cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        rows.append(cells)
    return rows


def _plain(text: str) -> str:
    return text.replace("`", "")


def previews(page: str) -> Plot:
    """Return the shares of answers that each preview of a product search holds."""
    tables = [
        *table(page, "preview | products | log"),
        *table(page, "package and its offloader | products | log"),
    ]
    rows = []
    for name, products, *_, tokens in tables:
        shares = [float(share) for share in products.split(" / ")]
        rows.append(Row(_plain(name), shares, f"{tokens} tokens"))
    series = ("look-ups", "list items", "counts")
    return Plot("Share of the answers that a preview holds", series, rows)


def outputs(page: str) -> Plot:
    """Return the mean recall of each way to choose outputs."""
    names = ("newest", "overlap", "BM25", "spec", "llm-common", "llm-common + vectors")
    [mean] = [row for row in table(page, "set (questions)") if row[0] == "pointers: mean"]
    pairs = sorted(zip(names, mean[1:], strict=True), key=lambda pair: -float(pair[1]))
    rows = [Row(name, [float(share)], share) for name, share in pairs]
    return Plot("Recall of the needed outputs among the six chosen", ("Recall@6",), rows)


def values(page: str) -> Plot:
    """Return the shares of needed values in a folded prompt."""
    rows = []
    for name, *cells in table(page, "what is sent | 1,000 tokens | 2,000 tokens"):
        if "without" in name:  # a variant that was tried
            continue
        shares = [cell.split(" ")[0] for cell in cells]
        rows.append(Row(_plain(name), [float(share) for share in shares], " / ".join(shares)))
    series = ("1,000 tokens", "2,000 tokens")
    return Plot("Share of the values of the next call in the prompt", series, rows)


def plots() -> dict[Path, str]:
    """Return each plot with the path of its file."""
    page = PAGE.read_text(encoding="utf-8")
    made = {"previews": previews(page), "outputs": outputs(page), "values": values(page)}
    return {IMAGES / f"{name}.svg": plot.svg() for name, plot in made.items()}


if __name__ == "__main__":
    for path, svg in plots().items():
        path.write_text(svg, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
