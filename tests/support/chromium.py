"""A headless Chromium for the tests of pages: one for a module, an empty page before each test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

HASTE = """
const usual = window.setTimeout;
window.setTimeout = (call, ms, ...more) => usual(call, ms / 30, ...more);
"""  # the page asks for news every few seconds


@pytest.fixture(scope="module")
def chromium() -> Iterator[webdriver.Chrome]:
    """Runs a headless Chromium, which `tests/install-browser.sh` installs."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert binary, "chromium is missing: run tests/install-browser.sh"
    assert driver, "chromedriver is missing: run tests/install-browser.sh"
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with webdriver.Chrome(options=options, service=Service(driver)) as started:
        started.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": HASTE})
        yield started


@pytest.fixture
def browser(chromium: webdriver.Chrome) -> webdriver.Chrome:
    """Leaves the page of the test before: it would go on asking a server that is gone, and log that."""
    chromium.get("about:blank")
    chromium.get_log("browser")
    return chromium


def resize(browser: webdriver.Chrome, width: int, height: int) -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def wait(browser: webdriver.Chrome, condition: Callable[[], Any]) -> Any:
    """Waits until the condition holds."""
    waiting = WebDriverWait(browser, 30, 0.05, ignored_exceptions=[StaleElementReferenceException])
    return waiting.until(lambda _: condition())
