"""The client of the storage API, for programs.

portions.py        one call in portions, repeated until every item is settled; how bodies travel
storage_client.py  the calls: items as plain data, whole columns, or values by key
"""

from teacup.storage.client.storage_client import Answered, StorageClient, StorageKeyValue

__all__ = ["Answered", "StorageClient", "StorageKeyValue"]
