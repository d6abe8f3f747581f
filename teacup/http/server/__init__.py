"""The parts of a server that do not depend on what it serves.

application.py      what is around the routes: the framework, routes for operators, the gate
auth.py             bearer tokens with scopes: from a file, from the environment
config.py           keys that the configuration of every server has
connections.py      how many connections there may be, and how long a peer may take
limits.py           requests per second, and bytes of bodies held, by caller; connections (pure)
problem_details.py  every error as a problem, also in the OpenAPI description
request_gate.py     what every request passes: identification, rate limit, held bytes, counting
serving.py          the socket, and the process around the application
steady_clock.py     the time by which a server judges, though its wall clock jumps
"""
