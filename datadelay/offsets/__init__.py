"""Finds the offsets of a time, and sets a consumer's positions to them."""
