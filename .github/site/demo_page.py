# SPDX-License-Identifier: Apache-2.0
"""The demo page: the dashboard's modules, a recorded session, and a player between them.

All are scripts, for a page that is opened as a file may not load modules.
"""

import shutil
from base64 import b64encode
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path

__all__ = ["write_demo"]

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "dgkit"
BOKEH_PARTS = ("widgets", "gl")  # of BokehJS, that the dashboard's figures need


def write_demo(folder: Path) -> None:
    """Write demo.html and its scripts into a folder."""
    link = run_path(str(PACKAGE / "widgets/base/esm.py"))["link"]
    module, style = link(PACKAGE / "widgets/dashboard/dashboard.js")
    body = module.replace("export default ", "return ")
    recording = b64encode((HERE / "recording.json.gz").read_bytes()).decode()
    texts = {
        "dashboard.js": f"window.dgkitDashboard = () => {{\n{body}\n}};\n",
        "recording.js": f'window.dgkitRecording = "{recording}";\n'
        f"window.dgkitBokehParts = {list(BOKEH_PARTS)};\n",
        "demo.js": (HERE / "demo.js").read_text(encoding="utf-8"),
    }
    bokeh = ["bokeh.min.js", *(f"bokeh-{part}.min.js" for part in BOKEH_PARTS)]
    tags = "".join(f'<script src="{each}"></script>\n' for each in (*bokeh, *texts))
    page = (HERE / "demo.html").read_text(encoding="utf-8")
    texts["demo.html"] = page.replace("/*STYLE*/", style).replace("<!--SCRIPTS-->", tags)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    spec = find_spec("bokeh")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the demo page needs bokeh: pip install '.[lab]'", name="bokeh")
    for script in bokeh:
        shutil.copy(Path(spec.origin).parent / "server/static/js" / script, folder)
