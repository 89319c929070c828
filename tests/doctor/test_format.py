# SPDX-License-Identifier: Apache-2.0
"""A diagnosis as a page and as a card: what is on it, and that nothing a machine said breaks it."""

import re
from pathlib import Path

import pytest
from doctor.snapshots import NAMES, snapshot_file
from doctor.snapshots import machine as recorded
from hypothesis import given
from hypothesis import strategies as st
from support.doctor.machines import machine
from support.jupyter.html import Reader

import dgkit.doctor
from dgkit.doctor import Goal, Verdict, diagnose, finding
from dgkit.doctor.data_paths import DataPath
from dgkit.doctor.diagnosis import Diagnosis
from dgkit.doctor.format.notebook import html, text
from dgkit.doctor.format.summary import group_findings
from dgkit.doctor.format.terminal import page
from dgkit.doctor.machine import Case
from dgkit.doctor.references import Source

# What JupyterLab leaves of an untrusted notebook's output, of what this card is made of.
TAGS = {"div", "span", "strong", "table", "tbody", "thead", "tr", "th", "td", "caption", "pre"}
TAGS |= {"a", "details", "summary"}
ATTRIBUTES = {"style", "scope", "href"}

SOURCE = Source("A guide", "Section 3", "https://example.org/guide")
COMMAND = "sudo " + "very " * 40 + "long"
nasty = st.text() | st.sampled_from(
    [
        "</pre><script>x()</script>",
        '"><img src=x onerror=x()>',
        "\x1b[2J\x1b]0;x\x07",
        "a\nb\rc",
        "",
    ]
)


def named(one, check="some-check", side="host"):
    return finding.msgspec.structs.replace(one, check=check, title=check.title(), side=side)


def diagnosis(*findings, data_paths=(), chosen="", readings=None):
    case = Case(machine=machine(readings or {}), goal=Goal.RDMA)
    case = Case(machine=case.machine, goal=Goal.RDMA, host=case.machine)
    ordered = tuple(sorted(findings, key=lambda one: -one.verdict))
    return Diagnosis(
        case=case, findings=ordered, data_paths=tuple(data_paths), chosen=chosen, took_s=0.1
    )


def way(name, verdict, **more):
    return DataPath(
        name=name, title=name, what=f"{name} moves.", serves=True, verdict=verdict, **more
    )


WAYS = (
    way("direct", Verdict.FAIL, blocked_by=("some-check",)),
    way("staged", Verdict.WARN, why="It copies twice."),
    way("soft", Verdict.OK),
)
BAD = finding.fail(
    "closed", needed="open", why="It blocks.", remedy=[COMMAND, "# Set it in the BIOS."],
    sources=[SOURCE],
)  # fmt: skip


def test_the_page_begins_with_the_verdict_the_best_way_and_what_blocks_a_better_one():
    lines = text(diagnosis(named(BAD), data_paths=WAYS, chosen="there is a NIC")).splitlines()
    assert lines[0].startswith("synthetic machine: a test")
    assert lines[1].startswith("rdma: ")
    top = " ".join(" ".join(lines[1:6]).split())
    assert "staged works, but slower; direct is blocked by some-check" in top
    assert "there is a NIC" in top


def test_a_failure_has_what_was_found_and_needed_why_the_commands_and_the_source():
    shown = text(diagnosis(named(BAD), data_paths=WAYS))
    assert "fail  some-check  Some-Check: closed; needed: open" in shown
    for words in ("It blocks.", "# Set it in the BIOS.", "Source: A guide, Section 3"):
        assert words in shown


@pytest.mark.parametrize("width", [40, 80, 100])
def test_a_command_is_whole_on_a_line_of_its_own_and_all_else_fits(width):
    lines = text(diagnosis(named(BAD), data_paths=WAYS), width=width).splitlines()
    assert COMMAND in [line.strip() for line in lines]
    assert all(len(line) <= width for line in lines if line.strip() != COMMAND)


def test_what_is_ok_or_does_not_apply_is_counted_and_shown_on_demand():
    found = diagnosis(
        named(finding.ok("fine", sources=[SOURCE], disagree="One says so, another not."), "good"),
        named(finding.n_a("no GPU"), "absent"), data_paths=WAYS,
    )  # fmt: skip
    assert "1 ok, 1 n.a." in text(found)
    assert "good" not in text(found)
    verbose = text(found, verbose=True)
    for words in ("good", "absent", "no GPU", "One says so", SOURCE.url):
        assert words in verbose


def test_checks_that_were_asked_for_by_name_are_shown_though_they_are_ok():
    assert "ok    some-check" in text(diagnosis(named(finding.ok("fine"))))


