"""Where items are kept. A back end implements `teacup.storage.model.Backend`; one line in `opening` gives it a URL.

aerospike/  the back end on Aerospike
lmdb/       the embedded back end
redis/      the back end on Redis
entries.py  items as bytes, namespaces, what has expired: what every back end stores, by the same rules (pure)
opening.py  opens the back end that a URL names
"""
