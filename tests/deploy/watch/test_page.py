"""The page of a running job in headless Chromium: what it shows is what the job has reported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import requests
from selenium import webdriver
from selenium.webdriver.common.by import By

from deploy.jobs.dedup import DedupReport
from deploy.jobs.feeder import FeedReport
from deploy.jobs.join_report import BatchReport, gather
from deploy.jobs.unjoined.run import SliceReport
from deploy.output.accounts import DeliveredBatch
from deploy.watch.life.moment import Phase, TopicLag
from deploy.watch.listener import JobDescription
from joins.spec import JoinSpec, Right, Side
from teacup.base.errors import ExitCode
from tests.conftest import TopicFactory
from tests.deploy.watch.hours import ABOUT, NOON_MS, MadeUp, served
from tests.support.chromium import browser, chromium, resize, wait
from tests.support.driving import Driven, StoppedClock
from tests.support.sparkjoin import Put, produce

__all__ = ["browser", "chromium"]

SHOWN = """
const text = node => node.textContent.replace(/\\s+/g, " ").trim();
const cards = [...document.querySelectorAll("#cards > article")].filter(card => !card.hidden);
return {
  name: text(document.querySelector("h1")), state: text(document.querySelector("#state-text")),
  says: text(document.querySelector("#says")), status: text(document.querySelector("#status")),
  flow: document.querySelector("#flow svg")?.getAttribute("aria-label"),
  facts: Object.fromEntries([...document.querySelectorAll("#facts div")].map(pair => [...pair.children].map(text))),
  warnings: [...document.querySelectorAll("#warnings li")].map(text),
  cards: Object.fromEntries(cards.map(card => [card.id, text(card)])),
  holders: [...document.querySelectorAll(".holders li")].map(text),
  curve: [...document.querySelectorAll("#wait tbody tr")].map(row => [...row.cells].map(text)),
};
"""


@pytest.fixture
def pages(browser: webdriver.Chrome) -> Iterator[ExitStack]:
    """What is served meanwhile; the page is left before its server goes."""
    with ExitStack() as stack:
        yield stack
        browser.get("about:blank")


def shown(browser: webdriver.Chrome) -> dict[str, Any]:
    found: dict[str, Any] = browser.execute_script(SHOWN)
    return found


def opened(browser: webdriver.Chrome, pages: ExitStack, made: MadeUp, width: int = 1280) -> dict[str, Any]:
    """Opens the page of a job; returns what it shows at first."""
    resize(browser, width, 900)
    browser.get(pages.enter_context(served(made.hour)))
    wait(browser, lambda: shown(browser)["flow"])
    return shown(browser)


def until_state(browser: webdriver.Chrome, state: str) -> dict[str, Any]:
    """Waits until the page says so."""
    wait(browser, lambda: shown(browser)["state"] == state)
    return shown(browser)


def reports(spec: JoinSpec, run: Driven, at_ms: int) -> list[BatchReport]:
    """What a job would report of the batches so far."""
    numbers = sorted({summary.number for summary in run.summaries})
    return [
        gather(spec, [DeliveredBatch(s, {"out": 1}, (), 0) for s in run.summaries if s.number == number], 0.25, at_ms)
        for number in numbers
    ]


def test_shows_a_real_join_and_its_wait_curve(
    browser: webdriver.Chrome,
    pages: ExitStack,
    kafka: dict[str, str],
    topic_factory: TopicFactory,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Of two left records one has its match early, the other one's comes 5 s after it has left."""
    monkeypatch.setattr("teacup.spark.stream_reader.POLLS_FOR_S", 0.0)  # nobody sends anything meanwhile
    clock = StoppedClock(monkeypatch)
    left = Side(topic=topic_factory(1, prefix="left"), disorder_ms=0)
    right = Right(topic=topic_factory(1, prefix="right"), disorder_ms=0, before_ms=60_000, after_ms=1_000)
    spec = JoinSpec(name="j", left=left, right=right, producer_delay_ms=2_000, kafka=kafka)
    made = MadeUp(
        JobDescription(
            name="j",
            kind="window-join",
            version="1",
            does="joins",
            sides={left.topic: "left", right.topic: "right"},
            settings={
                "after_ms": 1_000,
                "before_ms": 60_000,
                "right_disorder_ms": 0,
                "left_disorder_ms": 0,
                "producer_delay_ms": 2_000,
            },
        )
    )
    run, told = Driven(spec, tmp_path), 0

    def after(ms: int) -> None:
        nonlocal told
        clock.go_on(ms)
        made.now_ms = clock.now_ms
        run.until_quiet()
        for report in reports(spec, run, clock.now_ms)[told:]:
            told += 1
            made.hour.batch(report)
        made.moment(lag=TopicLag(made.now_ms, {left.topic: 0, right.topic: 0}))

    for _ in range(2):  # it follows its topics from the third batch on
        produce(kafka, right.topic, [Put(0, b"x", clock.now_ms)])
        after(1_000)
    start_ms = clock.now_ms
    produce(kafka, right.topic, [Put(0, b"early", start_ms - 100)])
    produce(kafka, left.topic, [Put(0, b"early", start_ms), Put(0, b"tardy", start_ms)])
    after(500)
    after(3_500)
    produce(kafka, right.topic, [Put(0, b"tardy", start_ms)])
    after(5_000)
    page = opened(browser, pages, made)

    assert (page["name"], page["state"]) == ("j", "live")
    assert "Match 50.0 % of left matched" in page["flow"]
    assert f"{left.topic}" in page["flow"]
    assert page["facts"]["Rows since the start"] == "2, 50.0 % matched"
    assert "≤ 2 s1" in page["cards"]["late"], "as far as right's watermark had come when left was gone"
    curve = {waits: changes for waits, *changes in page["curve"]}
    assert curve["5 s more"] == ["+50.0 %", "+50.0 %"]
    assert curve["2 s more"] == ["0 %", "0 %"]
    assert curve["2 s less"] == ["0 %", "–"], (
        "it left 3.5 s after its right record was read; nobody can wait less than 0 s"
    )
    assert curve["1 s less"] == ["0 %", "0 %"]
    assert "5 s more would match about 50.0 % more of left; 2 s less would lose nothing." in page["cards"]["wait"]


