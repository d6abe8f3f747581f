"""Who starts, uses and closes what the processes of a test run share."""

from __future__ import annotations

import threading
from contextlib import contextmanager

from tests.support.one_broker import shared


def test_one_starts_it_all_use_it_and_it_ends_after_them(tmp_path):
    """Whoever asks when it has ended, or is about to, starts another."""
    running, started, used = [], [], threading.Barrier(3, timeout=60)

    @contextmanager
    def broker():
        assert not running
        running.append(len(started))
        started.append(str(len(started)))
        yield started[-1]
        running.clear()

    def uses(texts):
        with shared(tmp_path, "broker", broker) as text:
            used.wait()
            assert running == [int(text)]
            texts.append(text)

    for number in range(3):
        texts: list[str] = []
        threads = [threading.Thread(target=uses, args=(texts,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert texts == [str(number)] * 3
    assert started == ["0", "1", "2"]
