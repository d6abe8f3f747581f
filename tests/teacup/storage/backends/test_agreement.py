"""The canary of `test_backends`: a back end that breaks a rule of the model does not agree with it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from teacup.storage.backends import entries
from teacup.storage.backends.namespaces import Moment
from teacup.storage.backends.opening import open_backend
from teacup.storage.model import Item, Namespace, WriteResult
from tests.support.canary import EXAMPLES
from tests.support.profiles import is_full
from tests.teacup.storage.backends.model_machine import AgreesWithTheModel

Outcome = tuple[WriteResult, bytes | None]


class LmdbAgrees(AgreesWithTheModel):
    """LMDB in a folder, which needs no server."""

    def __init__(self) -> None:
        RuleBasedStateMachine.__init__(self)
        self._folder = tempfile.TemporaryDirectory()
        url = f"lmdb://{Path(self._folder.name) / 'store'}?map_size=64MiB"
        self._open = lambda *namespaces: open_backend(url, namespaces)
        self._store = None


@pytest.mark.canary
def test_canary_a_back_end_that_lets_older_items_overwrite_newer_ones_disagrees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever is kept for a key, an item is written as if nothing were."""
    admit = entries.admit

    def overwriting(namespace: Namespace, kept: bytes | None, item: Item, moment: Moment) -> Outcome:
        return admit(namespace, None, item, moment)

    monkeypatch.setattr(entries, "admit", overwriting)

    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            LmdbAgrees,
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=25,
                deadline=None,
                database=None,
                derandomize=not is_full(),
                phases=[Phase.generate],
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
