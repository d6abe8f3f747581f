"""The base of errors, of all packages, that mean: this configuration cannot work. Pure.

Each package derives its own from the root of its errors and from `Invalid`, so that a caller can catch either: what one
package raises, or whatever is wrong with a configuration.
"""

from __future__ import annotations


class Invalid(Exception):
    """A value of a configuration cannot work: the message names it, where it is from, and what to give.

    Its exit code is that of an invalid job file: starting again does not help.
    """
