"""The client of the storage API, for programs.

storageclient.py   the calls: items as plain data, or whole columns
portions.py        one call in portions: requests of bounded size, repeated until every item is settled
coding.py          media type and compression of bodies
keyvalue.py        bytes by key, the last put wins, on a namespace
"""

from storage.client.storageclient import Answered, StorageClient

__all__ = ["Answered", "StorageClient"]
