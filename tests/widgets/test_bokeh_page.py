# SPDX-License-Identifier: Apache-2.0
"""What a page keeps of BokehJS: each version for itself, nothing that failed, no old document."""

import json

from support.jupyter.node import run_module

_PAGE = """
globalThis.window = globalThis;
globalThis.URL = { createObjectURL: (blob) => blob.source, revokeObjectURL() {} };
const text = (bytes) => new TextDecoder().decode(bytes);
globalThis.Blob = class { constructor([source]) { this.source = text(source); } };
const ran = [];
const run = (script) => {
  if (!script.src) return; // a page that refuses blobs and inline scripts
  ran.push(script.src);
  if (script.src.startsWith("fails")) return script.error();
  const [name, version] = script.src.split(" ");
  const made = { version, documents: [], require: () => ({}) };
  if (name === "bokeh" && !window.Bokeh) window.Bokeh = made;
  else if (name === "bokeh") window.Bokeh[version] = made;
  script.load();
};
globalThis.document = {
  createElement: () => ({
    dataset: {}, append() {}, setAttribute(name, value) { this[name] = value; },
    addEventListener(name, listener) { this[name] = listener; },
  }),
  head: { append: run },
};
const bytes = (text) => new TextEncoder().encode(text);
const viewOf = (version, broken = false) => ({
  call: async (_name, { names }) =>
    ({ buffers: names.map((name) => bytes(broken ? `fails ${name}` : `${name} ${version}`)) }),
});
"""

_TEST = """
const failed = await loadBokeh(viewOf("3.7", true), "3.7", ["bokeh"]).then(() => "", String);
const [old, again] = [await loadBokeh(viewOf("3.7"), "3.7", ["bokeh", "gl"]),
  await loadBokeh(viewOf("3.7"), "3.7", ["bokeh", "gl"])];
bokehPage.requested = -Infinity; // a page asks no two kernels within three seconds
const next = await loadBokeh(viewOf("3.8"), "3.8", ["bokeh", "gl"]);
const [kept, drawn] = [{}, {}];
next.documents.push(kept, drawn);
removeDocument(next, drawn);
removeDocument(next, drawn);
print({
  failed, ran, versions: [old.version, again.version, next.version],
  left: next.documents.length, kept: next.documents[0] === kept,
});
"""


def test_a_page_loads_each_version_once_and_tries_again_what_failed():
    names = "loadBokeh, bokehPage, removeDocument"
    seen = json.loads(run_module("figure/bokehjs.js", names, _TEST, before=_PAGE))
    assert "refuses" in seen["failed"]
    ran = ["fails bokeh", "bokeh 3.7", "gl 3.7", "bokeh 3.8", "gl 3.8"]
    assert seen["ran"] == ran
    assert seen["versions"] == ["3.7", "3.7", "3.8"]
    assert (seen["left"], seen["kept"]) == (1, True)
