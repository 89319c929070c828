# SPDX-License-Identifier: Apache-2.0
"""The image's fold in the page: a click is not lost to a state that comes before its event."""

import json

from support.jupyter.node import run_module

_PAGE = """
class Made {
  constructor(tag) {
    Object.assign(this, { tag, style: {}, dataset: {}, heard: {}, children: [] });
  }
  setAttribute(name, value) { this[name] = value; }
  addEventListener(name, listener) { this.heard[name] = listener; }
  append(...children) { this.children.push(...children); }
}
globalThis.document = { createElement: (tag) => new Made(tag) };
globalThis.ResizeObserver = class { observe() {} disconnect() {} };
"""

_TEST = """
const calls = [];
const region = { id: 1 };
const view = { state: { region }, on() {}, signal: { addEventListener() {} },
  attempt: (name, fields) => calls.push([name, fields.on]), call: async () => {} };
const image = new RegionImage(view, { id: "grid" });
const { element } = image;
const state = (on) => image.apply({ region, source: "dpu", endian: "little",
  image: on ? { dtype: "", palette: "grey" } : null });
state(false);
// A click on the summary opens the fold at once; its toggle event is a later task.
const summary = element.children.find((child) => child.tag === "summary");
summary.heard.click?.();
element.open = true;
state(false); // of another change, such as the source's
element.heard.toggle();
print({ calls, open: element.open });
state(true);
element.heard.toggle();
state(false); // by the kernel
element.heard.toggle();
print({ calls, open: element.open });
"""


def test_a_click_is_not_lost_to_a_state_that_comes_before_its_event():
    seen = run_module("hexview/image.js", "RegionImage", _TEST, before=_PAGE)
    after_click, by_kernel = map(json.loads, seen.splitlines())
    assert after_click == {"calls": [["show_image", True]], "open": True}
    assert by_kernel == {"calls": [["show_image", True]], "open": False}
