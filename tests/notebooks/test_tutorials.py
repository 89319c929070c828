"""The tutorials as a reader runs them: from top to bottom, in a fresh kernel."""

import re
import shutil

import nbformat
import pytest
from support.jupyter.notebooks import TUTORIALS, attempted, cell, pictures, read, run, said

# For each: lines that look right in its exercise, and lines that are.
WRONG = {
    "01_first_dma": "session.write(target, bytes(range(256)))",
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
}
RIGHT = {
    "01_first_dma": "session.write(target, bytes(range(256)), offset=1000)",
    "02_two_sides": """
public = vault_device.register(vault, access="r", offset=16)
public_token = public.export()
""",
    "03_latency_and_bandwidth": "time_us = [rate.window / rate.ops_per_s * 1e6 for rate in rates]",
    "04_gpu_memory": """
    start = address // page * page
    end = -(-(address + size) // page) * page
    return start, end - start
""",
    "05_when_things_go_wrong": """
    for left in reversed(range(tries)):
        try:
            return queue.write(local, remote, size=64).wait()
        except dgkit.TransferError as error:
            if error.completion.status != Status.IO_FAILED or not left:
                raise
""",
    "06_doca_in_python": """
last_first = inventory.buf_by_data(blocks_map, 112, 16)
for at in range(96, -16, -16):
    last_first.chain(inventory.buf_by_data(blocks_map, at, 16))
""",
    "07_doctor": """
answers = {
    "machine-a": ("bar1-size", "Or export less than 214 MiB at once."),
    "machine-b": ("peermem", "sudo modprobe nvidia-peermem"),
    "machine-c": ("bluefield-mode", machines["machine-c"].of("bluefield-mode")[0].remedy[0]),
}
""",
    "08_gpu_initiated": """
low = max(s.completed_ns - s.gpu_complete_ns for s in stamps)
high = min(s.seen_ns - s.gpu_post_ns for s in stamps)
""",
}
NAMES = sorted(path.stem for path in TUTORIALS.glob("*.ipynb"))
MAX_BYTES = 30_000


def test_each_tutorial_is_tested():
    assert sorted(RIGHT) == sorted(WRONG) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_from_top_to_bottom_and_leaves_no_process_behind(name, tmp_path):
    shutil.copytree(TUTORIALS / "machines", tmp_path / "machines")
    there = sorted(tmp_path.rglob("*"))
    done = run(attempted(read(name), WRONG[name], RIGHT[name]), tmp_path)
    answers = [one for one in done.cells if "answer" in one.metadata.get("tags", [])]
    assert said(cell(done, "check")).startswith("Not done yet"), "an exercise that nobody did"
    assert said(answers[0]) == "AssertionError", "a wrong answer"
    assert "Right" in said(answers[1]), said(answers[1])
    assert pictures(done), "it draws at least one picture from its own data"
    assert sorted(tmp_path.rglob("*")) == there, "it leaves no file behind"


@pytest.mark.parametrize("name", NAMES)
def test_it_is_valid_small_and_stripped(name):
    text = (TUTORIALS / f"{name}.ipynb").read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert len(text.encode()) < MAX_BYTES
    for one in notebook.cells:
        assert set(one.metadata) <= {"tags"}
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
