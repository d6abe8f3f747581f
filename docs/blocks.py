"""Parts of a page that are written by a program, each between `<!-- WHAT of NAME:start -->` and its `end`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable


def with_blocks(page: str, what: str, content: Callable[[str], str]) -> str:
    """The page with the present content of each block, by its name."""

    def block(match: re.Match[str]) -> str:
        start, name, end = match.groups()
        return f"{start}\n{content(name)}\n{end}"

    return re.sub(rf"(<!-- {what} of ([\w -]+):start -->).*?(<!-- {what} of \2:end -->)", block, page, flags=re.DOTALL)


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines).replace("| --- ", "|---").replace("--- |", "---|")
