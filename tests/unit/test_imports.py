"""Who may know whom, read from the source; what `import dgkit` loads; what it says elsewhere."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import dgkit
from dgkit import errors

PACKAGE = Path(dgkit.__file__).parent
NOTEBOOK = {"IPython", "anywidget", "bokeh", "ipykernel", "ipywidgets", "jupyter_server", "tornado"}

# What each part of dgkit may import of dgkit. `cli` stands on top and may import all of it.
BELOW = {
    "types": set(),
    "errors": set(),
    "buffers": {"errors"},
    "cards": {"types", "errors"},
    "dma": {"types", "errors", "buffers", "cards", "_native"},
    "memory": {"types", "errors", "buffers", "cards"},
    "doca": {"types", "errors", "buffers", "cards", "dma"},
    "wire": {"types", "errors", "dma"},  # dma: for the folder that its sockets share with export.c
    "doctor": {"types", "errors", "cards", "wire"},  # wire: for the number of its version
    "report": {"types", "errors", "cards"},
    "agent": {"types", "errors", "dma", "memory", "wire", "report"},
    "session": {"types", "errors", "buffers", "cards", "dma", "memory", "wire", "report", "agent"},
    "widgets": {"types", "errors", "buffers", "cards", "doctor", "memory", "report", "session"},
    "jupyter": {"types", "errors", "cards", "doctor", "memory", "report", "session", "widgets"},
}

# Who alone may import what is heavy, or belongs to one layer.
ALONE = {
    "_native": {"dma/_ffi.py"},
    "cffi": {"dma/_ffi.py", "doca/_library.py"},  # doca: DOCA's libraries, which no wheel brings
    # libraries that no wheel brings
    "ctypes": {"doctor/collect/probes.py", "memory/cuda.py", "memory/gdrcopy.py"},
    "pickle": set(),
    "click": {"cli/"},
    "rich": {"cli/"},
    "zmq": {"wire/", "agent", "session"},
    "msgspec": {"doctor/", "wire/", "agent", "session", "report.py", "html_cards.py"},
    "cupy": {"memory/"},
    "cuda": {"memory/"},
    "ipywidgets": {"widgets/"},
    "anywidget": {"widgets/"},
    "traitlets": {"widgets/"},
    "bokeh": {"widgets/"},
    "IPython": {"widgets/", "jupyter/"},
    "ipykernel": {"widgets/", "jupyter/"},
    "jupyter_server": {"jupyter/"},
    "tornado": {"jupyter/"},
}


def _is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _runtime_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if _is_for_types_only(child):
            continue
        yield child
        yield from _runtime_nodes(child)


def _absolute(node: ast.ImportFrom, path: Path) -> str:
    """The module that `from … import` names, in full."""
    package = ["dgkit", *path.relative_to(PACKAGE).parent.parts]
    base = package[: len(package) - node.level + 1] if node.level else []
    return ".".join([*base, *([node.module] if node.module else [])])


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every name that a file imports when it runs, in full, with its line."""
    for node in _runtime_nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(node, path)
            yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)


def _files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def _part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_each_layer_imports_only_the_layers_below_it() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line} imports {name}"
        for path in _files()
        if _part(path) in BELOW
        for name, line in _imports(path)
        if name.startswith("dgkit.")
        and name.split(".")[1] not in {_part(path), "__version__"} | BELOW[_part(path)]
    ]
    assert not wrong


def test_every_part_has_its_place_in_the_layers() -> None:
    assert {_part(path) for path in _files()} <= {"__init__", "__main__", "cli", *BELOW}


@pytest.mark.parametrize("known", ALONE)
def test_a_heavy_import_stays_where_it_belongs(known: str) -> None:
    allowed = tuple(ALONE[known])
    wrong = [
        f"{where}:{line} imports {name}"
        for path in _files()
        if not (where := path.relative_to(PACKAGE).as_posix()).startswith(allowed)
        for name, line in _imports(path)
        if known in (name.split(".")[0], name.removeprefix("dgkit.").split(".")[0])
    ]
    assert not wrong


def test_only_modules_called_aio_know_asyncio() -> None:
    knows = {
        path.relative_to(PACKAGE).as_posix()
        for path in _files()
        for name, _ in _imports(path)
        if name.split(".")[0] == "asyncio"
    }
    assert knows == {"dma/aio.py", "session/aio.py"}


def test_wire_takes_nothing_from_dma_but_the_runtime_folder() -> None:
    taken = {
        name
        for path in (PACKAGE / "wire").glob("*.py")
        for name, _ in _imports(path)
        if name.startswith("dgkit.dma")
    }
    assert taken <= {"dgkit.dma.runtime_dir"}


