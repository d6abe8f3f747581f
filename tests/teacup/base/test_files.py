"""JSON with a checksum: what comes back is what was written, or an error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacup.base.files import check, checked_text, from_checked_text, with_checksum

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_a_value_comes_back(value):
    """On one line, whatever is in it."""
    line = checked_text(value)

    assert "\n" not in line
    assert from_checked_text(line, object) == value


@given(VALUES, st.data())
def test_one_changed_bit_is_noticed_wherever_it_is(value, data):
    """In the checksum as well."""
    line = bytearray(checked_text(value).encode())
    line[data.draw(st.integers(0, len(line) - 1))] ^= 1 << data.draw(st.integers(0, 7))

    with pytest.raises(ValueError):  # noqa: PT011 - of the checksum, or because this is no UTF-8 any more
        from_checked_text(line.decode(), object)


@given(VALUES, st.data())
def test_a_line_that_was_cut_off_is_noticed(value, data):
    """Wherever it ends."""
    line = checked_text(value)

    with pytest.raises(ValueError, match="checksum"):
        from_checked_text(line[: data.draw(st.integers(0, len(line) - 1))], object)


@given(VALUES)
def test_json_without_a_checksum_is_refused(value):
    """Earlier versions wrote it so."""
    with pytest.raises(ValueError, match="checksum"):
        from_checked_text(json.dumps(value), object)


@given(
    st.dictionaries(st.integers(0, 20), VALUES, max_size=4) | st.dictionaries(st.text(max_size=2), VALUES, max_size=4)
)
def test_an_object_with_its_checksum_passes(members):
    """Also when it comes back from a file, where all names are texts."""
    found = with_checksum(members)

    assert with_checksum(found) == found
    check(found)
    check(json.loads(json.dumps(found)))
    check(members)


@given(st.dictionaries(st.text(max_size=2), st.integers(), min_size=1, max_size=4), st.data())
def test_an_object_with_another_member_does_not(members, data):
    """Whichever it is."""
    found = with_checksum(members)
    found[data.draw(st.sampled_from(sorted(members)))] += 1

    with pytest.raises(ValueError, match="checksum"):
        check(found)
