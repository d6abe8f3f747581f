"""The state of `teacup unjoined` comes back as it was saved, or the run ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.checkpoint.verdicts import load, save
from joins.lookup.unjoined.expired import Verdicts
from teacup.spark.errors import CheckpointInvalid

STATE = Verdicts("g", "j", {"right": "id"}, 0, {0: 30}, {0: 1}, ())


def test_the_state_comes_back(tmp_path: Path) -> None:
    """None before the first run."""
    before = load(str(tmp_path))
    save(str(tmp_path), STATE)

    assert (before, load(str(tmp_path))) == (None, STATE)


def test_a_flipped_bit_ends_the_run(tmp_path: Path) -> None:
    """Wherever it is: another position would skip records, or report them twice."""
    save(str(tmp_path), STATE)
    (path,) = (tmp_path / "unjoined").iterdir()
    whole = path.read_bytes()

    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(CheckpointInvalid, match=r"verdicts\.json.*`unjoined`"):
            load(str(tmp_path))
