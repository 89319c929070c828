"""What a page keeps of BokehJS: each version for itself, nothing that failed, no old document."""

import json
import subprocess
from pathlib import Path

from playwright._impl._driver import compute_driver_executable

from dgkit.widgets.figure import bokehjs

_PAGE = """
globalThis.window = globalThis;
globalThis.URL = { createObjectURL: (blob) => blob, revokeObjectURL() {} };
globalThis.Blob = class { constructor([source]) { this.source = source; } };
const ran = [];
globalThis.h = (_tag, { src, onload, onerror }) => () => {
  ran.push(src.source);
  if (src.source.startsWith("fails")) return onerror();
  const [name, version] = src.source.split(" ");
  const made = { version, documents: [], require: () => ({}) };
  if (name === "bokeh" && !window.Bokeh) window.Bokeh = made;
  else if (name === "bokeh") window.Bokeh[version] = made;
  onload();
};
globalThis.document = { head: { append: (run) => run() } };
const viewOf = (version, broken = false) => ({
  call: async (_name, { names }) =>
    ({ buffers: names.map((name) => broken ? `fails ${name}` : `${name} ${version}`) }),
});
%s
const failed = await loadBokeh(viewOf("3.7", true), "3.7", ["bokeh"]).then(() => "", String);
const [old, again] = [await loadBokeh(viewOf("3.7"), "3.7", ["bokeh", "gl"]),
  await loadBokeh(viewOf("3.7"), "3.7", ["bokeh", "gl"])];
bokehPage.requested = -Infinity; // a page asks no two kernels within three seconds
const next = await loadBokeh(viewOf("3.8"), "3.8", ["bokeh", "gl"]);
const [kept, drawn] = [{}, {}];
next.documents.push(kept, drawn);
removeDocument(next, drawn);
removeDocument(next, drawn);
console.log(JSON.stringify({
  failed, ran, versions: [old.version, again.version, next.version],
  left: next.documents.length, kept: next.documents[0] === kept,
}));
"""


def test_a_page_loads_each_version_once_and_tries_again_what_failed(tmp_path):
    node, _ = compute_driver_executable()
    script = Path(bokehjs.__file__).with_suffix(".js").read_text(encoding="utf-8")
    program = tmp_path / "page.mjs"
    program.write_text(_PAGE % script, encoding="utf-8")
    done = subprocess.run([node, program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert "refuses" in seen["failed"]
    ran = ["fails bokeh", "bokeh 3.7", "gl 3.7", "bokeh 3.8", "gl 3.8"]
    assert seen["ran"] == ran
    assert seen["versions"] == ["3.7", "3.7", "3.8"]
    assert (seen["left"], seen["kept"]) == (1, True)
