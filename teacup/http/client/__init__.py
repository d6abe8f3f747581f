"""The one HTTP client that the clients of both APIs are made of.

retries.py    repeats what may be repeated, with growing pauses, a bounded number of times
transport.py  one exchange over pooled connections: bytes out, bytes in, or an error that says whether a retry is safe
"""