def test_every_state_says_what_it_is_and_why(browser: webdriver.Chrome, pages: ExitStack) -> None:
    """One page, followed from the start of a job to its end."""
    made = MadeUp()
    made.moment(Phase.CONNECTING)
    assert "Spark starts" in opened(browser, pages, made)["says"]

    made.moment(lag=TopicLag(NOON_MS, {"clicks": 5_000_000}, 90.0))
    assert until_state(browser, "catching up")["says"] == "5,000,000 records are left to read. Through in 1 min 30 s."
    made.lives(60)
    page = until_state(browser, "live")
    assert (page["says"], page["warnings"]) == ("", [])
    assert set(page["cards"]) == {"watermarks", "rate", "latency", "matches", "partitions", "window", "late", "wait"}

    assert re.search(r"p50; p99 \d", page["cards"]["latency"])
    assert re.findall(r"(clicks|impressions)(\d)(\d\d?)", page["cards"]["partitions"]) == [
        ("impressions", "0", "30"),
        ("clicks", "1", "7"),
        ("clicks", "0", "5"),
    ]
    assert page["facts"]["Set aside since the start"].startswith("unjoined ")

    made.now_ms += 90_000
    made.waits(
        "open_transaction", "impressions-2: an open transaction holds its end at offset 88", 500, passed_ms=90_000
    )
    page = until_state(browser, "held")
    assert page["says"] == "impressions-2: an open transaction holds its end at offset 88. For 1 min 30 s."
    assert shown(browser)["facts"]["Held by"] == "open transaction"
    assert any(holder.startswith("open transaction") for holder in shown(browser)["holders"])

    made.moment(unreachable="kafka:9092: connection refused")
    wait(browser, lambda: "The brokers do not answer: kafka:9092" in shown(browser)["says"])
    made.lives(2, warning="right.disorder is 5 s, but ... ; set right.disorder higher")
    page = until_state(browser, "live")
    assert page["warnings"] == ["right.disorder is 5 s, but ... ; set right.disorder higher. just now"]
    made.now_ms += 60_000
    made.moment(lag=TopicLag(made.now_ms, {"clicks": 0}))
    assert until_state(browser, "idle")["says"] == "All that came is read. For 0.0 s."
    made.moment(Phase.STOPPING)
    until_state(browser, "stopping")
    made.shown.ended(ExitCode.UNREACHABLE)
    assert until_state(browser, "failed")["says"].startswith("Exit code 4: a broker")


def test_says_when_the_job_does_not_answer(browser: webdriver.Chrome, pages: ExitStack) -> None:
    """Old values stay, but cannot be mistaken for new ones."""
    made = MadeUp()
    made.lives(30)
    opened(browser, pages, made)
    network = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}

    browser.execute_cdp_cmd("Network.emulateNetworkConditions", {**network, "offline": True})

    page = until_state(browser, "unreachable")
    assert "values are those of 12:00:30 UTC" in page["status"]
    assert page["cards"]
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", {**network, "offline": False})
    until_state(browser, "live")


