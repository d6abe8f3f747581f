"""The parts of a server that do not depend on what it serves.

application.py      what is around the routes: the framework, checks of each route, routes for operators
auth.py             bearer tokens with scopes: from a file, from the environment
config.py           keys that the configuration of every server has
limits.py           limits by caller: requests per second, requests under way, bytes held (pure)
problem_details.py  every error as a problem, also in the OpenAPI description
request_gate.py     what every request passes: identification, rate limit, held bytes, time of a body, counting
serving.py          the process around the application: log, signals, steady clock, socket
"""
