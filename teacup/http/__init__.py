"""What the HTTP servers and their clients share: tokens, limits, problems, the socket.

client/    one exchange over pooled connections, what is retried, which error is raised
page/      what the pages for people share
server/    tokens and scopes, limits, errors as problems, the socket
bodies.py  the base of every JSON body, the body of an error, what a token may contain (pure)

Public: nothing; users meet `datadelay.client` and `teacup.storage.client`.
"""
