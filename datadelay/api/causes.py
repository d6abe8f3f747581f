"""Reads what a failed database said: without the statement and its values, which may be anything."""

from __future__ import annotations

import re

from sqlalchemy.exc import DBAPIError, ProgrammingError, SQLAlchemyError

_REFUSED = re.compile(
    r"authentication failed|no password supplied|does not exist|no pg_hba\.conf entry|not permitted to log in"
    r"|invalid value for parameter|unrecognized configuration parameter|invalid \S+ value|certificate|SSL was required"
)
"""PostgreSQL gives no code for a connection that it refuses. In another language these are failures like any other."""

_NOT_PERMITTED = "42501"


def cause(error: SQLAlchemyError) -> str:
    """Returns what it said, in one line."""
    said = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return " ".join(str(said).split())


def is_refusal(error: SQLAlchemyError) -> bool:
    """Returns whether the database, or its driver, would refuse the same URL again."""
    return isinstance(error, ProgrammingError) or _REFUSED.search(cause(error)) is not None


def remedy(refusal: SQLAlchemyError) -> str:
    """Returns what to do so that the database no longer refuses the URL."""
    if isinstance(refusal, DBAPIError) and getattr(refusal.orig, "sqlstate", None) == _NOT_PERMITTED:
        return "the database must belong to the user: ALTER DATABASE ... OWNER TO ..."
    return "correct its user, password, database or options"
