"""The parts of a server that do not depend on what it serves.

auth.py            bearer tokens with scopes: from a file, from the environment
connections.py     how many connections there may be, and how long a peer may take
handshakes.py      the same of TLS handshakes
access.py          refuses callers without a scope, and large bodies, before a body is read
limits.py          requests per second, and bytes of bodies held, by caller; connections             (pure)
requestgate.py     what every request passes: identification, rate limit, held bytes, counting
sending.py         an answer in pieces, held until it is taken
problemdetails.py  every error as a problem, also in the OpenAPI description
readiness.py       whether the server can serve, asked once a second
application.py     what is around the routes: the framework, routes for operators, the gate
steadyclock.py     the time by which a server judges, though its wall clock jumps
serverkeys.py      keys that the configuration of every server has
serving.py         the socket, and the process around the application
"""
