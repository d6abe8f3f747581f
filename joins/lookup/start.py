"""Where a lookup join starts: left where configured; right needs no start, as it is stored. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from joins.admission.listing import Listing
from joins.admission.start import Say, first_admission, left_start, nobody
from joins.admission.state import Admission
from joins.lookup.spec import LookupSpec
from kafkaio.topiclog import TopicLog


def begin(
    spec: LookupSpec, listing: Listing, left: TopicLog, generations: Mapping[str, str], say: Say = nobody
) -> Admission:
    """Returns the admission before the first batch; its identity holds the generations that it is pinned to."""
    start = left_start(spec, listing, left, listing.listed_ms + spec.max_future_skew_ms, say)
    first = first_admission(spec, listing, {"left": left}, start.offsets, right_from={})
    return replace(first, identity={**first.identity, **generations}, skipped=start.skipped)
