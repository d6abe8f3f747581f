"""The parts of a server that do not depend on what it serves.

auth.py          bearer tokens with scopes: from a file, from the environment
access.py        refuses callers without a scope
limits.py        rate limits: a token bucket for each caller                                       (pure)
gate.py          what every request passes: identification, rate limit, size limit, counting
problems.py      every error as a problem, also in the OpenAPI description
application.py   what is around the routes: the framework, routes for operators, the gate
keys.py          keys that the configuration of every server has
serving.py       the socket, and the process around the application
"""
