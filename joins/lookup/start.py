"""Before the first batch of a lookup join: left starts where configured; right has no start, it is stored. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from joins.admission.listing import Listing
from joins.admission.start import left_start
from joins.admission.state import Admission, Bucket, Reading
from joins.lookup.spec import LookupSpec
from kafkaio.topiclog import TopicLog


def begin(spec: LookupSpec, listing: Listing, left: TopicLog, generations: Mapping[str, str]) -> Admission:
    """The admission before the first batch; its identity holds the generations that it is pinned to."""
    start = left_start(spec, listing, left, listing.listed_ms + spec.max_future_skew_ms).offsets
    return Admission(
        generation=uuid.uuid4().hex,
        number=0,
        listed_ms=listing.listed_ms,
        skew_ms=spec.max_future_skew_ms,
        right_bytes=spec.max_right_bytes,
        identity={**spec.identity(), **generations},
        topics={"left": (left.topic_id(), left.partition_count())},
        buckets={
            p: Bucket(number=p, left={p: Reading.starting_at(start[p])}, right={}, moved_ms=listing.listed_ms)
            for p in sorted(listing.left)
        },
    )
