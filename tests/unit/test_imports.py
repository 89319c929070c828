# SPDX-License-Identifier: Apache-2.0
"""Import rules read from the source; the cost of `import dgkit`; its message on other systems."""

import ast
import subprocess
import sys
from collections import Counter
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.source.python import statements

import dgkit
from dgkit import errors
from dgkit.installation import install_command

PACKAGE = Path(dgkit.__file__).parent
NOTEBOOK = {"IPython", "anywidget", "bokeh", "ipykernel", "ipywidgets", "jupyter_server", "tornado"}

# Packages and top-level modules that each one may import, type-only imports included.
_BASE = {
    "_version",
    "installation",
    "types",
    "errors",
    "validate",
    "buffers",
    "live_set",
    "unique",
    "units",
    "html_cards",
    "schema",
    "sizes",
}
_BASE |= {"callbacks", "cell_lifetime", "child", "files", "json_input", "threads"}
_BOTTOM = _BASE | {"dma", "memory", "report", "wire"}
ALLOWED = {
    "_version": set(),
    "installation": {"_version"},
    "schema": set(),
    "types": set(),
    "sizes": set(),
    "errors": set(),
    "units": set(),
    "files": {"errors"},
    "callbacks": set(),
    "cell_lifetime": {"callbacks"},
    "threads": {"errors"},
    "child": {"threads"},
    "json_input": set(),
    "validate": {"errors", "units"},
    "buffers": {"errors"},
    "live_set": set(),
    "unique": set(),
    "nccl": {"child", "dma", "files", "html_cards", "unique", "units"},
    "adapter_faults": set(),
    "software_adapter": {"errors", "files", "runtime_folder"},
    "html_cards": {"types", "units"},
    "dma": _BASE | {"_native"},
    "memory": _BASE,
    "doca": _BASE | {"dma"},  # for the GPU memory that both register
    "doca_trace": _BASE | {"doca"},  # for the names of its error codes
    "report": _BASE,
    "wire": _BASE | {"runtime_folder"},
    "gpu_initiated": _BASE | {"dma", "memory", "report"},
    "doctor": _BASE | {"dma", "session", "wire"},  # for experiments; wire's version
    "runtime_folder": {"errors", "files"},
    "testbed": _BASE | {"dma", "memory", "report", "runtime_folder", "session", "wire"},
    "teach": _BASE | {"dma", "gpu_initiated", "memory"},
    "dpu": _BOTTOM - {"wire"},
    "agent": _BOTTOM | {"dpu"},
    "bluefield": _BASE
    | {"dma", "doca_trace", "doctor", "memory", "report", "runtime_folder", "session", "wire"},
    "fleet": _BASE | {"doctor", "report", "session", "wire"},
    "session": _BOTTOM | {"dpu", "gpu_initiated"},
    "widgets": _BASE | {"doctor", "gpu_initiated", "memory", "report", "session"},
    "jupyter": set(),
    "cli": _BOTTOM
    | {
        "__init__",
        "adapter_faults",
        "agent",
        "bluefield",
        "doca",
        "doca_trace",
        "doctor",
        "fleet",
    }
    | {"gpu_initiated", "nccl", "runtime_folder", "session", "software_adapter"}
    | {"teach", "testbed"},
    "__init__": _BASE
    | {"dma", "doctor", "fleet", "jupyter", "memory", "report", "session", "widgets"},
    "__main__": {"cli"},
}

# Imports of the parent by what it creates (child, parent): without them there is no circle.
BACK_REFERENCES = {
    ("dgkit.dma.queue", "dgkit.dma.device"),
    ("dgkit.session.lifecycle", "dgkit.session.session"),
    ("dgkit.session.session_region", "dgkit.session.session"),
    ("dgkit.session.region_factory", "dgkit.session.session"),
}

