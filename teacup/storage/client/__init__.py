"""The client of the storage API, for programs.

key_value.py       bytes by key, the last put wins, on a namespace
portions.py        one call in portions: requests of bounded size, repeated until every item is settled
storage_client.py  the calls: items as plain data, or whole columns
"""

from teacup.storage.client.storage_client import Answered, StorageClient

__all__ = ["Answered", "StorageClient"]
