"""The one HTTP client that the clients of both APIs are made of.

apiclient.py   the base of the clients
transport.py   one exchange over pooled connections: bytes out, bytes in, or an error that says whether a retry is safe
patience.py    repeats what may be repeated, with growing pauses, a bounded number of times
untrusted.py   a certificate that is not trusted: why, and what to do about it
refusals.py    which error of its API a client raises for which answer
"""