# Modules that may import a heavy package, or one that belongs to one layer.
ONLY = {
    "_native": {"dma/_ffi.py"},
    "dma._ffi": {"dma/", "doca/_library.py"},  # cdata never leaves dma
    "cffi": {"dma/_ffi.py", "doca/_library.py"},  # libdoca
    # libraries of the system: libnvidia-ml, libcuda, libgdrapi
    # and the capsules of DLPack
    "ctypes": {
        "doca_trace/",  # calls each function of libdoca by its description
        "software_adapter.py",
        "child.py",  # prctl(2)
        "doctor/collect/probes.py",
        "doctor/experiments/program.py",
        "memory/libcuda.py",
        "memory/cpu_mapping.py",
        "memory/wrap_gpu.py",
        "teach/landlock.py",  # system calls that libc does not have
        "teach/watchdog.py",  # prctl(2)
        "wire/inflow.py",  # malloc_trim(3)
        "widgets/hexview/structure.py",
    },
    "pickle": set(),
    "click": {"cli/"},
    "rich": {"cli/"},
    "zmq": {"wire/", "agent"},
    "msgspec": {"doctor/", "schema.py", "wire/", "session"},
    "cupy": {"memory/"},
    "cuda": {"memory/"},
    "numba": {"gpu_initiated/numba_functions.py"},
    "ipywidgets": {"widgets/"},
    "anywidget": {"widgets/"},
    "traitlets": {"widgets/", "teach/autograde.py", "teach/collect.py"},
    "nbgrader": {"teach/autograde.py", "teach/collect.py"},
    "nbformat": {"teach/autograde.py"},
    "bokeh": {"widgets/"},
    "matplotlib": {"widgets/figure/matplotlib_drawing.py"},
    "dpkt": {"widgets/packets/"},
    "dask": {"fleet/"},
    "distributed": {"fleet/"},
    "pandas": {"fleet/"},
    "pyarrow": {"fleet/"},
    "IPython": {"widgets/"},
    "ipykernel": {"widgets/"},
    "jupyter_server": {"jupyter/"},
    "tornado": {"jupyter/"},
}


def _is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _absolute(node: ast.ImportFrom, path: Path) -> str:
    """Return the full name of the module in `from ... import`."""
    package = ["dgkit", *path.relative_to(PACKAGE).parent.parts]
    base = package[: len(package) - node.level + 1] if node.level else []
    return ".".join([*base, *([node.module] if node.module else [])])


@cache
def _all_imports(path: Path) -> list[tuple[str, int, bool]]:
    """Return the full name and the line of all imports of a file, and if only types need them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    blocks = [node for node in statements(tree) if _is_for_types_only(node)]
    for_types = {node for block in blocks for node in statements(block)}
    found = []
    for node in statements(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{_absolute(node, path)}.{alias.name}" for alias in node.names]
        else:
            continue
        found += [(name, node.lineno, node in for_types) for name in names]
    return found


def _imports(path: Path, *, types: bool = False) -> list[tuple[str, int]]:
    """Return the full name and the line of everything that a file imports, in functions, too."""
    return [(name, line) for name, line, typed in _all_imports(path) if types or not typed]


def _files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def _module(path: Path) -> str:
    """Return the full name of a file's module."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _part(path: Path) -> str:
    """Return the package or top-level module that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


PARTS = {_part(path) for path in _files()} | {"_native"}


def _part_of(name: str) -> str:
    """Return the package or top-level module that an imported name is from."""
    part = name.split(".")[1]
    return part if part in PARTS else "__init__"


def test_each_layer_imports_only_what_the_table_allows() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line} imports {name}"
        for path in _files()
        for name, line in _imports(path, types=True)
        if name.startswith("dgkit.")
        and _part_of(name) not in {_part(path)} | ALLOWED.get(_part(path), set())
    ]
    assert not wrong, "\n".join(wrong)


def test_the_table_of_layers_has_every_part_and_no_other() -> None:
    assert {_part(path) for path in _files()} == set(ALLOWED)


def test_the_table_of_layers_has_no_circle() -> None:
    lower: set[str] = set()
    left = {part: allowed - {"_native"} for part, allowed in ALLOWED.items()}
    while left:
        ready = {part for part, allowed in left.items() if allowed <= lower}
        assert ready, f"circle among {sorted(left)}"
        lower |= ready
        left = {part: allowed for part, allowed in left.items() if part not in ready}


def _graph() -> dict[str, set[str]]:
    """Map each module to the modules that it imports, type-only imports included."""
    modules = {_module(path): path for path in _files()}
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        names = {name for name, _ in _imports(path, types=True)} - {"dgkit._native"}
        found = {name if name in modules else name.rpartition(".")[0] for name in names}
        graph[module] = found & modules.keys() - {module}
    return graph


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    stack = [start]
    while stack:
        for module in graph[stack.pop()] - seen:
            seen.add(module)
            stack.append(module)
    return seen


def _circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the strongly connected components of more than one module."""
    reachable = {module: _reachable(graph, module) for module in graph}
    components = {
        frozenset(other for other in reach if module in reachable[other])
        for module, reach in reachable.items()
        if module in reach
    }
    return sorted(map(set, components), key=sorted)


