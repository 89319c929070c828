# SPDX-License-Identifier: Apache-2.0
"""`dgkit demo`: the bytes go through a second process and are checked; nothing is left behind."""

import hashlib
import json
import os
import pty

import pytest
from support.processes import cli

import dgkit
from dgkit.cli import demo_command as command
from dgkit.cli import demo_run, main


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """One run over a file of an odd size, in JSON."""
    home = tmp_path_factory.mktemp("home")
    (home / "file").write_bytes(os.urandom(3_000_001))
    done = cli.run(home, "demo", home / "file", "--quick", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), home, done


def test_both_sides_and_the_copy_have_the_digest_of_the_file(result):
    found, home, _ = result
    digest = hashlib.sha256((home / "file").read_bytes()).hexdigest()
    assert found["sha256"] == {"host": digest, "dpu": digest, "copy": digest}
    assert found["verified"] is True
    assert (found["place"], found["chosen"]) == ("host", "")
    assert found["first_bytes"] == (home / "file").read_bytes()[:64].hex()
    assert found["file"] == {"name": str(home / "file"), "size": 3_000_001}


def test_the_dpu_is_another_process_and_is_called_what_it_is(result):
    found, _, _ = result
    assert found["host"]["pid"] != found["dpu"]["pid"]
    assert found["provider"] == "soft"
    assert found["label"] == "software DPU"
    assert found["bandwidth"]["label"] == "software DPU"


def test_latency_is_timed_over_sizes_with_the_floor_beside_it(result):
    found, _, _ = result
    rows = found["latency"]
    assert [row["size"] for row in rows] == [8, 64, 512, 4096, 65536, 1 << 20]
    for row in rows:
        assert row["percentiles"]["n"] >= 20
        assert row["percentiles"]["p50_ns"] <= row["percentiles"]["p99_ns"]
        assert len(row["floor_ns"]) == 2
        assert sum(row["histogram"]["counts"]) == row["percentiles"]["n"]
    assert found["bandwidth"]["bytes"] > 0


def test_json_is_all_that_is_printed_and_nothing_is_left(result):
    found, home, done = result
    assert not done.stderr
    assert cli.files_under(home) == [str(home / "file")]
    assert not cli.alive(found["dpu"]["pid"])


def test_a_person_sees_digests_hex_table_and_rate(tmp_path):
    done = cli.run(tmp_path, "demo", "--quick")
    assert done.returncode == 0, done.stderr
    text = done.stdout
    for part in (
        "software DPU (provider soft)", "equal on both sides", "64 67 6b 69 74", "|dgkit"[1:],
        "Latency of one write, µs (software DPU)", "GB/s", "1 MiB", "x floor",
    ):  # fmt: skip
        assert part in text
    assert "\x1b" not in text + done.stderr
    assert all(len(line) <= 100 for line in text.splitlines()[:30])


def test_a_single_byte_can_be_moved(tmp_path):
    (tmp_path / "one").write_bytes(b"x")
    done = cli.run(tmp_path, "demo", tmp_path / "one", "--quick", "--json")
    assert json.loads(done.stdout)["sha256"]["dpu"] == hashlib.sha256(b"x").hexdigest()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "is a directory"),
        (lambda path: path.touch(), "is empty"),
        (os.mkfifo, "not a regular file"),
    ],
)
def test_what_cannot_be_moved_is_refused_in_words_before_anything_starts(
    make, words, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(dgkit, "connect", lambda: pytest.fail("it was started"))
    make(tmp_path / "file")
    assert main(["demo", str(tmp_path / "file")]) == 2
    assert words in capsys.readouterr().err


def test_an_unreadable_file_is_refused(tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_bytes(b"secret")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read everything
    assert main(["demo", str(tmp_path / "file")]) == 2
    assert "is not readable" in capsys.readouterr().err


def test_a_terminal_gets_progress_on_stderr_and_json_stays_clean(tmp_path):
    screen, side = pty.openpty()
    with cli.started(tmp_path, "demo", "--quick", "--json", stderr=side) as process:
        os.close(side)
        shown = b"".join(iter(lambda: cli.screen_text(screen), b"")).decode()
        found = json.loads(process.stdout.read())
        assert process.wait(10) == 0
    os.close(screen)
    assert found["verified"]
    assert "DPU reads it by DMA and hashes it" in shown
    assert "write 64 KiB, auto" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h")  # the cursor is back


class Lying:
    """A session whose DPU gives a digest of other bytes."""

    def __init__(self, session):
        self._session = session

    def __getattr__(self, name):
        return getattr(self._session, name)

    def digest(self, region):
        return hashlib.sha256(b"other bytes").hexdigest()


def test_bytes_that_differ_fail_the_demo(monkeypatch, capsys):
    honest = demo_run.move
    monkeypatch.setattr(demo_run, "move", lambda session, *job: honest(Lying(session), *job))
    monkeypatch.setattr(command, "_SIZES", (8,))
    assert main(["demo", "--quick"]) == 1
    assert "NOT EQUAL" in capsys.readouterr().out


MOMENTS = {
    "as soon as the DPU process exists": lambda process: cli.children_of(process.pid),
    "when the move has begun": lambda process: "DPU" in process.stdout.readline(),
    "while transfers are timed": lambda process: any(
        "equal on both sides" in line for line in process.stdout
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(("signal", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_ctrl_c_leaves_no_process_and_no_file(moment, signal, code, tmp_path):
    with cli.started(tmp_path, "demo") as process:
        (dpu,) = cli.until(lambda: cli.children_of(process.pid))
        cli.until(lambda: MOMENTS[moment](process))
        cli.send(process, signal)
        _, err = cli.ended(process)
    assert process.returncode == code
    assert err == ("\ndgkit: stopped\n" if code == 130 else "")
    cli.until(lambda: not cli.alive(dpu), seconds=1)
    assert not cli.files_under(tmp_path)
