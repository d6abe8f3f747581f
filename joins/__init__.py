"""Joins of two Kafka streams: every left record goes out exactly once, with its right record or with nothing."""