def test_modules_import_each_other_in_a_circle_only_as_parent_and_child() -> None:
    graph = _graph()
    for child, parent in BACK_REFERENCES:
        graph[child].remove(parent)  # KeyError: the table names an import that does not exist
    wrong = [
        f"{module} imports {', '.join(sorted(graph[module] & circle))}"
        for circle in _circles(graph)
        for module in sorted(circle)
    ]
    assert not wrong, "\n".join(wrong)


def test_a_file_name_occurs_once_but_for_the_doctors_families() -> None:
    """A family of checks, and its facts, are named like the module that they examine."""
    python = {"__init__", "__main__"}
    outside = Counter(
        path.stem
        for path in _files()
        if path.parent.name not in ("checks", "facts") and path.stem not in python
    )
    assert not {name for name, count in outside.items() if count > 1}


def test_a_heavy_import_stays_where_it_belongs() -> None:
    wrong = [
        f"{where}:{line} imports {name}"
        for path in _files()
        for name, line in _imports(path)
        for known, allowed in ONLY.items()
        if f"{name}.".removeprefix("dgkit.").startswith(f"{known}.")
        if not (where := path.relative_to(PACKAGE).as_posix()).startswith(tuple(allowed))
    ]
    assert not wrong, "\n".join(wrong)


def test_only_a_module_a_layer_and_those_in_dasks_loop_know_asyncio() -> None:
    knows = {
        path.relative_to(PACKAGE).as_posix()
        for path in _files()
        for name, _ in _imports(path)
        if name.split(".")[0] == "asyncio"
    }
    in_dasks_loop = {"fleet/dispatch.py", "fleet/machine_leases.py"}
    loops = {"dma/aio.py", "session/session_transfer.py", "widgets/base/traits.py"}
    assert knows == loops | in_dasks_loop


