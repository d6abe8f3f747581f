"""How items are encoded in requests and answers.

arrow.py  Arrow IPC streams, for machines (pure)
codec.py  the Protocol of a media type (pure)
json.py   JSON, for people
"""
