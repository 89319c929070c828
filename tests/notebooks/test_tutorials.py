# SPDX-License-Identifier: Apache-2.0
"""The tutorials as a reader runs them: from top to bottom, in a fresh kernel."""

import ast
import json
import os
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from support.jupyter.notebooks import (
    TUTORIALS,
    attempted,
    cell,
    pictures,
    read,
    run,
    said,
    solution,
)

RESULTS = TUTORIALS.parents[1] / "tests/bench/results"

# For each: lines that look right in its exercise. Those that are right are in its solution.
WRONG = {
    "01_first_dma": "target.array[1000:1256] = range(256)",
    "02_two_sides": """
public = vault_device.register(vault, offset=16)
public_token = public.export()
""",
    "03_latency_and_bandwidth": "time_us = [1e6 / rate.ops_per_s for rate in rates]",
    "04_gpu_memory": "    return address // page * page, -(-size // page) * page",
    "05_when_things_go_wrong": "    return queue.write(local, remote, size=64).wait()",
    "06_doca_in_python": """
last_first = inventory.buf_by_data(blocks_map, 0, 16)
for at in range(16, 128, 16):
    last_first.chain(inventory.buf_by_data(blocks_map, at, 16))
""",
    "07_doctor": """
answers = {
    "machine-a": ("bar1-resizable", "# Or export less than 214 MiB at once."),
    "machine-b": ("topology", "nvidia-smi topo -m"),
    "machine-c": ("bluefield-tmfifo", "sudo apt install rshim"),
}
""",
    "08_gpu_initiated": """
low = min(s.completed_ns - s.gpu_complete_ns for s in stamps)
high = max(s.seen_ns - s.gpu_post_ns for s in stamps)
""",
    "10_gpunetio": """
launch("put", 1, 1, 16, address=rkey.address + 4096 - 15)
syndrome, arrived = 0x04, 0
""",
    "11_fleet": """
    values = np.array(list(p50_ns.values()))
    return [name for name, value in p50_ns.items() if value > values.mean() + 2 * values.std()]
""",
    "12_nccl_on_a_dpu": "    return [arrival for arrival, kind in puts if kind]",
    "13_rdma_programs": 'rule = "error,ops=send,skip=5,syndrome=0x04"',
}
EACH_NAME_ONCE = """
for each in {"session", "practice"} & globals().keys():
    names = [region.name for region in globals()[each].regions]
    assert len(set(names)) == len(names), names
"""
NAMES = sorted(path.stem for path in TUTORIALS.glob("*.ipynb"))
MAX_BYTES = 40_000
# What is no answer at all in each exercise: also of this the check says it in a sentence.
ABSURD = {
    "01_first_dma": "practice.write(target, b'all wrong')",
    "02_two_sides": "public_token = b'not a descriptor'",
    "03_latency_and_bandwidth": "time_us = ['a long time']",
    "04_gpu_memory": "    return address / 0",
    "05_when_things_go_wrong": "    raise KeyError('careful')",
    "06_doca_in_python": "last_first = 'HGFEDCBA'",
    "07_doctor": "answers['machine-a'] = ['bar1-size']",
    "08_gpu_initiated": "low = high = 'both at once'",
    "10_gpunetio": "syndrome = arrived = 'the end'",
    "11_fleet": "    return 3.5",
    "12_nccl_on_a_dpu": "    return 90",
    "13_rdma_programs": "rule = 'the fifth'",
}


def test_each_tutorial_is_tested():
    assert sorted(WRONG) == sorted(ABSURD) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_from_top_to_bottom_and_leaves_no_process_behind(name, tmp_path):
    shutil.copytree(TUTORIALS / "machines", tmp_path / "machines")
    there = sorted(tmp_path.rglob("*"))
    notebook = read(name)
    own = {one.id for one in notebook.cells}
    notebook = attempted(notebook, ABSURD[name], WRONG[name], solution(notebook))
    notebook.cells.append(nbformat.v4.new_code_cell(EACH_NAME_ONCE))
    done = run(notebook, tmp_path)
    answers = [one for one in done.cells if "answer" in one.metadata.get("tags", [])]
    assert said(cell(done, "check")).startswith("Not done yet"), "an exercise that nobody did"
    for wrong in answers[:2]:
        assert "Not right yet: " in said(wrong), said(wrong)
    assert "Right" in said(answers[2]), said(answers[2])
    assert pictures(done), "it draws at least one picture from its own data"
    assert sorted(tmp_path.rglob("*")) == there, "it leaves no file behind"
    if folder := os.environ.get("DGKIT_TUTORIALS"):  # for the documentation site
        done.cells = [one for one in done.cells if one.id in own]
        done.metadata.pop("widgets", None)
        nbformat.write(done, Path(folder) / f"{name}.ipynb")


def test_the_fleet_without_dask_ends_in_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    first = next(one for one in read("11_fleet").cells if one.cell_type == "code")
    shell = SimpleNamespace(input_transformers_cleanup=[])
    with pytest.raises(SystemExit) as ended:
        exec(first.source, {"get_ipython": lambda: shell})
    assert str(ended.value).startswith("This tutorial needs Dask: pip install '.[lab,fleet]'")
    (skip,) = shell.input_transformers_cleanup
    assert skip(["fleet.map(first_bytes)\n"]) == [], "a runner that continues shows no NameError"