def _python(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a new Python that finds the same dgkit."""
    found = f"import sys; sys.path[:] = {sys.path!r}\n"
    command = [sys.executable, *options, "-c", found + code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


DASK = {"dask", "distributed", "pandas", "pyarrow"}
UNUSED = {"numpy", "cupy", "cuda", "zmq", "msgspec", "asyncio", "click", "rich"} | NOTEBOOK | DASK
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


@pytest.mark.parametrize("notebook", [True, False])
def test_only_in_a_notebook_sessions_are_bound_to_their_cells(notebook: bool) -> None:
    known = "import sys; sys.modules['IPython'] = sys\n" * notebook
    code = "from dgkit.session import connect\nfrom dgkit import callbacks\n"
    result = _python(f"{known}{code}print(len(callbacks.session_opened.calls))")
    assert result.stdout == f"{notebook:d}\n", result.stderr


def test_an_import_of_dgkit_loads_its_version_and_nothing_else() -> None:
    result = _python("before = set(sys.modules)\nimport dgkit\nprint(*{*sys.modules} - before)")
    loaded = set(result.stdout.split()) - {"importlib.util"}  # of an installation in place
    assert loaded == {"dgkit", "dgkit._version"}, result.stderr


def test_each_public_name_is_there() -> None:
    assert not [name for name in dgkit.__all__ if getattr(dgkit, name) is None]
    assert set(dgkit.__all__) <= set(dir(dgkit))


LAB = ["AllocatePanel", "DoctorPanel", "HeatMap", "HexView", "LatencyPlot", "QueuePanel"]
LAB += ["TransferPanel", "dashboard", "view"]


def test_the_names_for_notebooks_are_there_and_no_star_import_asks_for_them() -> None:
    assert set(LAB) <= set(dir(dgkit))
    assert not set(LAB) & set(dgkit.__all__)
    if all(find_spec(needed) for needed in NOTEBOOK):
        assert all(callable(getattr(dgkit, name)) for name in LAB)


def _errors_without(missing: set[str], names: list[str]) -> list[str]:
    """Return what an import error says of each of dgkit's names where packages are missing."""
    result = _python(f"""sys.modules.update(dict.fromkeys({sorted(missing)!r}))
import dgkit
from dgkit import *
for name in {names!r}:
    try:
        getattr(dgkit, name).nothing
        print("none")
    except AttributeError as error:
        print(error)
""")
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_without_the_extra_a_name_for_notebooks_says_what_to_install() -> None:
    for name, said in zip(LAB, _errors_without(NOTEBOOK, LAB), strict=True):
        assert said.startswith(f"dgkit.{name} needs ")
        assert said.endswith(f"which is not installed: `{install_command('lab')}`")


def test_without_dpkt_the_panel_of_packets_says_what_to_install() -> None:
    (said,) = _errors_without({"dpkt"}, ["PacketPanel"])
    assert said.startswith("dgkit.PacketPanel needs dpkt, which is not installed: ")
    assert "[packets]'" in said


def test_without_the_extra_a_name_for_fleets_says_what_to_install() -> None:
    names = ["Fleet", "fleet"]
    for name, said in zip(names, _errors_without(DASK, names), strict=True):
        assert said.startswith(f"dgkit.{name} needs ")
        assert said.endswith(f"which is not installed: `{install_command('fleet')}`")


@pytest.mark.parametrize("command", [["demo"], ["sweep", "--scheduler", "tcp://127.0.0.1:1"]])
def test_without_the_extra_the_command_for_fleets_says_what_to_install(command) -> None:
    gone = f"import sys; sys.modules.update(dict.fromkeys({sorted(DASK)!r}))\n"
    result = _python(f"{gone}from dgkit.cli import main\nsys.exit(main(['fleet', *{command}]))")
    assert result.returncode == 1
    assert result.stderr.startswith("dgkit: dgkit.fleet needs ")
    assert result.stderr.endswith(f"which is not installed: `{install_command('fleet')}`\n")


def test_without_the_extras_help_and_inspect_see_every_name() -> None:
    result = _python(f"""sys.modules.update(dict.fromkeys({sorted(NOTEBOOK | DASK | {"dpkt"})!r}))
import inspect, pydoc, unittest.mock
import dgkit
names = [name for name in dir(dgkit) if not hasattr(dgkit, name)]
assert not names, names
assert {{name for name, _ in inspect.getmembers(dgkit)}} >= {{*dir(dgkit)}}
assert "which is not installed" in pydoc.render_doc(dgkit.HexView)
pydoc.render_doc(dgkit)
unittest.mock.create_autospec(dgkit)
try:
    dgkit.HexView(1)
except ImportError as error:
    print(error)
""")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("dgkit.HexView needs ")


@pytest.mark.skipif(not all(map(find_spec, DASK)), reason="Dask has no wheel for this Python")
def test_the_name_for_fleets_is_there_and_no_star_import_asks_for_it() -> None:
    assert "Fleet" in dir(dgkit)
    assert "Fleet" not in dgkit.__all__
    assert dgkit.Fleet is dgkit.fleet.Fleet


def test_a_module_of_dgkits_own_that_is_missing_is_no_missing_extra() -> None:
    lost = "import sys; sys.modules['dgkit.widgets.dashboard'] = None\n"
    result = _python(f"{lost}import dgkit; dgkit.dashboard")
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
    assert typed == {*dgkit.__all__, *LAB, "Fleet", "PacketPanel", "doctor"} - {"__version__"}


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
