"""The keys of a feeder: right records of a topic into the storage API."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from configfile.durations import Seconds
from configfile.keys import Keys, as_written
from deploy.job import FeederJob
from deploy.jobfile.jobkeys import RightKeys, StorageKeys, TimedJobKeys, arguments
from deploy.jobfile.jobvalues import Topic
from joins.feed.feed import FeedSpec, FeedStorage


class FeedStorageKeys(StorageKeys):
    """The storage API that right records go to."""

    items_per_request: int = Field(default=5_000, ge=1, le=10_000, description="records written by one request")
    unreachable_for_s: Annotated[Seconds, Field(gt=0)] = Field(
        default=as_written("5m"),
        alias="unreachable_for",
        description="how long an unreachable store only holds the feeder before it fails",
    )

    def to_spec(self) -> FeedStorage:
        """Where right records go."""
        return FeedStorage(**dict(self))


class FeederTopicsKeys(Keys):
    """Topics for side outputs."""

    dead_letter: Topic | None = Field(
        default=None,
        description="records that cannot be stored (bad time, invalid JSON, rejected by the store) with reason and "
        "position; without it such a record stops the job",
    )


class FeederKeys(TimedJobKeys):
    """Right records of a topic into the storage API, for a lookup join."""

    kind: Literal["feeder"] = Field(description="what the job is")
    right: RightKeys = Field(description="the topic that is fed, as in the job file of the lookup join")
    storage: FeedStorageKeys = Field(description="where right records go")
    topics: FeederTopicsKeys = Field(default=FeederTopicsKeys(), description="side outputs")

    def to_job(self) -> FeederJob:
        """The job; SpecError for what only the feeder itself rejects."""
        return FeederJob(**self.common(), spec=FeedSpec(**arguments(FeedSpec, self, self.topics)))
