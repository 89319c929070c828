#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Build the documentation site.

    .github/site/build.py FOLDER [--tutorials FOLDER]

It collects the pages of this folder, the READMEs as chapters, the tutorials, and pages made from
the installed package: API, errors, the doctor's checks. Then Sphinx builds FOLDER/html from them;
each warning is an error, and so is a link that leads nowhere. `--tutorials` has the executed
notebooks that the stage `widgets` of tests/run leaves in .cache/tutorials; without it they come
without outputs.
"""

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from check_pages import check_pages
from demo_page import write_demo
from sphinx.pycode import ModuleAnalyzer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

CHAPTERS = {
    "README.md": ("readme", "Start"),
    "notebooks/README.md": ("notebooks", "Panels and notebooks"),
    "dgkit/dma/README.md": ("dma", "Devices, regions and queues"),
    "dgkit/memory/README.md": ("memory", "Memory"),
    "dgkit/gpu_initiated/README.md": ("gpu-initiated", "GPU-initiated transfers"),
    "dgkit/doca/README.md": ("doca", "On a BlueField"),
    "native/softdoca/README.md": ("softdoca", "softdoca"),
    "native/mlx5/README.md": ("mlx5", "RDMA programs without an adapter"),
    "dgkit/agent/README.md": ("agent", "Two processes or machines"),
    "dgkit/doctor/README.md": ("doctor", "The doctor"),
    "dgkit/testbed/README.md": ("testbed", "A virtual host and DPU"),
    "dgkit/fleet/README.md": ("fleet", "Many pairs"),
    "native/README.md": ("core", "The C core"),
    "tests/bench/README.md": ("figures", "Measured figures"),
    "notebooks/labs/README.md": ("labs", "Labs"),
    **{f"notebooks/labs/lab{n}.md": (f"lab{n}", "") for n in range(1, 8)},
    ".github/CHANGELOG.md": ("changes", "Changes"),
    ".github/CONTRIBUTING.md": ("contributing", "Working on dgkit"),
    ".github/SECURITY.md": ("security", "Security"),
    ".github/SECURITY-DETAILS.md": ("security-details", "How security is kept"),
}
TUTORIALS = "notebooks/tutorials"
API = ("", "dma", "memory", "session", "report", "gpu_initiated", "nccl", "doca", "doctor", "fleet")
API += ("testbed", "agent", "widgets")
ERRORS = (
    "The texts with which dgkit raises, with their remedies. Values are in braces. "
    "`dgkit doctor --symptom TEXT` ranks what may cause a text on your machine."
)
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s#]+)(#[^)\s]*)?\)")


def place(target: str) -> str | None:
    """Return the page of the site that shows a file of the repository, or None."""
    if target in CHAPTERS:
        return f"chapters/{CHAPTERS[target][0]}.md"
    if target.startswith(f"{TUTORIALS}/") and target.endswith(".ipynb"):
        return f"tutorials/{Path(target).name}"
    if target.startswith(".github/site/") and target.endswith(".md"):
        return Path(target).name
    if target.endswith((".png", ".gif")):
        return f"_static/{Path(target).name}"
    return None


def with_links(text: str, source: str, page: str) -> str:
    """Return a chapter whose links lead to pages of the site; others become names of files."""

    def link(found: re.Match[str]) -> str:
        image, words, target, anchor = found.groups()
        named = os.path.normpath(Path(source).parent / target)
        if not (ROOT / named).exists():
            sys.exit(f"{source}: no file {named} for the link [{words}]")
        leads = place(named)
        if leads is None:
            return f"{words} (`{named}`)" if words != named else f"`{named}`"
        return f"{image}[{words}]({os.path.relpath(leads, Path(page).parent)}{anchor or ''})"

    fence = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
    parts = fence.split(text)  # every second one is code
    parts[::2] = [LINK.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def chapters(into: Path) -> None:
    """Write the READMEs as chapters, and their list."""
    for source, (name, _) in CHAPTERS.items():
        page = f"chapters/{name}.md"
        text = (ROOT / source).read_text(encoding="utf-8")
        if name == "readme":  # the site's first page is called dgkit, too
            text = text.replace("# dgkit\n", "# Start\n", 1)
        write(into / page, with_links(text, source, page))
    listed = {
        name: (title, first_sentence(ROOT / source))
        for source, (name, title) in CHAPTERS.items()
        if name not in ("readme", "security")  # the first page's list has them
    }
    write(into / "chapters/index.md", contents("Guide", listed))
    for picture in (*(ROOT / "notebooks").glob("*.png"), *(ROOT / "notebooks").glob("*.gif")):
        shutil.copy(picture, into / "_static")


def first_sentence(source: Path) -> str:
    """Return the sentence after the heading, which says whom a README is for, without its links."""
    paragraph = source.read_text(encoding="utf-8").split("\n\n")[1]
    sentence = re.match(r".+?\.(?=\s|$)", " ".join(paragraph.split()))
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", sentence[0]) if sentence else ""


def tutorials(into: Path, executed: Path | None) -> None:
    """Copy the tutorials, executed where a run left them."""
    folder = into / "tutorials"
    folder.mkdir()
    for notebook in sorted((ROOT / TUTORIALS).glob("*.ipynb")):
        ran = executed / notebook.name if executed else notebook
        content = json.loads((ran if ran.exists() else notebook).read_text(encoding="utf-8"))
        for cell in content["cells"]:
            if cell["cell_type"] == "markdown":
                text = "".join(cell["source"])
                cell["source"] = with_links(text, f"{TUTORIALS}/x", "tutorials/x")
        write(folder / notebook.name, json.dumps(content))
    names = {path.stem: ("", "") for path in sorted(folder.glob("*.ipynb"))}
    write(folder / "index.md", contents("Tutorials", names))


def api(into: Path) -> None:
    """Write a page for each public package: what it exports and dgkit itself does not."""
    top = import_module("dgkit")
    pages = {}
    for name in API:
        module = import_module(f"dgkit.{name}" if name else "dgkit")
        exported = [each for each in module.__all__ if not each.startswith("_")]
        own = [each for each in exported if not name or each not in top.__all__]
        summary = (module.__doc__ or "").strip().partition("\n\n")[0]
        lines = [f"# {module.__name__}", "", summary, ""]
        for each in own:
            lines += [directive(module.__name__, each, getattr(module, each)), ""]
        page = name or "dgkit"
        pages[page] = (module.__name__, " ".join(summary.split()))
        write(into / f"api/{page}.md", "\n".join(lines))
    write(into / "api/index.md", contents("Python API", pages))


def directive(module: str, name: str, value: object) -> str:
    """Return the directive that documents one exported name."""
    full = f"{module}.{name}"
    if isinstance(value, type):
        kind = "exception" if issubclass(value, BaseException) else "class"
        return f"```{{eval-rst}}\n.. auto{kind}:: {full}\n```"
    if callable(value):
        return f"```{{eval-rst}}\n.. autofunction:: {full}\n```"
    about = described(name, value) or repr(value)
    return f"```{{eval-rst}}\n.. py:data:: {full}\n\n   {about}\n```"


def described(name: str, value: object) -> str:
    """Return the comment at the assignment of a constant, wherever in the package that is."""
    for module in [each for each in sys.modules if each.startswith("dgkit.")]:
        if vars(sys.modules[module]).get(name) is value:
            comments = ModuleAnalyzer.for_module(module).find_attr_docs()
            if found := comments.get(("", name)):
                return " ".join(found).strip()
    return ""


def errors(into: Path) -> None:
    """Write the page of error texts, by class, as the calls of the classes in dgkit/ have them."""
    known = import_module("dgkit.errors")
    by_class: dict[str, list[str]] = {}
    for path in sorted((ROOT / "dgkit").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func).rpartition(".")[2]
                texts = [text for argument in node.args for text in templates(argument)]
                by_class.setdefault(name, []).extend(texts)
    lines = ["# Error texts", "", ERRORS, ""]
    for name in sorted(set(by_class) & set(known.__all__)):
        summary = (getattr(known, name).__doc__ or "").strip().splitlines()[0]
        lines += [f"## {name}", "", summary, ""]
        lines += [f"- {code(text)}" for text in dict.fromkeys(by_class[name])] + [""]
    write(into / "errors.md", "\n".join(lines))


def templates(node: ast.AST) -> Iterator[str]:
    """Yield the texts in an expression that have words, with their fields in braces."""
    if isinstance(node, ast.JoinedStr | ast.Constant):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        text = "".join(
            str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
            for part in parts
        ).replace("\n", "\\n")
        if re.search(r"[a-z]{2}.* ", re.sub(r"\{[^}]*\}", "", text)):
            yield text
    else:
        for child in ast.iter_child_nodes(node):
            yield from templates(child)


def code(text: str) -> str:
    """Return a text as literal Markdown; backquotes in it need a longer fence."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def checks(into: Path) -> None:
    """Write a page for each check of the doctor."""
    names = {}
    for check, text in check_pages():
        write(into / f"checks/{check.name}.md", text)
        names[check.name] = (f"{check.name}: {check.title}", check.asks)
    write(into / "checks/index.md", contents("The doctor's checks", names))


