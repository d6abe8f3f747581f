"""Where items are kept. A back end implements `teacup.storage.model.Backend`; one line in `opening` gives it a URL.

aerospike/     the back end on Aerospike
lmdb/          the embedded back end
redis/         the back end on Redis
entries.py     the items of a key as bytes: what is kept, what goes, what is found (pure)
namespaces.py  what is stored about a namespace; the moment by which items are judged (pure)
opening.py     opens the back end that a URL names
"""
