"""Where items are kept. A back end implements `teacup.storage.model.Backend`; one line in `opening` gives it a URL.

aerospike/  the back end on Aerospike
lmdb/       the embedded back end
redis/      the back end on Redis
entries.py  the items of one key as bytes, and the rules for them: for stores that know only bytes (pure)
opening.py  opens the back end that a URL names
"""
