"""Impressions and clicks as they happen, at a rate, by a thread; impressions can be withheld for a while.

Four of five clicks are on an impression of the last seconds, the others on one that never existed. Their keys say which
(`NOWHERE`), so the correct outcome of each is known. While right pauses, impressions keep happening; all of them are
written when it resumes, with the times at which they happened.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from numpy.random import default_rng  # numpy would load it at its first use, and lose a Ctrl-C meanwhile

from kafkaio.now import wall_ms
from kafkaio.writer import TopicWriter

NOWHERE = b"ad-none-"
KNOWN = 0.8
CLICKED_WITHIN_MS = 5_000
TICK_S = 0.1

Ints = npt.NDArray[np.int64]


class Traffic:
    """Produces from `start` to `stop`; `failure` is what ended it before."""

    def __init__(
        self, kafka: Mapping[str, str], topics: Mapping[str, str], impressions_per_s: int, clicks_per_s: int, seed: int
    ) -> None:
        self.impressions = self.clicks = 0
        self.paused_from_ms = self.resumed_ms = 0
        self.failure: Exception | None = None
        self._kafka, self._topics = kafka, topics
        self._per_s = (impressions_per_s, clicks_per_s)
        self._random = default_rng(seed)
        self._recent_ids, self._recent_ms = np.empty(0, np.int64), np.empty(0, np.int64)
        self._withheld: list[tuple[Ints, Ints]] = []
        self._pausing, self._clicking, self._ended = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def start(self) -> None:
        """Begins to produce impressions and clicks, in a thread."""
        self._clicking.set()
        self._thread.start()

    def pause_right(self) -> None:
        """Withholds impressions from now on; clicks continue."""
        self._pausing.set()

    def resume_right(self) -> None:
        """Produces the withheld impressions at once, then new ones."""
        self._pausing.clear()

    def end_clicks(self) -> None:
        """Ends the clicks; impressions continue."""
        self._clicking.clear()

    def stop(self) -> None:
        """Stops; nothing is produced any more when this returns."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        writer = TopicWriter(self._kafka)
        try:
            until_ms = wall_ms()
            while not self._ended.wait(TICK_S):
                since_ms, until_ms = until_ms, wall_ms()
                self._impressions(writer, since_ms, until_ms)
                self._clicks(writer, since_ms, until_ms)
                writer.flush()
        except Exception as error:  # noqa: BLE001 - reported by whoever watches the demo
            self.failure = error
        finally:
            writer.close()

    def _impressions(self, writer: TopicWriter, since_ms: int, until_ms: int) -> None:
        count = self._per_s[0] * (until_ms - since_ms) // 1000
        times = np.sort(self._random.integers(since_ms, until_ms, count))
        ids = np.arange(self.impressions, self.impressions + count)
        self.impressions += count
        fresh = self._recent_ms > until_ms - CLICKED_WITHIN_MS
        self._recent_ids = np.concatenate([self._recent_ids[fresh], ids])
        self._recent_ms = np.concatenate([self._recent_ms[fresh], times])
        self._withheld.append((ids, times))
        if self._pausing.is_set():
            self.paused_from_ms = self.paused_from_ms or since_ms
            return
        if self.paused_from_ms and not self.resumed_ms:
            self.resumed_ms = until_ms
        for some, at_ms in self._withheld:
            writer.write(
                self._topics["impressions"],
                [b"ad-%08d" % i for i in some.tolist()],
                [json.dumps({"campaign": i % 500}).encode() for i in some.tolist()],
                timestamps=at_ms.tolist(),
            )
        self._withheld.clear()

    def _clicks(self, writer: TopicWriter, since_ms: int, until_ms: int) -> None:
        count = self._per_s[1] * (until_ms - since_ms) // 1000
        shown = self._recent_ids[self._recent_ms < since_ms]
        if not self._clicking.is_set() or not len(shown) or not count:
            return
        times = np.sort(self._random.integers(since_ms, until_ms, count))
        ids = self._random.choice(shown, count)
        known = self._random.random(count) < KNOWN
        writer.write(
            self._topics["clicks"],
            [b"ad-%08d" % i if k else NOWHERE + b"%04d" % (i % 5_000) for i, k in zip(ids, known, strict=True)],
            [json.dumps({"user": i % 10_000}).encode() for i in ids.tolist()],
            timestamps=times.tolist(),
        )
        self.clicks += count
