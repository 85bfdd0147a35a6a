"""The console in a real browser: clicks and typing, use by keyboard alone, light and dark colours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio

from gregor.client import Producer
from tests.broker_process import running_broker
from tests.command_line.console.browser import Browser, needs_browser, running_browser
from tests.command_line.console.visitor import CONSOLE, Visitor, visitor_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.peer, needs_browser]

TAB, ENTER = "\ue004", "\ue007"
HOSTILE = b"<img src=x onerror=document.title='taken'>"
PATHS = (
    "/",
    "/topics",
    "/topics/orders",
    "/topics/orders/produce",
    "/topics/orders/configs",
    "/groups",
    "/clients",
    "/faults",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide the address of a console with the topic `orders`."""
    faults = "gregor.fault.injection.enable=true"
    with running_broker(tmp_path_factory.mktemp("broker"), CONSOLE, faults, "num.partitions=2") as broker:
        trio.run(fill, broker.bootstrap)
        yield f"http://127.0.0.1:{visitor_of(broker).port}"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running_browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


async def fill(bootstrap: str) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send("orders", HOSTILE, key=HOSTILE, headers=[(HOSTILE.decode(), HOSTILE)])
        await producer.flush()


def test_every_page_loads_without_errors_and_fits_a_narrow_window(site: str, browser: Browser) -> None:
    browser.log()
    for path in PATHS:
        browser.open(site + path)
        assert browser.text("h1")
        assert browser.run("return document.title") != "taken"
        assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth"), path
        unnamed = browser.run(
            "return [...document.querySelectorAll('input:not([type=hidden]),select,textarea,button')]"
            ".filter(field => !(field.labels && field.labels.length) && !field.ariaLabel && !field.textContent.trim())"
            ".map(field => field.outerHTML)"
        )
        assert unnamed == [], path
    assert browser.log() == []


def test_a_record_is_produced_and_found(site: str, browser: Browser) -> None:
    browser.open(f"{site}/topics/orders")
    browser.click("nav.tabs a[href$='/produce']")
    browser.write("textarea[name=value]", '{"customer": "Ada Lovelace"}')
    browser.click("form.wide button.main")
    browser.wait_for("[role=status]", "The record is at offset")
    browser.write("input[name=text]", "lovelace")
    browser.click("form.filters button")
    browser.wait_for("table.records tbody", "Ada Lovelace")
    browser.click("table.records summary")
    browser.wait_for("table.records pre", '"customer": "Ada Lovelace"')


def test_a_topic_is_created_by_the_keyboard_alone(site: str, browser: Browser) -> None:
    browser.open(f"{site}/topics")
    for _ in range(40):
        browser.press(TAB)
        if browser.run("return document.activeElement.tagName") == "SUMMARY":
            break
    browser.press(ENTER)
    browser.press(TAB)
    for letter in "typed":
        browser.press(letter)
    browser.press(ENTER)
    browser.wait_for("[role=status]", "Topic typed was created")


def test_a_fault_is_switched_on_and_off(site: str, browser: Browser) -> None:
    browser.open(f"{site}/faults")
    assert browser.label("button.switch") == "Switch slow on"
    browser.click("button[aria-label='Switch slow on']")
    browser.wait_for("[role=status]", "Rule slow is in force")
    browser.click("button[aria-label='Switch slow off']")
    browser.wait_for("main", "No rule is in force")


def test_plots_and_followed_records_move(site: str, browser: Browser) -> None:
    browser.open(f"{site}/")
    before = browser.run("return document.querySelector('figure:nth-child(5) polyline').getAttribute('points')")
    newer = "return document.querySelector('figure:nth-child(5) polyline').getAttribute('points')"
    wait_until(lambda: bool(browser.run(newer) != before))
    browser.open(f"{site}/topics/orders?follow=1")
    form = {"value": "just now", "value_kind": "text", "key_kind": "null", "codec": "none"}
    Visitor(int(site.rpartition(":")[2])).send("/topics/orders/produce", **form)
    browser.wait_for("table.records", "just now")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(site: str, browser: Browser, scheme: str) -> None:
    browser.use_colours(scheme)
    for path in PATHS:
        browser.open(site + path)
        faint = browser.run(CONTRAST)
        assert faint == [], path
    browser.use_colours("light")


CONTRAST = """
const parse = text => {
  const found = text.match(/[\\d.]+/g).map(Number);
  const numbers = text.startsWith('color(') ? found.map((n, i) => i < 3 ? n * 255 : n) : found;
  return [numbers[0], numbers[1], numbers[2], numbers.length > 3 ? numbers[3] : 1];
};
const luminance = colour => {
  const part = value => { value /= 255; return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4; };
  return 0.2126 * part(colour[0]) + 0.7152 * part(colour[1]) + 0.0722 * part(colour[2]);
};
const ground = element => {
  for (; element; element = element.parentElement) {
    const colour = parse(getComputedStyle(element).backgroundColor);
    if (colour[3] === 1) return colour;
  }
  return [255, 255, 255, 1];
};
const faint = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
  if (['SCRIPT', 'OPTION'].includes(element.tagName)) continue;
  const [a, b] = [luminance(parse(getComputedStyle(element).color)), luminance(ground(element))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) faint.push(walker.currentNode.data.trim().slice(0, 40) + ' ' + ratio.toFixed(2));
}
return [...new Set(faint)];
"""
"""The texts whose contrast is below 4.5:1, the least that WCAG 2.2 AA allows."""
