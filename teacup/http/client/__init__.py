"""The one HTTP client that the clients of both APIs are made of.

retries.py    repeats what may be repeated, a bounded number of times; which error an answer is
transport.py  one exchange over pooled connections: bytes out, bytes in, or an error that says whether a retry is safe
"""
