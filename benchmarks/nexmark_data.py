"""Nexmark's events: people, their auctions, bids, as its generator describes them, made a column at a time.

Of every 50 events one is a person, 3 are auctions and 46 are bids, with ids in order. As in Nexmark

    half of the bids are for a hot auction, the first of the last 100; the others for one of the last 100 auctions, or
    for one of 10 that do not exist yet
    three of four auctions are of a hot seller, the first of the last 100 people; the others of one of the last 1,000
    people, or of one of 10 to come
    a category is one of five; prices are 10^(6 u) * 100; extra texts fill up to 100 (bid), 500 (auction), 200 (person)
    bytes on average

Event n has the time `BEGIN_MS` + n / `EVENTS_PER_S`. Everything follows from the seed. What a query does not look at is
simpler than in Nexmark: an auction expires 10 s after its time, and names of people are texts of random letters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

PEOPLE, AUCTIONS, BIDS = 1, 3, 46
EVENTS = PEOPLE + AUCTIONS + BIDS  # of an epoch
EVENTS_PER_S = 10_000
BEGIN_MS = 1_750_000_000_000
FIRST_ID, FIRST_CATEGORY = 1_000, 10
HOT_GROUP = 100
IN_FLIGHT, ACTIVE_PEOPLE, LEAD = 100, 1_000, 10
CHANNELS = 10_000
SEED = 20
_EPOCHS_PER_CHUNK = 4_000

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Events:
    """A stretch of the three streams. Columns are named as in Nexmark, times are milliseconds (`dateTime`)."""

    person: pl.DataFrame
    auction: pl.DataFrame
    bid: pl.DataFrame


def chunks(events: int, seed: int = SEED) -> Iterator[Events]:
    """Yields whole epochs in order, with at least `events` events in total."""
    random = np.random.default_rng(seed)
    channels = _channels(random)
    epochs = -(-events // EVENTS)
    for at in range(0, epochs, _EPOCHS_PER_CHUNK):
        epoch = np.arange(at, min(at + _EPOCHS_PER_CHUNK, epochs))
        yield Events(_people(epoch, random), _auctions(epoch, random), _bids(epoch, random, channels))


def _times(epoch: I64, first: int, number: int) -> I64:
    """Returns the times of `number` events of each epoch, from its event `first` on."""
    event = (epoch[:, None] * EVENTS + first + np.arange(number)).ravel()
    return BEGIN_MS + event * 1_000 // EVENTS_PER_S


def _people(epoch: I64, random: np.random.Generator) -> pl.DataFrame:
    size = len(epoch)
    return pl.DataFrame({"id": epoch + FIRST_ID, "dateTime": _times(epoch, 0, PEOPLE)}).with_columns(
        name=_text(random, size, 5, 15),
        emailAddress=pl.concat_str(_text(random, size, 7, 7), pl.lit("@"), _text(random, size, 5, 5), pl.lit(".com")),
        creditCard=_text(random, size, 19, 19),
        city=_one_of(random, size, ["Phoenix", "Los Angeles", "Boise", "Portland", "Seattle", "Kent"]),
        state=_one_of(random, size, ["AZ", "CA", "ID", "OR", "WA", "WY"]),
        extra=_text(random, size, 80, 160),
    )


def _auctions(epoch: I64, random: np.random.Generator) -> pl.DataFrame:
    size = len(epoch) * AUCTIONS
    person = np.repeat(epoch, AUCTIONS)  # the last one when the auction is made
    active = np.minimum(person + 1, ACTIVE_PEOPLE)
    recent = person + 1 - active + random.integers(0, active + LEAD)
    hot = person // HOT_GROUP * HOT_GROUP
    initial = _prices(random, size)
    times = _times(epoch, PEOPLE, AUCTIONS)
    return pl.DataFrame(
        {
            "id": (epoch[:, None] * AUCTIONS + np.arange(AUCTIONS)).ravel() + FIRST_ID,
            "initialBid": initial,
            "reserve": initial + _prices(random, size),
            "dateTime": times,
            "expires": times + 10_000,
            "seller": np.where(random.integers(0, 4, size) > 0, hot, recent) + FIRST_ID,
            "category": FIRST_CATEGORY + random.integers(0, 5, size),
        }
    ).with_columns(
        itemName=_text(random, size, 3, 20),
        description=_text(random, size, 3, 100),
        extra=_text(random, size, 300, 480),
    )


def _bids(epoch: I64, random: np.random.Generator, channels: pl.DataFrame) -> pl.DataFrame:
    size = len(epoch) * BIDS
    auction = np.repeat(epoch * AUCTIONS + AUCTIONS - 1, BIDS)  # the last one when the bid is made
    oldest = np.maximum(auction - IN_FLIGHT, 0)
    recent = oldest + random.integers(0, auction - oldest + 1 + LEAD)
    person = np.repeat(epoch, BIDS)
    active = np.minimum(person + 1, ACTIVE_PEOPLE)
    bidder = person + 1 - active + random.integers(0, active + LEAD)
    hot_channel = random.integers(0, 2, size) > 0
    channel = np.where(hot_channel, random.integers(0, 4, size), random.integers(4, CHANNELS, size))
    return pl.DataFrame(
        {
            "auction": np.where(random.integers(0, 2, size) > 0, auction // HOT_GROUP * HOT_GROUP, recent) + FIRST_ID,
            "bidder": np.where(random.integers(0, 4, size) > 0, person // HOT_GROUP * HOT_GROUP + 1, bidder) + FIRST_ID,
            "price": _prices(random, size),
            "dateTime": _times(epoch, PEOPLE + AUCTIONS, BIDS),
        }
    ).with_columns(*channels[channel], extra=_text(random, size, 54, 82))


def _prices(random: np.random.Generator, size: int) -> I64:
    return np.rint(10 ** (6 * random.random(size)) * 100).astype(np.int64)


def _channels(random: np.random.Generator) -> pl.DataFrame:
    """Returns names and addresses of channels, the four hot ones first."""
    names = ["Google", "Facebook", "Baidu", "Apple", *(f"channel-{number}" for number in range(4, CHANNELS))]
    folders = (_text(random, CHANNELS, 5, 5) for _ in range(3))
    url = pl.concat_str(pl.lit("https://www.nexmark.com"), *folders, pl.lit("item.htm?query=1"), separator="/")
    return pl.DataFrame({"channel": names}).with_columns(url=url)


def _one_of(random: np.random.Generator, size: int, texts: list[str]) -> pl.Series:
    return pl.Series(texts)[random.integers(0, len(texts), size)]


def _text(random: np.random.Generator, size: int, shortest: int, longest: int) -> pl.Series:
    """Returns texts of lower-case letters."""
    letters = random.integers(97, 123, size * longest, dtype=np.uint8).view(f"S{longest}")
    lengths = pl.Series(random.integers(shortest, longest + 1, size))
    whole = pl.Series(letters.tolist(), dtype=pl.Binary).cast(pl.String)
    return whole if shortest == longest else whole.to_frame("text").select(pl.col("text").str.head(lengths)).to_series()


def as_json(frame: pl.DataFrame) -> pl.Series:
    """Returns a JSON object per row; times are ISO 8601."""
    iso = [
        pl.from_epoch(name, time_unit="ms").dt.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").alias(name)
        for name in ("dateTime", "expires")
        if name in frame.columns
    ]
    return frame.with_columns(iso).select(pl.struct(pl.all()).struct.json_encode()).to_series()
