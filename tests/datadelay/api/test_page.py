"""The page in headless Chromium, on a real server: what it shows is what the API says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from selenium import webdriver
from selenium.webdriver.common.by import By

from datadelay.model import PartitionReport, Submission
from tests.support.chromium import browser, chromium, resize, wait
from tests.support.delay_server import RunningServer, running_server
from tests.support.times import NOON_MS

__all__ = ["browser", "chromium"]

Make = Callable[..., Submission]
Shown = dict[str, Any]

READ_CARDS = """
return [...document.querySelectorAll("article")].filter(card => !card.hidden).map(card => {
  const field = name => card.querySelector(`[data-field="${name}"]`);
  const text = name => field(name).hidden ? null : field(name).textContent;
  return {
    consumer: text("consumer"), topic: text("topic"), state: card.dataset.state, state_text: text("state"),
    reason: text("reason"), delay: text("delay"), delay_ms: field("delay").value,
    consumed_until: text("consumed-until"), consumed_until_ms: field("consumed-until").value,
    slowest: text("slowest"), age: text("age"), age_ms: field("age").value, since_ms: field("since").value,
    charted: card.querySelectorAll("svg path.value").length, gaps: card.querySelectorAll("svg rect.gap").length,
    silent: card.querySelectorAll("svg path.silent").length,
    label: card.querySelector("svg")?.getAttribute("aria-label"),
    rows: [...card.querySelectorAll("tbody tr")].map(row => [...row.cells].map(cell => cell.textContent)),
  };
});
"""
STATE_TEXT = {"ok": "ok", "caught_up": "caught up", "unknown": "unknown", "stale": "stale"}


@pytest.fixture
def open_server(tmp_path: Path) -> Iterator[RunningServer]:
    """Runs a server that anybody may read."""
    with running_server(tmp_path, anonymous=["read"]) as running:
        yield running


def cards(browser: webdriver.Chrome) -> dict[str, Shown]:
    """Returns what the page shows, by topic."""
    return {card["topic"]: card for card in browser.execute_script(READ_CARDS)}


def api(server: RunningServer) -> dict[str, dict[str, Any]]:
    """Returns what the API says, by topic."""
    headers = server.headers("reader")
    delays = requests.get(f"{server.url}/v1/delays", headers=headers, timeout=5).json()["delays"]
    return {delay["topic"]: delay for delay in delays}


def numbers(value: int | None) -> str:
    return "" if value is None else str(value)


def assert_equal(shown: Shown, said: dict[str, Any]) -> None:
    """Compares every field that the page takes from the API, unchanged."""
    assert shown["consumer"] == said["consumer"]
    assert (shown["state"], shown["state_text"]) == (said["state"], STATE_TEXT[said["state"]])
    assert shown["reason"] == said["reason"]
    for name in ("delay_ms", "consumed_until_ms", "age_ms", "since_ms"):
        assert shown[name] == numbers(said[name])
    moment = said["consumed_until"]
    assert shown["consumed_until"] == ("unknown" if moment is None else f"{moment[:10]} {moment[11:-1]} UTC")
    assert shown["slowest"].split(",")[0] == str(said["slowest"]["partition"])


def submit_every_state(server: RunningServer, submission: Make) -> None:
    """Submits for four topics, each with a history of three submissions, which end in the four states."""
    client = server.client()
    start_ms = NOON_MS
    for minute in range(3):
        server.clock.now_ms = now_ms = start_ms + minute * 60_000
        for topic in ("fine", "idle", "lost", "silent"):
            lost = topic == "lost" and minute == 2
            if topic == "silent" and minute > 0:
                continue
            value_ms = None if lost else now_ms - 90_000
            reason = "<b>no answer</b> & no guess" if lost else None
            reports = (
                PartitionReport(0, 10 + minute, now_ms, None),
                PartitionReport(7, None if lost else 10 + minute, value_ms, reason),
            )
            more = {"topic": topic, "listed_ms": now_ms, "reason": reason, "caught_up": topic == "idle"}
            client.submit(submission(value_ms, partitions=reports, **more))
    server.clock.now_ms += 61_000


def test_shows_what_the_api_says_in_every_state(
    browser: webdriver.Chrome, open_server: RunningServer, submission: Make
) -> None:
    """ok, caught up, unknown and stale; on a desktop and on a phone of 360 px."""
    submit_every_state(open_server, submission)
    said = api(open_server)
    assert {topic: each["state"] for topic, each in said.items()} == {
        "fine": "ok",
        "idle": "caught_up",
        "lost": "unknown",
        "silent": "stale",
    }

    for width, height in ((1280, 900), (360, 3200)):
        resize(browser, width, height)
        browser.get(open_server.url)
        wait(browser, lambda: len(cards(browser)) == 4 and all(card["label"] for card in cards(browser).values()))
        shown = cards(browser)

        assert list(shown) == ["lost", "silent", "fine", "idle"], "what needs attention comes first"
        for topic, delay in said.items():
            assert_equal(shown[topic], delay)
        assert (shown["fine"]["delay"], shown["fine"]["slowest"]) == ("2 min 31 s", "7, 2 min 31 s behind now")
        assert (shown["lost"]["delay"], shown["lost"]["slowest"]) == ("unknown", "7, unknown"), "the reason is above"
        assert {topic: (c["charted"], c["gaps"], c["silent"]) for topic, c in shown.items()} == {
            "fine": (1, 0, 0),
            "idle": (1, 0, 0),
            "lost": (1, 1, 0),
            "silent": (1, 0, 1),
        }
        assert shown["lost"]["rows"][0] == ["12:02:00", "unknown", "unknown"]
        assert len(shown["fine"]["rows"]) == 3
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, "scrolls sideways"


def test_a_reason_is_said_once_without_backticks_and_charts_follow_a_resize(
    browser: webdriver.Chrome, open_server: RunningServer, submission: Make
) -> None:
    """What is between backticks is code; another reason of the slowest partition is said beside it."""
    why = "is `time` right, and do the producers set it?"
    for topic, reason in (("same", f"3 partitions, such as partition 7: {why}"), ("other", "the topic is gone")):
        reports = (PartitionReport(7, None, None, why),)
        open_server.client().submit(submission(None, topic=topic, partitions=reports, reason=reason))
    resize(browser, 1280, 900)
    browser.get(open_server.url)
    wait(browser, lambda: len(cards(browser)) == 2 and all(card["label"] for card in cards(browser).values()))

    shown = cards(browser)

    plain = why.replace("`", "")
    assert shown["same"]["reason"] == f"3 partitions, such as partition 7: {plain}"
    assert {topic: card["slowest"] for topic, card in shown.items()} == {
        "same": "7, unknown",
        "other": f"7, unknown: {plain}",
    }
    code = "return [...document.querySelectorAll('article code')].map(one => one.textContent)"
    assert {*browser.execute_script(code)} == {"time"}  # read at once, as cards are renewed
    fits = """return [...document.querySelectorAll(".chart")].every(
        box => box.querySelector("svg").viewBox.baseVal.width === Math.max(200, box.clientWidth))"""
    for width in (360, 900, 1280):
        resize(browser, width, 900)
        wait(browser, lambda: browser.execute_script(fits))


def test_follows_what_is_submitted_without_a_reload(
    browser: webdriver.Chrome, open_server: RunningServer, submission: Make
) -> None:
    """ok -> unknown -> ok -> stale -> forgotten, on one open page."""
    client, clock = open_server.client(), open_server.clock
    resize(browser, 1280, 900)
    client.submit(submission(NOON_MS - 5_000))
    browser.get(open_server.url)

    def shows(state: str) -> Shown | None:
        card = cards(browser).get("impressions")
        return card if card and card["state"] == state and card["age_ms"] == age() else None

    def age() -> str:
        return str(api(open_server)["impressions"]["age_ms"])

    assert_equal(wait(browser, lambda: shows("ok")), api(open_server)["impressions"])
    clock.now_ms += 60_000
    client.submit(submission(None, position=None, listed_ms=clock.now_ms))
    assert_equal(wait(browser, lambda: shows("unknown")), api(open_server)["impressions"])
    clock.now_ms += 60_000
    client.submit(submission(clock.now_ms - 1_000, position=11, listed_ms=clock.now_ms))
    assert_equal(wait(browser, lambda: shows("ok")), api(open_server)["impressions"])
    clock.now_ms += 3_600_000
    assert_equal(wait(browser, lambda: shows("stale")), api(open_server)["impressions"])
    client.forget("feeder", "impressions")
    wait(browser, lambda: not cards(browser))
    assert "Nothing was submitted yet" in browser.find_element(By.ID, "empty").text


def test_asks_for_a_token_where_reading_needs_one(
    browser: webdriver.Chrome, server: RunningServer, submission: Make
) -> None:
    """A wrong one is refused with the server's message; the right one is kept for this tab only."""
    server.client().submit(submission())
    browser.get(server.url)
    field = browser.find_element(By.ID, "token")
    wait(browser, field.is_displayed)
    assert not cards(browser)

    field.send_keys("wrong\n")
    wait(browser, lambda: "not known here" in browser.find_element(By.ID, "login-reason").text)
    field.send_keys(server.secrets["reader"] + "\n")
    wait(browser, lambda: "impressions" in cards(browser))

    assert_equal(cards(browser)["impressions"], api(server)["impressions"])
    assert not field.is_displayed()
    kept = browser.execute_script("return [sessionStorage.length, localStorage.length, document.cookie]")
    assert kept == [1, 0, ""]
    browser.find_element(By.ID, "forget-token").click()
    wait(browser, field.is_displayed)
    assert not cards(browser)


