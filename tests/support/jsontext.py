"""Whether one text is JSON, decided by a tokenizer in Python: an oracle for the C library."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
        (?P<bracket>[\[\]{},:])
      | (?P<string>"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")
      | (?P<other>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null)
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)

_VALUE, _FIRST, _NAME, _FIRST_NAME, _COLON, _AFTER = "value", "first element", "name", "first name", "colon", "after"
_NEXT = {
    **{(state, kind): _AFTER for state in (_VALUE, _FIRST) for kind in ("string", "other")},
    **{(state, "["): _FIRST for state in (_VALUE, _FIRST)},
    **{(state, "{"): _FIRST_NAME for state in (_VALUE, _FIRST)},
    **{(state, "string"): _COLON for state in (_NAME, _FIRST_NAME)},
    (_COLON, ":"): _VALUE,
    (_FIRST, "]"): _AFTER,
    (_FIRST_NAME, "}"): _AFTER,
}
"""What is expected next, by what was expected and the token found."""

_AFTER_VALUE = {("[", ","): _VALUE, ("{", ","): _NAME, ("[", "]"): _AFTER, ("{", "}"): _AFTER}
"""The same after a value, by the innermost open bracket and the token found."""


def is_json(text: str) -> bool:
    """Returns whether one text is JSON. Its depth is limited by memory only."""
    open_brackets: list[str] = []
    expected, at = _VALUE, 0
    while (found := _TOKEN.match(text, at)) is not None:
        at = found.end()
        kind = found[0][-1] if found.lastgroup == "bracket" else str(found.lastgroup)
        if kind == "end":
            return expected == _AFTER and not open_brackets
        if expected == _AFTER:
            inside = open_brackets[-1] if open_brackets else ""
            following = _AFTER_VALUE.get((inside, kind))
        else:
            following = _NEXT.get((expected, kind))
        if following is None:
            return False
        if kind in "[{":
            open_brackets.append(kind)
        elif kind in "]}":
            open_brackets.pop()
        expected = following
    return False
