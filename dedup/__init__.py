"""Keeps an output free of duplicates after a restart; off, it costs nothing."""
