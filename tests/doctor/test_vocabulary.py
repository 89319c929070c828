# SPDX-License-Identifier: Apache-2.0
"""Words that are never redacted: an explicit list, which no sentence of the source changes."""

from pathlib import Path

from doctor.vocabulary import looked_for, missing, module

from dgkit.doctor.redact import vocabulary
from dgkit.doctor.redact.vocabulary import WORDS, is_allowed

SOURCE = '''"""Merlin wrote this."""  # and merlin that
merlin = why = "Only Merlin may read it."
machine.read.text("/sys/class/nets")
read("run lspci -vvv", key="mode")
'''


def test_the_list_has_each_word_that_the_doctor_looks_for() -> None:
    assert missing() == [], "python tests/doctor/vocabulary.py --add"


def test_the_module_is_as_its_program_writes_it() -> None:
    assert Path(vocabulary.__file__).read_text("utf-8") == module(WORDS)


def test_sentences_comments_and_variables_are_not_looked_for() -> None:
    assert set(looked_for(SOURCE)) == {"sys", "class", "nets", "run", "lspci", "vvv", "mode"}


def test_a_word_of_the_doctors_prose_is_no_reason_to_keep_a_name() -> None:
    prose = "recommends"
    assert any(prose in path.read_text("utf-8") for path in _sources())
    assert not is_allowed(prose)
    assert is_allowed("gpu0")
    assert not is_allowed("gpu00000")


def _sources() -> list[Path]:
    return list(Path(vocabulary.__file__).parents[1].rglob("*.py"))
