"""Ports for servers that are about to start."""

from __future__ import annotations

import random

from deploy.broker.lifeline import free_port


def test_no_port_is_given_twice() -> None:
    """Even before its server listens, and whatever seeds the common source of random numbers."""
    ports = []
    for _ in range(300):
        random.seed(0)
        ports.append(free_port())

    assert len(set(ports)) == 300
