"""The clients of the two APIs that feeders and lookup joins call, as their specs say."""

from __future__ import annotations

from typing import Any

from datadelay.client import DelayClient
from joins.apiaddresses import DelayAt, StoreAddress
from storage.client import StorageClient


def storage_client(at: StoreAddress, *, attempts: int, give_up_after_s: float, **more: Any) -> StorageClient:
    """Returns a client that makes `attempts` at most, for `give_up_after_s` at most. more: as `StorageClient` takes."""
    return StorageClient(
        at.url,
        at.token,
        connect_timeout_s=at.connect_timeout_s,
        read_timeout_s=at.read_timeout_s,
        attempts=attempts,
        give_up_after_s=give_up_after_s,
        verify=at.ca_bundle or True,
        **more,
    )


def delay_client(at: DelayAt) -> DelayClient:
    """Returns a client with one retry: whoever waits for the delay asks again anyway."""
    return DelayClient(
        at.url,
        at.token,
        connect_timeout_s=at.connect_timeout_s,
        read_timeout_s=at.read_timeout_s,
        retries=1,
        verify=at.ca_bundle or True,
    )
