"""The web console in a real Chromium: live figures, a request's timeline, keys alone, both themes, operators only.

`HEADRACE_TEST_SCREENSHOTS` names a folder that keeps the pictures.
"""

import asyncio
import os
from pathlib import Path

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from headrace.client import AsyncClient
from tests.support.chromium import complaints, prefer, running_chromium
from tests.support.outcomes import TokenCount, collect
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, Stack, running_stack

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

ADMIN_KEY = "an-admin-key-of-24-chars"


def address(stack: Stack) -> str:
    """Where the console is."""
    return f"http://{stack.gateways[0].endpoints['metrics'].removeprefix('http://')}/console/"


def text(browser: WebDriver, selector: str) -> str:
    """What is read there now, if anything. Found and read by the page itself: it may draw anew between two questions."""
    return browser.execute_script(
        "const found = document.querySelector(arguments[0]);"
        "return found?.checkVisibility() ? found.innerText : '';",
        selector,
    )


def kv_share(browser: WebDriver) -> float:
    """Of the worker's KV memory, as its meter shows it."""
    return browser.execute_script("return document.querySelector('#workers meter')?.value ?? 0")


def press(browser: WebDriver, *keys: str) -> None:
    """To whatever has the focus, as a keyboard does."""
    browser.switch_to.active_element.send_keys(*keys)


def ground(browser: WebDriver) -> str:
    return browser.execute_script("return getComputedStyle(document.body).backgroundColor")


def picture(browser: WebDriver, folder: Path, name: str) -> None:
    """Kept where it was asked for; a page that was painted is no small picture."""
    kept = Path(os.environ.get("HEADRACE_TEST_SCREENSHOTS") or folder) / f"console-{name}.png"
    assert browser.save_screenshot(str(kept))
    assert kept.stat().st_size > 20_000, f"{name} is all but empty"


def is_contained(browser: WebDriver) -> bool:
    """Whether nothing of the page sticks out to the right."""
    return browser.execute_script(
        "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )


def watch_it_live(browser: WebDriver, folder: Path) -> None:
    """Requests wait and run, and all of it is on the page without a reload."""
    eventually(lambda: "sim" in text(browser, "#queues tbody"), within_s=120)
    eventually(lambda: "worker-0" in text(browser, "#workers tbody"), within_s=120)
    eventually(lambda: "4/4" in text(browser, "#workers tbody"), within_s=120)
    eventually(lambda: "queued" in text(browser, "#oldest tbody"), within_s=120)
    eventually(lambda: "p99" in text(browser, "#charts figure:nth-child(1)"), within_s=120)
    eventually(lambda: "blue" in text(browser, "#tenants tbody"), within_s=120)
    first = text(browser, "#oldest tbody tr:first-child")
    eventually(lambda: text(browser, "#oldest tbody tr:first-child") != first, within_s=120)
    eventually(lambda: 0 < kv_share(browser) <= 1)
    prefer(browser, "light")
    light = ground(browser)
    picture(browser, folder, "light")
    prefer(browser, "dark")
    assert ground(browser) != light, "the system's preference decides"
    picture(browser, folder, "dark")
    press(browser, "t")
    assert text(browser, "#theme") == "Theme: light"
    assert ground(browser) == light, "the reader's choice outranks it"


def look_one_up_by_keys(browser: WebDriver, folder: Path) -> None:
    """From the list by Tab and Enter, and by its id with a slash; Esc leads back."""
    press(browser, "p")  # rows stay while they are walked through
    eventually(lambda: text(browser, "#pause") == "Resume")
    request_id = text(browser, "#oldest tbody tr:first-child button")
    for _ in range(40):
        press(browser, Keys.TAB)
        if browser.switch_to.active_element.get_attribute("data-key") == request_id:
            break
    press(browser, Keys.ENTER)
    eventually(lambda: "Request" in text(browser, "#timeline"), within_s=120)
    eventually(lambda: request_id in text(browser, "#timeline-title"))
    for fact in ("blue", "Stage"):
        eventually(lambda fact=fact: fact in text(browser, "#timeline-body"))
    eventually(lambda: browser.find_elements(By.CSS_SELECTOR, "#timeline svg.stages rect"))
    picture(browser, folder, "timeline")
    press(browser, Keys.ESCAPE)
    eventually(lambda: not browser.find_elements(By.CSS_SELECTOR, "dialog[open]"), within_s=120)
    assert browser.switch_to.active_element.get_attribute("data-key") == request_id
    press(browser, "/")
    press(browser, "nobody", Keys.ENTER)
    eventually(lambda: "no such request" in text(browser, "#problem"), within_s=120)


def watch(stack: Stack, folder: Path) -> None:
    """Everything that a reader does."""
    with running_chromium(folder / "profile") as browser:
        browser.get(address(stack))
        eventually(lambda: browser.find_elements(By.CSS_SELECTOR, "#key[open]"), within_s=120)
        press(browser, ADMIN_KEY, Keys.ENTER)
        watch_it_live(browser, folder)
        assert is_contained(browser)
        look_one_up_by_keys(browser, folder)
        browser.set_window_size(500, 900)
        assert is_contained(browser), "a narrow window scrolls tables and nothing else"
        # The browser itself reports each answer that is no success: the first look without a key, the lookup.
        unexpected = [one for one in complaints(browser) if "401" not in one and "404" not in one]
        assert not unexpected


async def test_the_console(tmp_path: Path):
    """A stack under more load than it can take, watched by an operator."""
    flags = [*SIMULATED, "--step-ms", "60", "--max-seqs", "4"]
    with running_stack(worker_flags=flags, gateway_flags=["--admin-key", ADMIN_KEY]) as stack:
        metadata = [("x-tenant-id", "blue")]
        async with AsyncClient(stack.targets, metadata=metadata) as client:
            count = TokenCount()

            async def ask_on(number: int) -> None:
                while True:
                    await collect(
                        client,
                        f"number {number}",
                        model="sim",
                        max_tokens=40 + 10 * number,
                        ignore_eos=True,
                        count=count,
                    )

            tasks = [asyncio.create_task(ask_on(number)) for number in range(10)]
            await count.more(40)
            await asyncio.to_thread(watch, stack, tmp_path)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