def _python(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a new Python that finds the same dgkit."""
    found = f"import sys; sys.path[:] = {sys.path!r}\n"
    command = [sys.executable, *options, "-c", found + code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


UNUSED = {"numpy", "cupy", "cuda", "zmq", "msgspec", "asyncio", "click", "rich"} | NOTEBOOK
HEAVY = UNUSED | {"dgkit._native"}


@pytest.mark.parametrize(
    ("code", "spared"),
    [
        ("import dgkit", HEAVY),
        ("import dgkit; dgkit.BoundsError; dgkit.Status", HEAVY),
        ("import dgkit; dgkit.empty(64).close()", HEAVY),
        (
            "import dgkit\nwith dgkit.Device('soft') as d: d.register(bytearray(64)).close()",
            UNUSED,
        ),
    ],
)
def test_nothing_heavy_is_loaded_before_it_is_used(code: str, spared: set[str]) -> None:
    listing = "before = set(sys.modules)\n" + code + "\nprint(*(set(sys.modules) - before))"
    result = _python(listing)
    assert result.returncode == 0, result.stderr
    assert not spared & set(result.stdout.split())


def test_import_costs_under_10_ms() -> None:
    """`-X importtime` prints: import time: self us | cumulative us | module."""
    took_us = []
    for _ in range(5):
        lines = _python("import dgkit", "-X", "importtime").stderr.splitlines()
        took_us += [int(line.split("|")[1]) for line in lines if line.split("|")[-1] == " dgkit"]
    assert len(took_us) == 5
    assert min(took_us) < 10_000


@pytest.mark.parametrize("name", dgkit.__all__)
def test_each_public_name_is_there(name: str) -> None:
    assert getattr(dgkit, name) is not None
    assert name in dir(dgkit)


LAB = ["AllocatePanel", "DoctorPanel", "HexView", "LatencyPlot", "TransferPanel", "dashboard"]
LAB += ["load_ipython_extension", "unload_ipython_extension"]


@pytest.mark.parametrize("name", LAB)
def test_each_name_for_notebooks_is_there_and_no_star_import_asks_for_it(name: str) -> None:
    assert name in dir(dgkit)
    assert name not in dgkit.__all__
    if all(find_spec(needed) for needed in NOTEBOOK):
        assert callable(getattr(dgkit, name))


@pytest.mark.parametrize("name", LAB)
def test_without_the_extra_a_name_for_notebooks_says_what_to_install(name: str) -> None:
    gone = f"import sys; sys.modules.update(dict.fromkeys({sorted(NOTEBOOK)!r}))\n"
    result = _python(f"{gone}import dgkit\nfrom dgkit import *\ndgkit.{name}")
    assert result.returncode != 0
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: dgkit.{name} needs ")
    assert last.endswith("which is not installed: `pip install '.[lab]'` in dgkit's folder")


def test_a_module_of_dgkits_own_that_is_missing_is_no_missing_extra() -> None:
    lost = "import sys; sys.modules['dgkit.jupyter.magics'] = None\n"
    result = _python(f"{lost}import dgkit; dgkit.load_ipython_extension")
    last = result.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError")
    assert "lab" not in last


def test_every_error_is_a_public_name() -> None:
    assert set(errors.__all__) <= set(dgkit.__all__)


def test_type_checkers_see_the_names_that_python_sees() -> None:
    tree = ast.parse(Path(dgkit.__file__).read_text(encoding="utf-8"))
    typed = {
        alias.asname
        for block in tree.body
        if _is_for_types_only(block)
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == {*dgkit.__all__, *LAB, "doctor"} - {"__version__"}


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dgkit.nothing


@pytest.mark.parametrize(
    ("pretend", "here"),
    [
        ("sys.platform = 'darwin'", "macOS"),
        ("sys.platform = 'win32'", "Windows"),
        ("sys.platform = 'freebsd14'", "freebsd14"),
        ("import os; os.uname = lambda: type('', (), {'machine': 'riscv64'})", "Linux on riscv64"),
        ("sys.maxsize = 2**31 - 1", "Linux on 32-bit Python"),
    ],
)
def test_elsewhere_the_import_says_what_to_use_instead(pretend: str, here: str) -> None:
    result = _python(f"{pretend}\nimport dgkit")
    assert result.returncode != 0
    last = result.stderr.splitlines()[-1]
    assert last.startswith("ImportError: dgkit runs on Linux")
    for words in (f"this is {here}", "WSL2", "container", "Binder"):
        assert words in last
