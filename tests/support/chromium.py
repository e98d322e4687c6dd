"""Debian's Chromium, driven as a person would: by keys, and looked at by what it shows."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.chrome.webdriver import WebDriver


@contextlib.contextmanager
def running_chromium(profile: Path) -> Iterator[WebDriver]:
    """A browser without a window; everything that its console complains about is kept for ``complaints``."""
    options = Options()
    options.binary_location = "/usr/bin/chromium"
    for argument in (
        "--headless=new",
        "--no-sandbox",  # tests run as root in containers
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--window-size=1280,1250",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        yield browser
    finally:
        browser.quit()


def complaints(browser: WebDriver) -> list[str]:
    """Errors and warnings of pages and their policy since the last look."""
    found = browser.get_log("browser")
    return [one["message"] for one in found if one["level"] in ("SEVERE", "WARNING")]


def prefer(browser: WebDriver, scheme: str) -> None:
    """What the reader's system prefers: light or dark."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
