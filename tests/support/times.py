"""A moment that tests of services share."""

NOON_MS = 1_795_176_000_000
"""2026-11-20T12:00:00Z."""
