"""Generators that ask: all that they ask in a round is answered by one call."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from teacup.kafka.log.time_search import run_in_rounds


def counting(times: int) -> Generator[str, int, list[int]]:
    """Asks so many times, and returns the answers."""
    answers = []
    for number in range(times):
        answers.append((yield f"question {number}"))
    return answers


def test_each_round_is_one_call() -> None:
    """Whoever has returned is asked no more; one that asks nothing never is."""
    rounds: list[dict[str, str]] = []

    def answers_to(asked: Mapping[str, str]) -> dict[str, int]:
        rounds.append(dict(asked))
        return dict.fromkeys(asked, len(rounds))

    found = run_in_rounds({"none": counting(0), "long": counting(2), "short": counting(1)}, answers_to)

    assert found == {"none": [], "long": [1, 2], "short": [1]}
    assert rounds == [{"long": "question 0", "short": "question 0"}, {"long": "question 1"}]
