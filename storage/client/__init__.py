"""The client of the storage API, for programs."""

from storage.client.storageclient import Answered, StorageClient

__all__ = ["Answered", "StorageClient"]