def contents(title: str, pages: dict[str, tuple[str, str]]) -> str:
    """Return a page that lists others: the title of each, "" for its own, and what it is about."""
    about = [f"- [{label}]({name}.md): {text}" for name, (label, text) in pages.items() if text]
    tree = [f"{label} <{name}>" if label else name for name, (label, _) in pages.items()]
    options = [":maxdepth: 1", *([":hidden:"] if about else [])]
    return "\n".join([f"# {title}", "", *about, "", "```{toctree}", *options, "", *tree, "```", ""])


def write(path: Path, text: str) -> None:
    """Write a file and the folders that it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def c_api(into: Path) -> None:
    """Write the page of dgkit.h."""
    shutil.copy(ROOT / "native/dgkit.h", into / "dgkit.h")
    text = "# C API\n\n[The C core](chapters/core.md) has the contract; this is its header.\n\n"
    write(into / "c-api.md", text + "```{literalinclude} dgkit.h\n:language: c\n```\n")


def dead_links(html: Path) -> Iterator[str]:
    """Yield each link within the site that leads to no page or to no place in it."""
    anchors = {}
    for page in html.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        anchors[page.resolve()] = (text, set(re.findall(r'\bid="([^"]+)"', text)))
    for page, (text, own) in anchors.items():
        for target in re.findall(r'<a [^>]*\bhref="([^"]+)"', text):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            ids = anchors[there][1] if there in anchors else own
            if not there.exists() or (anchor and there in anchors and anchor not in ids):
                yield f"{page.relative_to(html)}: {target}"


def main() -> None:
    """Build the site into a folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder for html/ and its sources")
    parser.add_argument("--tutorials", type=Path, help="folder of executed notebooks")
    options = parser.parse_args()
    source, html = options.folder.resolve() / "source", options.folder.resolve() / "html"
    for folder in (source, html):
        shutil.rmtree(folder, ignore_errors=True)
    (source / "_static").mkdir(parents=True)
    for name in ("site.css", "search.js"):
        shutil.copy(HERE / name, source / "_static")
    for page in (HERE / "conf.py", *HERE.glob("*.md")):
        shutil.copy(page, source)
    chapters(source)
    tutorials(source, options.tutorials)
    api(source)
    errors(source)
    checks(source)
    c_api(source)
    write_demo(source / "_static")
    sphinx = Path(sys.executable).with_name("sphinx-build")
    command = [sphinx, "-W", "--keep-going", "-q", source, html]
    subprocess.run(command, check=True, cwd=options.folder)  # the clone has dgkit, not built
    if dead := sorted(dead_links(html)):
        sys.exit("\n".join(["links that lead nowhere:", *dead]))
    print(f"{sum(1 for _ in html.rglob('*.html'))} pages in {html}")


if __name__ == "__main__":
    main()