def test_findings_that_differ_by_their_subject_alone_are_one_entry():
    gpus = [named(finding.warn("off", subject=f"GPU {n}", remedy=["mend"])) for n in range(8)]
    (entry,) = group_findings(gpus)
    assert entry.about == "GPU 0, GPU 1, GPU 2, GPU 3 and 4 more"
    shown = text(diagnosis(*gpus, data_paths=WAYS))
    assert shown.count("warn  some-check") == 1
    assert shown.count("mend") == 1


def test_commands_that_mend_two_things_are_given_once():
    found = diagnosis(named(BAD, "one"), named(BAD, "two"), data_paths=WAYS)
    shown = text(found)
    assert shown.count(COMMAND) == 1
    assert "The commands of one, above, fix this, too." in shown


def test_many_warnings_fit_a_screen_and_those_that_do_not_are_named():
    many = [
        named(finding.warn(f"{n}", why="A reason.", remedy=[f"mend {n}"]), f"check-{n}")
        for n in range(30)
    ]
    shown = text(diagnosis(*many, data_paths=WAYS))
    assert len(shown.splitlines()) <= 40
    assert all(f"check-{n}" in shown for n in range(30))
    assert 0 < shown.count("A reason.") < 30
    assert 0 < sum(f"mend {n}\n" in shown for n in range(30)) < 30
    assert "Also warn: " in shown
    assert text(diagnosis(*many, data_paths=WAYS), verbose=True).count("A reason.") == 30


def test_the_worst_finding_is_whole_even_if_it_fills_the_screen():
    long = named(finding.fail("bad", why="A reason.", remedy=[f"mend {n}" for n in range(50)]))
    shown = text(diagnosis(long, named(BAD, "two"), data_paths=WAYS))
    assert all(f"mend {n}\n" in shown for n in range(50))
    assert "Also fail: two." in shown


def test_what_cannot_be_told_says_why_and_how_to_see_it():
    unseen = named(finding.unknown("?", why="Only root may.", remedy=["sudo lspci -vvv"]))
    shown = text(diagnosis(unseen, data_paths=WAYS))
    assert "unknown  some-check" in shown
    assert "Only root may" in shown
    assert "        sudo lspci -vvv" in shown


def test_of_two_machines_each_finding_says_whose_it_is():
    host, dpu = machine({}, name="a"), machine({}, name="b")
    case = Case(machine=host, goal=Goal.ARM_DMA, host=host, dpu=dpu)
    found = (named(BAD, side="dpu"),)
    both = Diagnosis(case=case, findings=found, data_paths=WAYS, chosen="", took_s=0.0)
    assert "fail  dpu some-check" in text(both)
    assert "dpu some-check" in html(both)


def test_why_a_way_should_work_rather_than_works_is_said_once():
    """In the headline for the best one; beside the others only where all is shown."""
    ways = (
        way("direct", Verdict.OK, why="Untried.", proviso="Untried."),
        way("staged", Verdict.WARN, why="It copies twice.", proviso="Nobody looked."),
    )
    found = diagnosis(named(finding.ok("fine")), data_paths=ways)
    for shown in (text(found), text(found, verbose=True), html(found)):
        assert shown.count("Untried.") == 1
        assert "should work" in shown.replace("\N{NO-BREAK SPACE}", " ")
    assert "Nobody looked." not in text(found)
    for shown in (text(found, verbose=True), html(found)):
        assert shown.count("Nobody looked.") == shown.count("It copies twice.") == 1


def test_a_failure_of_another_way_is_told_from_one_of_the_goal():
    ways = (way("direct", Verdict.OK), way("host", Verdict.FAIL, blocked_by=("some-check",)))
    spared, words = (
        diagnosis(named(BAD), data_paths=ways),
        "What fails blocks other data paths only.",
    )
    assert spared.verdict is not Verdict.FAIL
    for shown in (text(spared), html(spared)):
        assert words in " ".join(shown.split())
    for other in (diagnosis(named(BAD), data_paths=ways[1:]), diagnosis(data_paths=ways[:1])):
        assert words not in " ".join(text(other).split())


def test_a_way_that_stands_in_is_not_said_to_work_because_others_do_not():
    ways = (way("direct", Verdict.FAIL), way("host", Verdict.OK, why="No GPU can do it."))
    assert "works, recommended here: No GPU can do it." in text(diagnosis(data_paths=ways))


def test_what_the_goal_does_not_ask_for_says_which_goals_do():
    found = diagnosis(named(finding.n_a("rdma does not ask for it", needed="--goal gpunetio")))
    for shown in (text(found), html(found)):
        assert "rdma does not ask for it; try: --goal gpunetio" in shown
        assert "n.a.." not in shown


