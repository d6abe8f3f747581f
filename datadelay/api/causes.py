"""What a failed database said: without the statement and its values, which may be anything."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError, SQLAlchemyError


def cause(error: SQLAlchemyError) -> str:
    """In one line."""
    said = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return " ".join(str(said).split())
