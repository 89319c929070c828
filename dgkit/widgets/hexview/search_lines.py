"""Searches as lines of Python that do the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.as_python import bytes_expression, region_lines, script

if TYPE_CHECKING:
    from ...session import SessionRegion

__all__ = ["compare_lines", "find_lines"]

_READ = "session.read(region, region.size)"


def _host(region: SessionRegion) -> str:
    get = ".get()" if region.place.startswith("cuda") else ""
    return f"region.array{get}.tobytes()"


def find_lines(
    region: SessionRegion, source: str, pattern: bytes, start: int, backward: bool
) -> str:
    """Return the lines that search for a pattern; `at` is where it is, or -1."""
    first, again = f"data.find(pattern, {start})", "data.find(pattern)"
    if backward:
        first = f"data.rfind(pattern, 0, {start} + len(pattern) - 1)"
        again = "data.rfind(pattern)"
    return script([
        *region_lines(region),
        f"pattern = {bytes_expression(pattern, '')}",
        f"data = {_READ if source == 'dpu' else _host(region)}",
        f"at = {first}",
        "if at < 0:  # from the other end",
        f"    at = {again}",
    ])  # fmt: skip


def compare_lines(region: SessionRegion, start: int, backward: bool, count: bool) -> str:
    """Return the lines that compare DPU and host; `at` is the next run of differences, or -1."""
    lines = [
        *region_lines(region),
        f'dpu = np.frombuffer({_READ}, "u1")',
        f'host = np.frombuffer({_host(region)}, "u1")',
        "differs = dpu != host",
        "runs = np.flatnonzero(differs & ~np.r_[False, differs[:-1]])  # where each begins",
    ]
    if count:
        return script([*lines, "print(int(differs.sum()), 'bytes in', len(runs), 'places')"])
    side, pick = (f"runs < {start}", -1) if backward else (f"runs >= {start}", 0)
    return script([
        *lines,
        f"wanted = runs[{side}] if ({side}).any() else runs",
        f"at = int(wanted[{pick}]) if len(wanted) else -1",
    ])  # fmt: skip
