"""What the HTTP servers of Teacup share, and their clients: the Data Delay API and the storage API are built on it.

problem.py   the body of every error: RFC 9457 problem details
server/      tokens and scopes, limits, errors as problems, the socket
client/      one exchange over pooled connections, what is repeated, which error is raised

All of it is internal: users meet the APIs, `datadelay.client` and `storage.client`.
"""
