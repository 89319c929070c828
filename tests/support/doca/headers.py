# SPDX-License-Identifier: Apache-2.0
"""The functions that softdoca's headers declare and refuse, and the table of names by release.

A header refuses a function in the comment above it: "Returns NOT_SUPPORTED.", or "Return BAD_STATE:
the reason." for all declarations up to the next comment.
"""

import re
from pathlib import Path

RELEASES = ("<!-- releases -->\n", "<!-- end of releases -->\n")
_OF_RELEASES = re.compile(
    r"^#define DOCA_OF_(\w+) SOFTDOCA_(TO|FROM)_(\w+)(?: /\* (.*) \*/)?$", re.M
)
_FORMS = re.compile(r"^/\* (.*?) \*/\n#define DOCA_FORM_", re.M)
_DECLARED = re.compile(
    r"/\*(?P<comment>.*?)\*/|^DOCA_(?:STABLE|EXPERIMENTAL)\s+[^;()]*?\b(?P<name>doca_\w+)\(",
    re.S | re.M,
)
_REFUSED = re.compile(r"(Returns?) (?:NOT_SUPPORTED|BAD_STATE)(?:[.:]|, as )")


def releases(readme: str, header: str) -> str:
    """Return the README with the table of the names that not all releases have."""
    lines = ["| name | releases | otherwise |", "|---|---|---|"]
    for name, side, release, instead in _OF_RELEASES.findall(header):
        prefix = "DOCA_" if name.isupper() else "doca_"
        number = release.replace("_", ".")
        span = f"up to {number}" if side == "TO" else f"from {number} on"
        lines.append(f"| `{prefix}{name}` | {span} | {instead} |")
    forms = [f"- {text}" for text in _FORMS.findall(header)]
    before, _, rest = readme.partition(RELEASES[0])
    after = rest.partition(RELEASES[1])[2]
    return "\n".join([before + RELEASES[0] + "\n".join(lines), "", *forms, RELEASES[1]]) + after


def declared(include: Path) -> dict[str, bool]:
    """Return the functions of the headers, and whether a comment says that each is refused."""
    found = {}
    for path in sorted(include.glob("*.h")):
        comment, is_first = "", False
        for match in _DECLARED.finditer(path.read_text("utf-8")):
            if match["comment"] is not None:
                comment, is_first = " ".join(re.sub(r"\n \*", " ", match["comment"]).split()), True
            else:
                refused = _REFUSED.match(comment)
                found[match["name"]] = bool(refused and (is_first or refused[1] == "Return"))
                is_first = False
    return found
