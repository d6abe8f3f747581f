"""The client of the storage API, for programs.

storageclient.py   the calls: items as plain data, or whole columns; splits them, and settles what is not settled yet
coding.py          media type and compression of bodies
keyvalue.py        bytes by key, the last put wins, on a namespace
"""

from storage.client.storageclient import Answered, StorageClient

__all__ = ["Answered", "StorageClient"]
