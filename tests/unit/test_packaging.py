# SPDX-License-Identifier: Apache-2.0
"""What is packed is what was written: the header in the extension, the tag in the wheel."""

import importlib.util
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import dgkit
from dgkit import installation
from dgkit._version import DISTRIBUTION

ROOT = Path(__file__).resolve().parents[2]


def _script(path: str) -> ModuleType:
    """A script of the repository as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_extension_has_every_function_and_constant_of_the_header() -> None:
    from dgkit import _native

    header = (ROOT / "native/dgkit.h").read_text(encoding="utf-8")
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    functions = set(re.findall(r"\b(dg_\w+)\(", code))
    constants = set(re.findall(r"\b(DG_\w+) (?:= )?\d", code))
    assert len(functions) >= 40
    assert functions | constants <= set(dir(_native.lib))


def _required() -> list[tuple[str, str]]:
    """The packages that pip installs with dgkit, and the earliest version of each."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    required = re.search(r"\ndependencies = \[\n(.*?)\n\]", project, re.DOTALL)
    assert required is not None
    found = re.findall(r'"(\w+)>=([\d.]+)"', required[1])
    assert len(found) == len(required[1].splitlines())
    return found


def test_conda_requires_what_pip_does() -> None:
    recipe = (ROOT / ".github/conda/recipe.yaml").read_text(encoding="utf-8")
    run = re.search(r"\n  run:\n    - python\n(.*?)\n\n", recipe, re.DOTALL)
    assert run is not None
    assert [f"    - {name} >={version}" for name, version in _required()] == run[1].splitlines()
    assert f"\n  version: {dgkit.__version__}\n" in recipe


def test_a_citation_names_the_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {dgkit.__version__}\n" in citation
    assert f", version {dgkit.__version__}. " in (ROOT / ".github/site/install.md").read_text()


def test_each_action_is_pinned_to_a_commit() -> None:
    for workflow in (ROOT / ".github/workflows").glob("*.yml"):
        used = re.findall(r"uses: (\S+)", workflow.read_text(encoding="utf-8"))
        assert used
        assert [name for name in used if not re.search(r"@[0-9a-f]{40}$", name)] == []


def test_spack_requires_what_pip_does() -> None:
    repository = ROOT / ".github/spack/spack_repo/dgkit"
    recipe = (repository / "packages/py_dgkit/package.py").read_text(encoding="utf-8")
    run = r'depends_on\("py-(\w+)@([\d.]+):", type=.*"run"'
    assert re.findall(run, recipe) == _required()
    assert f'    version("{dgkit.__version__}")\n' in recipe
    assert f"py-dgkit@{dgkit.__version__}\n" in (repository / "repo.yaml").read_text("utf-8")


def _wheel(folder: Path) -> Path:
    """A wheel of one file, as this machine's build names it."""
    path = folder / "dgkit-1.2.3-cp310-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("dgkit/__init__.py", "")
    return path


def _elf(machine: int) -> bytes:
    """The first bytes of an ELF file: its identification, its type, its machine (elf(5))."""
    return b"\x7fELF" + bytes(12) + b"\x03\0" + machine.to_bytes(2, "little")


def test_each_library_in_the_wheel_must_be_for_the_dpu(tmp_path: Path) -> None:
    wheelhouse = _script("native/wheelhouse.py")
    wheel = _wheel(tmp_path)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("dgkit/_native.abi3.so", _elf(183))
        archive.writestr("dgkit/_softdoca/lib/libdoca_dma.so.2", _elf(183))
        archive.writestr("dgkit/_softdoca/lib/libdoca_dma.so", "INPUT(libdoca_dma.so.3)\n")
    found = wheelhouse.libraries(wheel, tmp_path)
    assert [path.name for path in found] == ["_native.abi3.so", "libdoca_dma.so.2"]
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("dgkit/_softdoca/lib/libdoca_dma.so.3", _elf(62))
    with pytest.raises(SystemExit, match=r"libdoca_dma\.so\.3 is for ELF machine 62"):
        wheelhouse.libraries(wheel, tmp_path)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A folder with .ci/run and nothing else."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci/run").write_text((ROOT / ".ci/run").read_text(encoding="utf-8"))
    return tmp_path


def _ci(repository: Path, readme: str) -> subprocess.CompletedProcess[str]:
    (repository / "README.md").write_text(readme)
    command = ["sh", repository / ".ci/run"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


BLOCK = "<!-- command: {} -->\n```sh\n{}\n```\n"


def test_ci_runs_the_two_commands_of_the_readme_and_nothing_else(repository: Path) -> None:
    other = "```sh\ntouch other\n```\n"
    readme = BLOCK.format("main", "touch one") + other + BLOCK.format("test", "touch two") + other
    assert _ci(repository, readme).returncode == 0
    assert {path.name for path in repository.iterdir()} == {".ci", "README.md", "one", "two"}


def test_ci_fails_with_the_first_command_that_fails(repository: Path) -> None:
    readme = BLOCK.format("main", "exit 3") + BLOCK.format("test", "touch two")
    assert _ci(repository, readme).returncode == 3
    assert not (repository / "two").exists()


def test_ci_fails_where_the_readme_lacks_a_command(repository: Path) -> None:
    result = _ci(repository, BLOCK.format("main", "true"))
    assert result.returncode == 1
    assert "no <!-- command: test -->" in result.stderr


@pytest.mark.parametrize("package", ["anywidget", "bokeh", "ipywidgets"])
def test_a_package_whose_releases_broke_panels_has_an_upper_bound(package: str) -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(rf'"{package}>=[\d.]+,<[\d.]+"', text)


def test_the_readme_has_both_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"<!-- command: (\w+) -->\n```\w*\n(.*?)\n```", readme, flags=re.DOTALL)
    assert [name for name, _ in blocks] == ["main", "test"]
    assert blocks[1][1] == "tests/run"


def test_the_name_for_an_index_stands_in_the_project_as_in_the_code() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nname = "{DISTRIBUTION}"\n' in project
    assert not re.findall(rf'"(?!{DISTRIBUTION})[\w-]+\[(?:lab|fleet|packets)\]', project)


@pytest.mark.parametrize("url", ["file://{}", "https://example.org/dgkit.whl", "file://{}/gone"])
def test_an_extra_is_installed_from_the_checkout_if_there_is_one(tmp_path, monkeypatch, url):
    folder = tmp_path / "my dgkit"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    info = tmp_path / f"{DISTRIBUTION.replace('-', '_')}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {DISTRIBUTION}\nVersion: 1\n")
    where = url.format(str(folder).replace(" ", "%20"))
    (info / "direct_url.json").write_text(json.dumps({"url": where}))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    here = url == "file://{}"
    assert installation.checkout() == (folder if here else None)
    wanted = f"'{folder}[lab]'" if here else f"'{DISTRIBUTION}[lab]'"
    assert installation.install_command("lab") == f"pip install {wanted}"
