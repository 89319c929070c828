# SPDX-License-Identifier: Apache-2.0
"""The demo page of the site: today's panels play the recorded session (.github/site/build.py)."""

import re
from pathlib import Path
from runpy import run_path

import pytest
from playwright.sync_api import expect
from support.jupyter.page import WAIT_MS

SITE = Path(__file__).parents[2] / ".github/site"


@pytest.fixture
def demo(tmp_path, browser):
    """The page, and what it reported as errors."""
    run_path(str(SITE / "demo_page.py"))["write_demo"](tmp_path)
    page = browser.new_page(viewport={"width": 1220, "height": 1000})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((tmp_path / "demo.html").as_uri())
    yield page, errors
    page.close()


def test_the_recording_plays_to_its_end_and_refuses_what_needs_a_kernel(demo):
    page, errors = demo
    expect(page.locator(".dgd-value")).to_have_text(re.compile(r"\d µs"), timeout=WAIT_MS)
    expect(page.get_by_text(re.compile("wrote 64 KiB in 16 DMA writes"))).to_be_visible()
    expect(page.locator(".dgkit-latency canvas").first).to_be_visible()
    expect(page.locator(".dgkit-hexview")).to_contain_text("00000010")
    page.get_by_role("button", name=re.compile("^(Start|Stop) monitor")).click()
    expect(page.locator(".dgkit-dashboard .dg-strip").first).to_contain_text("plays a recording")
    assert errors == []
