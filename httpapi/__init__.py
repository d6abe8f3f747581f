"""What HTTP servers and their clients share: the Data Delay API and the storage API are built on it.

bearer.py    which tokens a header can hold (pure)
body.py      the base of every JSON body (pure)
problem.py   the body of every error: RFC 9457 problem details
server/      tokens and scopes, limits, errors as problems, the socket
client/      one exchange over pooled connections, what is repeated, which error is raised

Public: nothing; users meet `datadelay.client` and `storage.client`.
"""
