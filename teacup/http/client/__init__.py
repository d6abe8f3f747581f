"""The HTTP client that the clients of both APIs are built on.

retries.py    repeats calls where allowed, a limited number of times; which error an answer is
transport.py  one exchange over pooled connections: bytes out, bytes in, or an error that says whether a retry is safe
"""
