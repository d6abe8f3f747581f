"""A small canvas for SVG: boxes, arrows, dots and text in one style.

A picture has a light card of its own, so that it looks the same on a light and on a dark page. Text is measured with
the widths of Helvetica, which Arial and Liberation Sans share, and some room for wider fonts such as DejaVu Sans. A
canvas refuses what would be hard to read: text that leaves its box or the card, that overlaps other text, or that a
line runs through.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import combinations, pairwise

FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"
LINE = 17
"""Distance of two lines of text, in pixels."""

WIDTHS = {
    222: "ijl",
    278: " !,./:;I[]\\ft",
    333: "-()r`",
    500: "Jcksvxyz",
    556: "0123456789?_Labdeghnopqu",
    584: "+<=>~−",
    611: "FTZ",
    667: "ABEKPSVXY&",
    722: "CDHNRUw",
    778: "GOQ",
    833: "Mm",
    944: "W",
    1000: "→—…",
}
WIDTH_OF = {character: width for width, characters in WIDTHS.items() for character in characters}
WIDEST, BOLD, ROOM = 1000, 1.1, 1.17

Point = tuple[float, float]


class Unreadable(ValueError):
    """Something on a canvas cannot be read where it is; the message names it."""


@dataclass(frozen=True)
class Tone:
    """The colours of one kind of thing: its outline and text, and its filling."""

    ink: str
    fill: str


PLAIN = Tone("#1f2933", "#ffffff")
CONTROL = Tone("#475569", "#eef1f5")
LEFT = Tone("#1f5fa8", "#e4eefa")
RIGHT = Tone("#a8500a", "#fdf0dc")
GOOD = Tone("#24703f", "#e2f3e7")
BAD = Tone("#b3261e", "#fbe8e6")
FADED = Tone("#7b8794", "#e4e7eb")


@dataclass(frozen=True)
class Text:
    """A piece of text and the rectangle that it covers."""

    words: str
    x0: float
    y0: float
    x1: float
    y1: float

    def overlaps(self, other: Text) -> bool:
        """Whether both cover a common point."""
        return self.x0 < other.x1 and other.x0 < self.x1 and self.y0 < other.y1 and other.y0 < self.y1

    def crossed_by(self, start: Point, end: Point) -> bool:
        """Whether a straight line, horizontal or vertical, runs through it."""
        (xa, xb), (ya, yb) = sorted((start[0], end[0])), sorted((start[1], end[1]))
        return xa < self.x1 and self.x0 < xb + 0.1 and ya < self.y1 and self.y0 < yb + 0.1


def width_of(words: str, size: float, bold: bool = False) -> float:
    """The width of a text in pixels, in the widest of the usual fonts."""
    return sum(WIDTH_OF.get(one, WIDEST) for one in words) / 1000 * size * ROOM * (BOLD if bold else 1)


class Canvas:
    """One picture; y grows downwards, lengths are pixels."""

    def __init__(self, title: str, description: str, width: int, height: int) -> None:
        self._title, self._description = title, description
        self._width, self._height = width, height
        self._parts: list[str] = []
        self._texts: list[Text] = []
        self._lines: list[tuple[Point, Point]] = []
        self.text(24, 34, title, size=18, bold=True)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        tone: Tone = PLAIN,
        size: int = 13,
        bold: bool = False,
        at: str = "start",
    ) -> Text:
        """Text on the base line `y`; `at` says which end of it `x` is: start, middle or end."""
        width = width_of(words, size, bold)
        x0 = x - {"start": 0.0, "middle": width / 2, "end": width}[at]
        text = Text(words, x0, y - 0.75 * size, x0 + width, y + 0.2 * size)
        self._texts.append(text)
        weight = ' font-weight="bold"' if bold else ""
        anchor = "" if at == "start" else f' text-anchor="{at}"'
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{tone.ink}"{weight}{anchor}>{escape(words)}</text>'
        )
        return text

    def box(
        self, x: float, y: float, width: float, height: float, title: str, *lines: str, tone: Tone = CONTROL
    ) -> None:
        """A filled box with a bold title and lines below it, all in its middle."""
        self._rectangle(x, y, width, height, f'fill="{tone.fill}" stroke="{tone.ink}" stroke-width="1.5"')
        top = y + height / 2 - LINE * len(lines) / 2 + 4.5
        for number, words in enumerate([title, *lines]):
            bold = number == 0
            text = self.text(x + width / 2, top + number * LINE, words, tone=tone, bold=bold, at="middle")
            if text.x0 < x + 4 or text.x1 > x + width - 4 or text.y1 > y + height:
                raise Unreadable(f"{self._title}: {words!r} leaves its box at {x:g}, {y:g}")

    def frame(self, x: float, y: float, width: float, height: float, label: str, tone: Tone = CONTROL) -> None:
        """A dashed frame around other things, with a label above it."""
        self._rectangle(x, y, width, height, f'fill="none" stroke="{tone.ink}" stroke-dasharray="6 4"')
        self.text(x + 2, y - 7, label, tone=tone, bold=True)

    def band(self, x: float, y: float, width: float, height: float, tone: Tone) -> None:
        """A filled area without an outline, behind what is drawn later."""
        self._rectangle(x, y, width, height, f'fill="{tone.fill}"')

    def line(self, *points: Point, tone: Tone = CONTROL, dashed: bool = False, arrow: bool = False) -> None:
        """Horizontal and vertical strokes from point to point, with a head at the end if it is an arrow."""
        self._lines += pairwise(points)
        path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(f'<path d="{path}" fill="none" stroke="{tone.ink}" stroke-width="1.5"{dashes}/>')
        if arrow:
            self._head(points[-2], points[-1], tone)

    def arrow(self, *points: Point, tone: Tone = CONTROL, dashed: bool = False) -> None:
        """A line with a head at its last point."""
        self.line(*points, tone=tone, dashed=dashed, arrow=True)

    def dot(self, x: float, y: float, tone: Tone, *, hollow: bool = False) -> None:
        """A record; hollow where it has not been read, or is held back."""
        fill = "#ffffff" if hollow else tone.ink
        self._parts.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="5" fill="{fill}" stroke="{tone.ink}" stroke-width="1.5"/>'
        )

    def cross(self, x: float, y: float, tone: Tone = BAD) -> None:
        """Where something is killed."""
        self._parts.append(
            f'<path d="M{x - 8:g} {y - 8:g} L{x + 8:g} {y + 8:g} M{x - 8:g} {y + 8:g} L{x + 8:g} {y - 8:g}" '
            f'stroke="{tone.ink}" stroke-width="3.5" stroke-linecap="round"/>'
        )

    def svg(self) -> str:
        """The picture as a file. Raises Unreadable."""
        self._check()
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width} {self._height}" '
                f'width="{self._width}" height="{self._height}" role="img" font-family="{FONT}">',
                f"<title>{escape(self._title)}</title>",
                f"<desc>{escape(self._description)}</desc>",
                f'<rect x="0.5" y="0.5" width="{self._width - 1}" height="{self._height - 1}" rx="10" '
                'fill="#fcfcfd" stroke="#cbd2d9"/>',
                *self._parts,
                "</svg>\n",
            ]
        )

    def _rectangle(self, x: float, y: float, width: float, height: float, look: str) -> None:
        self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" {look}/>')

    def _head(self, before: Point, end: Point, tone: Tone) -> None:
        (xa, ya), (x, y) = before, end
        dx, dy = (x > xa) - (x < xa), (y > ya) - (y < ya)
        back_x, back_y = x - 9 * dx, y - 9 * dy
        wing_x, wing_y = 4.5 * dy, 4.5 * dx
        corners = (end, (back_x - wing_x, back_y - wing_y), (back_x + wing_x, back_y + wing_y))
        self._parts.append(f'<path d="M{" L".join(f"{a:g} {b:g}" for a, b in corners)} Z" fill="{tone.ink}"/>')

    def _check(self) -> None:
        for text in self._texts:
            if text.x0 < 8 or text.x1 > self._width - 8 or text.y0 < 8 or text.y1 > self._height - 8:
                raise Unreadable(f"{self._title}: {text.words!r} leaves the card")
            for start, end in self._lines:
                if text.crossed_by(start, end):
                    raise Unreadable(f"{self._title}: the line {start} to {end} runs through {text.words!r}")
        for one, other in combinations(self._texts, 2):
            if one.overlaps(other):
                raise Unreadable(f"{self._title}: {one.words!r} and {other.words!r} overlap")