@pytest.mark.parametrize(
    ("kind", "report", "flow", "cards"),
    [
        (
            "feeder",
            FeedReport(
                7,
                0.5,
                {"read": 60, "stored": 55, "conflict": 5, "null_key": 0, "expired": 0, "late": 3},
                {},
                0,
                NOON_MS,
                900,
            ),
            "Right 2/s topic; Feeder 2/s newest 12:00:00; Storage 1.8/s",
            {"rate", "latency", "late"},
        ),
        (
            "dedup",
            DedupReport(
                7,
                0.5,
                {
                    "read": 60,
                    "written": 50,
                    "dropped": 10,
                    "without_id": 0,
                    "known": 12_345,
                    "forgotten": 0,
                    "skipped": 0,
                },
            ),
            "Source 2/s topic; Deduplicate 12.3 k ids known 0.33/s dropped; Output 1.7/s",
            {"rate"},
        ),
        (
            "unjoined",
            SliceReport(
                7, 0.5, NOON_MS, {"read": 60, "joined": 50, "unjoined": 10, "before_start": 0, "skipped": 0}, {}, {}
            ),
            "Input 2/s topic; Output 0.33/s",
            {"rate"},
        ),
    ],
)
def test_every_kind_of_job_shows_what_it_has(
    browser: webdriver.Chrome, pages: ExitStack, kind: str, report: Any, flow: str, cards: set[str]
) -> None:
    """No card is empty, and nothing is called by the name of something else."""
    sides = {"topic": {"feeder": "right"}.get(kind, "source")}
    made = MadeUp(JobDescription(name="job", kind=kind, version="1", does="works", sides=sides))
    made.now_ms += 30_000
    made.hour.batch(report)
    made.moment()

    page = opened(browser, pages, made)

    assert page["flow"] == f"Flow: {flow}"
    assert set(page["cards"]) == cards
    assert page["facts"].keys() >= {"Batch 7", "Runs for"}


def test_starts_are_marked_in_the_charts(browser: webdriver.Chrome, pages: ExitStack) -> None:
    """A job that its process starts again has a line for each; code in what it says has no backticks."""
    made = MadeUp()
    made.lives(60)
    made.shown.opening(ABOUT)
    made.lives(60, warning="raise `right.disorder`")

    page = opened(browser, pages, made)

    marks = "return [...document.querySelectorAll('#rate .start')].map(line => Number(line.getAttribute('x1')))"
    first, again = browser.execute_script(marks)
    assert first < again
    assert page["facts"]["Started again"] == "at 12:01"
    assert page["warnings"][0].startswith("raise right.disorder.")
    assert browser.execute_script("return document.querySelector('#warnings code').textContent") == "right.disorder"


def test_fits_a_phone_and_follows_the_dark(browser: webdriver.Chrome, pages: ExitStack) -> None:
    """360 px wide without scrolling sideways, in every card, also with names that are long."""
    long = "a-topic-with-a-name-of-some-eighty-characters-as-they-are-usual-in-large-companies"
    about = JobDescription(
        name=f"join-of-{long}",
        kind="window-join",
        version="1",
        does=long,
        sides={long: "left", f"{long}.2": "right"},
        settings={**ABOUT.settings, "output": long},
    )
    made = MadeUp(about)
    made.lives(120, warning=f"{long}{long} is wrong")
    made.waits("open_transaction", f"{long}{long}-2: an open transaction")
    backgrounds = []
    for scheme in ("light", "dark"):
        browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        )
        if not backgrounds:
            opened(browser, pages, made, width=360)
        backgrounds.append(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))

        assert browser.execute_script("return document.documentElement.scrollWidth") <= 360, "scrolls sideways"
        longest = "Math.max(...[...document.querySelectorAll('#flow text')].map(each => each.getComputedTextLength()))"
        assert browser.execute_script(f"return {longest}") < 160
    assert backgrounds[0] != backgrounds[1]


def test_loads_nothing_from_elsewhere_and_everything_has_a_name(browser: webdriver.Chrome, pages: ExitStack) -> None:
    """It works in an isolated network; its policy forbids everything else. In Chromium's tree charts have a text."""
    made = MadeUp()
    made.lives(60)
    opened(browser, pages, made)

    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]

    url = browser.current_url
    assert loaded
    assert all(name.startswith((url, "data:")) for name in loaded), loaded
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    headers = requests.get(url, timeout=5).headers
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    named = [
        (node["role"]["value"], node["name"]["value"])
        for node in nodes
        if not node.get("ignored") and node["role"]["value"] in ("image", "link", "DisclosureTriangle", "list")
    ]
    assert sum(role == "image" for role, _ in named) == 9, "the flow, and a chart for each card, two for watermarks"
    assert all(name for role, name in named if role in ("image", "link")), named
    assert any("Match rate, last 9" in name for _, name in named)
    assert browser.find_element(By.LINK_TEXT, "Metrics").get_attribute("href") == f"{url}metrics"
