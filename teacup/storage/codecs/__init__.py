"""How items are encoded in requests and answers.

arrow.py  Arrow IPC streams, for machines (pure)
codec.py  the Protocol of a media type; compression (pure)
json.py   JSON, for people; the bodies about namespaces (pure)
"""
