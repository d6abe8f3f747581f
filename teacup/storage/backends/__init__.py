"""Where items are kept. A back end implements `teacup.storage.model.Backend`; one line in `opening` gives it a URL.

aerospike/  the back end on Aerospike
lmdb/       the embedded back end
redis/      the back end on Redis
entries.py  the common rules of back ends: items as bytes, namespaces, what has expired (pure)
opening.py  opens the back end that a URL names
"""
