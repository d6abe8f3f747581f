"""Runs generators in rounds: what all of them ask in a round is answered by one call. Pure.

A search or a plan that needs look-ups is a generator: it yields what it asks, is sent the answer, and returns its
result. So the same code runs against a real broker, which answers for all partitions at once, and against a simulated
log.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import TypeVar

K = TypeVar("K")
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
T = TypeVar("T")


def run_in_rounds(
    generators: Mapping[K, Generator[Asked, Answer, T]],
    answers_to: Callable[[Mapping[K, Asked]], Mapping[K, Answer]],
) -> dict[K, T]:
    """Returns what each generator returns.

    answers_to   gives the answers to the questions of one round, by the keys of the generators that ask them
    """
    results: dict[K, T] = {}
    asked: dict[K, Asked] = {}

    def advance(key: K, step: Callable[[], Asked]) -> None:
        try:
            asked[key] = step()
        except StopIteration as end:
            results[key] = end.value

    for key, generator in generators.items():
        advance(key, generator.__next__)
    while asked:
        answers = answers_to(asked)
        asked = {}
        for key, answer in answers.items():
            advance(key, partial(generators[key].send, answer))
    return results
