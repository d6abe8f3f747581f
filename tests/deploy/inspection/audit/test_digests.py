"""Digests of texts that are put together equal those of the whole."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from deploy.inspection.audit import digests
from deploy.inspection.audit.digests import of_column, of_text

TEXTS = st.lists(st.binary(max_size=12), min_size=1, max_size=8)


@given(TEXTS, st.data(), st.sampled_from((1, 5, 1 << 20)))
def test_the_digest_of_a_whole_follows_from_its_parts(texts, data, piece):
    """However large the pieces are in which it is hashed, and wherever the column was cut from."""
    others = data.draw(st.lists(st.binary(max_size=12), min_size=len(texts), max_size=len(texts)))
    was, digests.PIECE = digests.PIECE, piece
    digests._powers.cache_clear()
    try:
        parts = of_column(pa.array([b"cut off", *texts], pa.binary()).slice(1)).then(of_column(pa.array(others)))
        whole = of_column(pa.array([a + b for a, b in zip(texts, others, strict=True)], pa.binary()))
    finally:
        digests.PIECE = was
        digests._powers.cache_clear()

    assert parts.value.tolist() == whole.value.tolist()
    assert parts.size.tolist() == whole.size.tolist()


@given(st.binary(min_size=1, max_size=40), st.data())
def test_any_changed_byte_changes_it(text, data):
    """Also a single one, anywhere."""
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != text[at]))
    changed = text[:at] + bytes([other]) + text[at + 1 :]

    assert of_column(pa.array([text])).value != of_column(pa.array([changed])).value


def test_null_is_no_text():
    """It has no bytes, as an empty text: whoever asks knows which it is."""
    found = of_column(pa.array([None, b"", b"a"], pa.binary()))

    assert found.size.tolist() == [0, 0, 1]
    assert of_text("a").value[0] == found.value[2] == ord("a")
