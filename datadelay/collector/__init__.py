"""Looks at every consumer and topic, and submits how far they have come."""
