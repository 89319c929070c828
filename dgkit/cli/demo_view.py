"""Text output of demo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ..html_cards import hex_lines
from ..units import size_text
from .console import console
from .tables import floor_note, latency_table

if TYPE_CHECKING:
    from ..report import BandwidthReport, LatencyReport
    from .demo_run import Moved


def show_sides(processes: dict[str, Any]) -> None:
    """Print the host's and the DPU's process, and what takes the place of the hardware."""
    out = console()
    dpu, label, provider = processes["dpu"], processes["label"], processes["provider"]
    out.print(f"[bold]dgkit demo[/] on a [bold yellow]{label}[/] (provider {provider})")
    out.print(f"  host  pid {processes['host']['pid']:<8} this process, owns the memory")
    out.print(f"  DPU   pid {dpu['pid']:<8} a second process, moves the bytes")
    if processes["chosen"]:
        out.print(Text(f"  auto  {processes['chosen']}"), soft_wrap=True)


def _rate(size: int, ns: int) -> str:
    """Format a rate in GB/s; as an upper bound if two decimals would show 0.00."""
    return f"{size / ns:.2f}" if size >= 0.005 * ns else "<0.01"


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.2f}" if ns >= 5000 else "<0.01"


def show_moved(moved: Moved) -> None:
    """Print the steps, the first bytes of the copy and the digests."""
    out = console()
    out.print(f"  file  {size_text(moved.size)}, ", end="")
    out.print(Text(moved.name), soft_wrap=True)
    if moved.place != "host":
        out.print(f"  place {moved.place}, both regions")
    out.print("\n[bold]Steps[/]" + f"{'ms':>63}{'GB/s':>9}")
    for number, step in enumerate(moved.steps, 1):
        rate = _rate(step.size, step.elapsed_ns)
        out.print(f"  {number}. {step.text:<51}{_ms(step.elapsed_ns):>11}{rate:>9}")
        for name, ns in (("reads", step.read_ns), ("writes", step.write_ns)):
            if ns:
                text = f"of this in DMA {name}"
                out.print(f"     {text:<51}{_ms(ns):>11}{_rate(step.size, ns):>9}", style="dim")
        if step.overlapped:
            out.print("     (reads and writes overlap: their sum exceeds the step)", style="dim")
    out.print("\n[bold]First bytes of the second region[/]")
    for line in hex_lines(moved.first):
        out.print(Text(f"  {line}"))
    out.print("\n[bold]SHA-256[/]")
    out.print(f"  host      {moved.host}\n  DPU       {moved.dpu}\n  copy      {moved.copy}")
    if moved.verified:
        out.print("  [bold green]equal on both sides[/]")
    else:
        out.print("  [bold red]NOT EQUAL: the copy differs from the file[/]")


def show_times(latency: Sequence[LatencyReport], rate: BandwidthReport) -> None:
    """Print the latency of each size, then the rate in one line."""
    out = console()
    label = latency[0].label
    out.print()
    out.print(latency_table(latency, f"Latency of one write, µs ({label})"))
    floor = rate.floor_kind.partition(",")[0]
    ratio = f", {rate.floor_ratio:.2f} of {floor}" if rate.floor_ratio else ""
    ratio = ", floor moved" if rate.floor_moved else ratio
    out.print(f"\n[bold]Bandwidth[/] [bold green]{rate.gb_per_s:,.2f} GB/s[/], ", end="")
    out.print(f"{rate.window} writes of {size_text(rate.size)} in flight{ratio} ({label})")
    if note := floor_note([*latency, rate]):
        out.print(note, style="yellow", markup=False)
    out.print(str(latency[0].machine), style="dim", markup=False, soft_wrap=True)
