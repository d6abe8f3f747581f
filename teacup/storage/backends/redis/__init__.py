"""The back end on Redis.

facts.py      what a Redis server says about itself, and whether it still has what it acknowledged (pure)
server.py     the connections to a Redis server, and its failures in words
store.py      Redis, or Valkey: one string per key
witnesses.py  what a process knows of the namespaces in a Redis server, and the commands that rely on it
"""
