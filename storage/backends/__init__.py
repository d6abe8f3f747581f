"""Where items are kept. A back end implements `storage.model.Backend`; one line in `opening` gives it a URL.

opening.py            opens the back end that a URL names
lmdbstore.py          LMDB: one environment in a folder of this machine
aerospikestore.py     Aerospike: one record per key
aerospikerecords.py   records of Aerospike sets, changed by compare-and-swap
aerospikefacts.py     what Aerospike's nodes say about themselves, and whether they have what they acknowledged   (pure)
redisstore.py         Redis, or Valkey: one string per key
rediswitnesses.py     what a process knows of the namespaces in a Redis server, and the commands that rely on it
redisserver.py        the connections to a Redis server, and its failures in words
redisfacts.py         what a Redis server says about itself, and whether it still has what it acknowledged        (pure)
redisacknowledged.py  what a Redis server has acknowledged to this process, and whether it still has that         (pure)
entries.py            the items of one key as bytes, and the rules for them: for stores that know only bytes  (pure)
moment.py             the moment by which items are judged, and what is taken for expired by it                   (pure)
stored.py             what a store records about a namespace                                                  (pure)
expiryindex.py        which keys to check for expired items, in LMDB
unsynced.py           detects a store that may be broken because the machine went down
"""
