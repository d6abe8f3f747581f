"""The keys of a feeder: right records of a topic into the storage API."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from deploy.jobfile.job import FeederJob
from deploy.jobfile.job_keys import StorageKeys, StoredKeys, TimedJobKeys, arguments
from deploy.jobfile.values import Topic, of
from joins.lookup.feed.spec import FeedSpec, FeedStorage
from teacup.base.config.keys import Keys, Seconds


class FeedStorageKeys(StorageKeys):
    """The storage API that right records go to."""

    becomes = FeedStorage
    items_per_request: int = of(FeedStorage).items_per_request("records written by one request")
    unreachable_for_s: Seconds = of(FeedStorage).unreachable_for_s(
        "how long an unreachable store only holds the feeder before it fails"
    )


class FeederTopicsKeys(Keys):
    """Topics for side outputs."""

    dead_letter: Topic | None = of(FeedSpec).dead_letter(
        "records that cannot be stored (bad time, invalid JSON, rejected by the store) with reason and "
        "position; without it such a record stops the job"
    )


class FeederKeys(TimedJobKeys):
    """Right records of a topic into the storage API, for a lookup join."""

    kind: Literal["feeder"] = Field(description="what the job is")
    right: StoredKeys = Field(description="the topic that is fed, as in the job file of the lookup join")
    storage: FeedStorageKeys = Field(description="where right records go")
    topics: FeederTopicsKeys = Field(default=FeederTopicsKeys(), description="side outputs")
    max_records: int = of(FeedSpec).max_records("limit per batch", alias="records_per_batch")

    def to_job(self) -> FeederJob:
        """Returns the job. Raises `SpecError` for what only the feeder itself rejects."""
        return FeederJob(**self.common(), spec=FeedSpec(**arguments(FeedSpec, self, self.topics)))