def test_nothing_found_says_where_it_is_looked_at():
    for shown in (text(diagnosis()), html(diagnosis())):
        assert "on the other side, host or DPU" in shown
        assert "()" not in shown


def test_no_style_stands_for_a_word():
    lines = page(diagnosis(named(BAD), named(finding.warn("w")), data_paths=WAYS))
    styled = {span.style: span.text for line in lines for span in line if span.style}
    for word in ("fail", "warn"):
        assert word in styled[word] or word in "".join(styled.values())


@given(nasty, nasty, nasty, nasty)
def test_nothing_that_a_machine_said_moves_the_cursor(found, why, subject, command):
    one = named(finding.fail(found, why=why, subject=subject, remedy=[command]))
    for line in page(diagnosis(one, data_paths=WAYS), verbose=True):
        assert all(span.text.isprintable() for span in line)


@given(nasty, nasty, nasty, nasty, nasty)
def test_nothing_that_a_machine_said_adds_an_element(found, why, subject, command, url):
    def shape(*words):
        a, b, c, d, e = words
        one = finding.fail(
            a, why=b, subject=c, remedy=[d], sources=[Source("doc", "", e)], disagree=b
        )
        quiet = named(finding.ok(a, subject=c), "quiet")
        read = Reader(html(diagnosis(named(one), quiet, data_paths=WAYS)))
        assert not read.open
        assert not read.other
        return read.tags, [name for name, _ in read.attributes]

    plain = ("a", "b" * bool(why), "c", "d" * bool(command), url[:8] * url.startswith("https://"))
    assert shape(found, why, subject, command, url) == shape(*plain)


@pytest.mark.parametrize("url", ["javascript:alert(1)", "http://x", "file:///etc/passwd", ""])
def test_only_addresses_of_https_become_links(url):
    one = finding.fail("x", sources=[Source("doc", "", url)])
    assert "a" not in Reader(html(diagnosis(named(one)))).tags


def test_the_card_needs_nothing_that_jupyterlab_would_drop():
    read = Reader(html(diagnosis(named(BAD), named(finding.ok("x"), "quiet"), data_paths=WAYS)))
    assert set(read.tags) <= TAGS
    assert {name for name, _ in read.attributes} <= ATTRIBUTES
    assert COMMAND in "".join(read.texts)
    for name, value in read.attributes:
        if name == "style":
            themed = {p.partition(":")[0] for p in value.split(";") if "var(" in p}
            plain = {p.partition(":")[0] for p in value.split(";") if "var(" not in p}
            assert themed <= plain | {"border-color"}


def test_the_card_folds_what_follows_from_a_cause():
    card = html(diagnose([recorded("driver-broken")], goal=Goal.RDMA))
    folded = card.partition("that follow from these")[2]
    assert ">driver-loaded</span>" in card.removesuffix(folded)
    assert ">driver-loaded</span>" not in folded
    assert folded.count("cuda-driver, follows from driver-loaded</span>") == 1
    assert card.count("follows from") == folded.count("follows from")


def test_a_synthetic_machine_says_so_on_the_card():
    assert "synthetic machine: a test" in html(diagnosis(named(BAD)))


def test_the_card_has_the_colours_of_the_panel():
    style = (Path(dgkit.__file__).parent / "widgets/doctor/doctor.css").read_text()
    variables = dict(re.findall(r"(--dg-\w+): (#\w{6})", style))
    kinds = {
        "fail": Verdict.FAIL, "warn": Verdict.WARN, "unknown": Verdict.UNKNOWN,
        "ok": Verdict.OK,
    }  # fmt: skip
    for name, verdict in kinds.items():
        shown = re.search(rf"\.dg-verdict\.dg-{name} {{ background: var\((--dg-\w+)\)", style)
        card = html(diagnosis(data_paths=(way("path", verdict),)))
        assert f"background-color:{variables[shown[1]]}" in card


def test_str_and_the_card_are_those_of_a_diagnosis():
    found = diagnosis(named(BAD), data_paths=WAYS)
    assert str(found) == text(found)
    assert found._repr_html_() == html(found)


@pytest.mark.parametrize("name", NAMES)
def test_each_known_machine_has_a_page_of_one_screen_and_a_card(name):
    found = dgkit.doctor(snapshots=snapshot_file(name))
    lines = text(found).splitlines()
    assert len(lines) <= 40
    wide = [line for line in lines if len(line) > 100]
    commands = {command for one in found.findings for command in one.remedy}
    assert {line.strip() for line in wide} <= commands
    assert set(Reader(html(found)).tags) <= TAGS
    assert len(text(found, verbose=True)) > len(text(found))
