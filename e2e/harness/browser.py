"""Debian's Chromium, driven by Playwright, on the page as an operator alone (alone.py) or a run's report serves it.

PP_BROWSER  a folder with the packages of operator/tests/readers/page.txt
"""
import contextlib
import os
import shutil
import sys

from .progress import CommandError

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# A container has neither a namespace for the sandbox nor a large /dev/shm. What is opened are our own pages alone.
OPTIONS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"]


def program():
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if not found:
        raise CommandError("there is no chromium here: e2e/setup @browser")
    return found


@contextlib.contextmanager
def chromium():
    """A browser of Playwright's, to make contexts of."""
    folder = os.environ.get("PP_BROWSER")
    if folder and folder not in sys.path:
        sys.path.append(folder)
    from playwright.sync_api import sync_playwright  # pylint: disable=import-outside-toplevel
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=OPTIONS)
        try:
            yield browser
        finally:
            browser.close()


class Page:
    """A tab, and what went wrong in it: `said` are the console's errors and warnings, and uncaught exceptions."""

    def __init__(self, browser, address, token=None, **options):
        """`address` of the page, with its slash at the end; `options` of the context."""
        self.context = browser.new_context(**{"ignore_https_errors": True, "viewport": {"width": 1280, "height": 900}, **options})
        self.tab, self.address, self.said = self.context.new_page(), address, []
        self.tab.on("console", lambda one: one.type in ("error", "warning") and self.said.append(one.text))
        self.tab.on("pageerror", lambda error: self.said.append(str(error)))
        self.tab.on("dialog", lambda dialog: (self.said.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
        if token:
            self.log_in(token)

    def log_in(self, token):
        self.tab.goto(self.address)
        self.tab.fill("form.login input", token)
        self.tab.click("form.login button")
        self.tab.wait_for_selector("h1:has-text('Sessions')")

    def show(self, way, ready):
        """A view by what stands behind #; `ready` is a selector of what it has when it is there."""
        self.tab.goto(f"{self.address}#/{way}")
        self.tab.wait_for_selector(ready)

    def scroll_through(self):
        """So that all charts are drawn."""
        height = self.tab.evaluate("document.body.scrollHeight")
        for top in range(0, height, 600):
            self.tab.evaluate(f"scrollTo(0, {top}); new Promise((done) => requestAnimationFrame(() => setTimeout(done, 30)))")
        self.tab.evaluate("scrollTo(0, 0)")

    def close(self):
        self.context.close()
