"""The end of a job's server: whoever asks meanwhile gets an answer, or is refused; nobody is cut off."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from deploy.watch.server import ENDS_WITHIN_S, Request, Response
from tests.deploy.watch.served import asked, served

CLIENTS, ENDS = 6, 5


def test_requests_that_come_while_a_server_ends_are_answered_or_refused() -> None:
    """As many as clients can send, at five ends: the kernel would reset connections that wait, and those in work."""

    def slow(_asked: Request) -> Response:
        time.sleep(0.005)
        return Response.text("numbers")

    answered = 0
    for _ in range(ENDS):
        with served({"/": slow}) as server, ThreadPoolExecutor(CLIENTS) as clients:

            def ask_until_refused() -> int:
                for count in range(1_000_000):  # noqa: B007 - it is what is counted
                    try:
                        assert asked(server, "/")[0] == 200
                    except ConnectionRefusedError:
                        break
                return count

            counts = [clients.submit(ask_until_refused) for _ in range(CLIENTS)]
            time.sleep(0.05)
            server.close()
            answered += sum(count.result() for count in counts)

    assert answered > CLIENTS * ENDS


def test_an_end_waits_for_an_answer() -> None:
    """What follows is often the end of the process, which cuts off what is not sent."""
    begun = threading.Event()

    def slow(_asked: Request) -> Response:
        begun.set()
        time.sleep(0.2)
        return Response.text("numbers")

    with served({"/": slow}) as server, ThreadPoolExecutor(1) as client:
        answer = client.submit(asked, server, "/")
        begun.wait()
        began_s = time.monotonic()
        server.close()
        took_s = time.monotonic() - began_s

        assert answer.result()[:2] == (200, "numbers\n")
    assert 0.1 < took_s < ENDS_WITHIN_S
