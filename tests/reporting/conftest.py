"""Pages in a real browser, for all tests of pages. Tests skip themselves where playwright or Chromium is missing."""

import fcntl
import shutil
from pathlib import Path

import pytest

from deepbench.reporting import site
from tests.reporting.page_files import HOSTILE, result_file

# The first one has no windows, whose processes need more time than our pages.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


def ready(page):
    """Wait until the scripts of the page have run. (Polling evaluates a string, which the page forbids.)"""
    from playwright.sync_api import expect

    expect(page.locator("[data-ready=yes]")).to_be_attached()


def violations(page, of_any_impact=False):
    """Accessibility rules that the page breaks seriously, or at all, each with its first element."""
    from axe_playwright_python.sync_playwright import Axe

    # Preloading would fetch our styles, which the page forbids. What passes is not described, for half of the time.
    found = Axe().run(page, options={"preload": False, "resultTypes": ["violations"]}).response["violations"]
    return [
        (v["id"], v["nodes"][0]["html"][:120]) for v in found if of_any_impact or v["impact"] in ("serious", "critical")
    ]


@pytest.fixture(scope="session")
def public(shared_folder):
    """A site of two files and of the published machines. One test process builds it for all."""
    results, built = shared_folder / "site" / "results", shared_folder / "site" / "public"
    with (shared_folder / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            results.mkdir(parents=True, exist_ok=True)
            for name, cpu in (("mine", "A CPU"), ("yours", HOSTILE)):
                result_file(results / f"{name}.jsonl", cpu)
            site.build(results, built, with_published=True)
    return built


@pytest.fixture(scope="session")
def _tab(browser):
    """One page for all tests: a new one starts processes, for a second of CPU time."""
    with browser.new_context(accept_downloads=True) as context:
        yield context.new_page()


@pytest.fixture
def visit(_tab):
    """Open a page in the only tab. At the end there must be no message, no dialog, and no request but for its files."""
    messages, requests = [], []
    listeners = {
        "console": lambda m: messages.append(m.text),
        "pageerror": lambda e: messages.append(str(e)),
        "dialog": lambda d: (messages.append(f"dialog: {d.message}"), d.dismiss()),
        "request": lambda r: requests.append(r.url),
    }
    for event, listener in listeners.items():
        _tab.on(event, listener)

    def go(path, width=1300, height=900, scheme="light", query=""):
        _tab.set_viewport_size({"width": width, "height": height})
        _tab.emulate_media(media="null", color_scheme=scheme)
        _tab.goto(f"{Path(path).as_uri()}{query}")
        ready(_tab)
        return _tab

    yield go
    if requests:
        _tab.evaluate("sessionStorage.clear()")
    _tab.goto("about:blank")
    for event, listener in listeners.items():
        _tab.remove_listener(event, listener)
    assert [] == messages
    assert [] == [url for url in requests if not url.startswith(("file:", "data:", "blob:", "about:"))]