@pytest.mark.parametrize("name", NAMES)
def test_it_is_valid_small_and_stripped(name):
    text = (TUTORIALS / f"{name}.ipynb").read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert len(text.encode()) < MAX_BYTES
    for one in notebook.cells:
        folded = "hide-input" in one.metadata.get("tags", [])
        assert one.metadata.get("jupyter", {}) == ({"source_hidden": True} if folded else {})
        assert set(one.metadata) <= {"tags", "jupyter"}
        if one.cell_type == "code":
            assert (one.outputs, one.execution_count) == ([], None)


@pytest.mark.parametrize("name", NAMES)
def test_it_says_nothing_of_the_machine_that_it_was_written_on(name):
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = read(name)
    assert notebook.metadata == {"kernelspec": kernel, "language_info": {"name": "python"}}


@pytest.mark.parametrize("name", NAMES)
def test_its_cells_keep_their_names_when_it_is_edited(name):
    ids = [one.id for one in read(name).cells]
    assert len(set(ids)) == len(ids)
    assert not [made for made in ids if re.fullmatch("[0-9a-f]{8}(-[0-9a-f-]+)?", made)]


@pytest.mark.parametrize("name", NAMES)
def test_its_links_lead_somewhere(name):
    text = "".join(one.source for one in read(name).cells if one.cell_type == "markdown")
    linked = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert linked
    assert [link for link in linked if not (TUTORIALS / link).exists()] == []


@pytest.mark.parametrize("name", NAMES)
def test_what_draws_and_what_checks_is_folded_and_what_it_teaches_is_not(name):
    for one in read(name).cells:
        if one.cell_type == "code":
            tags = one.metadata.get("tags", [])
            draws = "figure(" in one.source or "check" in tags
            assert draws <= ("hide-input" in tags), one.id


def recorded(name, variable):
    """A dict of recorded figures in a tutorial's code."""
    (found,) = [
        node.value
        for one in read(name).cells
        if one.cell_type == "code" and variable in one.source and not one.source.startswith("%%")
        for node in ast.parse(one.source).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == variable
    ]
    return ast.literal_eval(found)


def results(file):
    """The figures of a recorded run, by what was measured."""
    figures = json.loads((RESULTS / file).read_text(encoding="utf-8"))["figures"]
    return {figure["what"]: figure for figure in figures}


def test_the_figures_recorded_on_16_cores_are_those_of_the_file_that_is_named():
    runs = results("table-xeon-1.json")
    assert "table-xeon-1.json" in "".join(one.source for one in read(NAMES[2]).cells)
    given = recorded("03_latency_and_bandwidth", "RECORDED_NS")
    spinning = "64 B, worker path, 30 runs, {}: p50 of the median run"
    whats = (
        spinning.format("idle cores"),
        spinning.format("a busy process on each core"),
        "64 B, prepared, op.run(), sleeping worker",
    )
    for shown, what in zip(given.values(), whats, strict=True):
        found = runs[what]
        wanted = (found["value"], min(found["rounds"]), max(found["rounds"]))
        assert shown == pytest.approx(wanted, abs=1)
    floor = runs["64 B, prepared, op.run(), worker path, spinning"]["reference"]
    assert recorded("03_latency_and_bandwidth", "RECORDED_FLOOR_NS") == pytest.approx(floor, abs=1)


def test_the_figures_recorded_on_a_gpu_are_those_of_the_file_that_is_named():
    runs = results("gpu-h200-3.json")
    assert "gpu-h200-3.json" in "".join(one.source for one in read("04_gpu_memory").cells)
    for name, shown in recorded("04_gpu_memory", "RECORDED_US").items():
        found = runs[f"{name.replace('4 KiB', '4096 B')}, prepared"]
        wanted = [
            part
            for value, rounds in (("value", "rounds"), ("reference", "references"))
            for part in (found[value], min(found[rounds]), max(found[rounds]))
        ]
        assert [1000 * us for us in shown] == pytest.approx(wanted, abs=6)
    for name, shown in recorded("04_gpu_memory", "RECORDED_GB_PER_S").items():
        wanted = (runs[name]["value"], runs[name]["reference"])
        assert shown == pytest.approx(wanted, abs=0.06)


def test_the_figures_of_nccl_are_those_of_the_file_that_is_named():
    found = json.loads((RESULTS / "nccl-h200.json").read_text(encoding="utf-8"))["figures"]
    assert "nccl-h200.json" in "".join(one.source for one in read("12_nccl_on_a_dpu").cells)
    movers = ("NCCL's process", "a DPU agent")
    for variable, key in (("RECORDED_US", "p50"), ("RECORDED_M_PER_S", "value")):
        for what, shown in recorded("12_nccl_on_a_dpu", variable).items():
            runs = [one for one in found if one["what"] == what and one["ranks"] == 1]
            wanted = [one[key] for mover in movers for one in runs if one["by"] == mover]
            assert list(shown) == wanted, what