def test_finds_topics_by_name(browser: webdriver.Chrome, open_server: RunningServer, submission: Make) -> None:
    """All words must be there, in the consumer or in the topic."""
    for topic in ("ads.bids", "ads.clicks", "mail"):
        open_server.client().submit(submission(topic=topic))
    browser.get(open_server.url)
    wait(browser, lambda: len(cards(browser)) == 3)

    browser.find_element(By.ID, "find").send_keys("FEEDER ads")

    assert sorted(cards(browser)) == ["ads.bids", "ads.clicks"]


def test_says_when_the_server_does_not_answer(browser: webdriver.Chrome, tmp_path: Path, submission: Make) -> None:
    """Old values stay, but cannot be mistaken for new ones."""
    with running_server(tmp_path, anonymous=["read"]) as server:
        server.client().submit(submission())
        browser.get(server.url)
        wait(browser, lambda: "impressions" in cards(browser))

    wait(browser, lambda: "values are those of 12:00:00 UTC" in browser.find_element(By.ID, "status").text)
    assert browser.find_element(By.ID, "status").get_attribute("class") == "failed"


def test_loads_nothing_from_elsewhere_and_logs_no_error(
    browser: webdriver.Chrome, open_server: RunningServer, submission: Make
) -> None:
    """It works in an isolated network; its policy forbids everything else."""
    open_server.client().submit(submission())
    browser.get(open_server.url)
    wait(browser, lambda: cards(browser).get("impressions", {}).get("label"))

    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")

    assert loaded
    assert all(name.startswith((f"{open_server.url}/", "data:")) for name in loaded), loaded
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    headers = requests.get(open_server.url, timeout=5).headers
    assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_every_control_has_a_name_and_every_chart_a_text(
    browser: webdriver.Chrome, open_server: RunningServer, submission: Make
) -> None:
    """By Chromium's own accessibility tree."""
    open_server.client().submit(submission())
    browser.get(open_server.url)
    wait(browser, lambda: cards(browser).get("impressions", {}).get("label"))

    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]

    named = [
        (node["role"]["value"], node["name"]["value"])
        for node in nodes
        if not node.get("ignored") and node["role"]["value"] in ("searchbox", "combobox", "image", "button")
    ]
    assert {role for role, _ in named} >= {"searchbox", "combobox", "image"}
    assert all(name for _, name in named), named
    assert any("Delay of impressions read by feeder" in name for _, name in named)
