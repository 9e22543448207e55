"""Pages in a real browser, for all tests of pages. Tests skip themselves where playwright or Chromium is missing."""

import shutil
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


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


@pytest.fixture
def visit(browser):
    """Open a page. At the end there must be no message, no dialog, and no request but for the page's own files."""
    messages, requests, contexts = [], [], []

    def go(path, width=1300, height=900, scheme="light", query=""):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: messages.append(m.text))
        page.on("pageerror", lambda e: messages.append(str(e)))
        page.on("dialog", lambda d: (messages.append(f"dialog: {d.message}"), d.dismiss()))
        page.on("request", lambda r: requests.append(r.url))
        page.goto(f"{Path(path).as_uri()}{query}")
        ready(page)
        return page

    yield go
    for context in contexts:
        context.close()
    assert [] == messages
    assert [] == [url for url in requests if not url.startswith(("file:", "data:", "blob:"))]
