"""The parts of a server that do not depend on what it serves.

auth.py       bearer tokens with scopes: from a file, from the environment
access.py     refuses callers without a scope
limits.py     rate limits: a token bucket for each caller                                          (pure)
gate.py       what every request passes: identification, rate limit, size limit, counting
problems.py   every error as a problem, also in the OpenAPI description
listen.py     the socket
"""
