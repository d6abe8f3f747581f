"""The list of jobs in headless Chromium: each row leads to the page of its job, and back."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
from selenium import webdriver

from deploy.jobfile.job import MetricsAt
from deploy.watch.board import Board
from deploy.watch.life.moment import TopicLag
from teacup.base.errors import ExitCode
from tests.deploy.watch.reports import ABOUT
from tests.deploy.watch.served import state
from tests.support.chromium import browser, chromium, resize, wait

__all__ = ["browser", "chromium"]

ROWS = (
    "return [...document.querySelectorAll('#jobs tbody tr')].map(row => [...row.children].map(cell => cell.innerText))"
)


@pytest.mark.slow
def test_the_list_shows_each_job_and_leads_to_its_page(browser: webdriver.Chrome) -> None:
    """Also of a name that is not one of a path, and without a sideways scroll on a phone."""
    with closing(Board(MetricsAt(port=0), "2 jobs", many_jobs=True)) as board:
        assert board.server.listens.wait(60)
        for name in ("one", "clicks and views"):
            shown = board.show(name)
            shown.opening(replace(ABOUT, name=name))
            shown.moment(state(lag=TopicLag(0, {"left-topic": 1_234})))
        board.show("one").ended(ExitCode.DATA_LOSS)
        resize(browser, 360, 800)
        browser.get(f"{board.server.url}/")
        wait(browser, lambda: len(browser.execute_script(ROWS)) == 2)

        rows = browser.execute_script(ROWS)
        assert [row[:3] for row in rows] == [["one", "failed", ""], ["clicks and views", "catching up", "1,234"]]
        assert "Exit code 3" in rows[0][3]
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")

        browser.find_element("link text", "clicks and views").click()
        wait(browser, lambda: browser.title == "clicks and views")
        assert [line["message"] for line in browser.get_log("browser")] == []
        browser.get("about:blank")
