"""A hex view without a kernel: a picture, and HTML."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from ...errors import DgkitError
from ...html_cards import Html, card, hex_lines, provider_badge
from ...units import plural, size_text
from ..base.picture import Picture
from .fetch import why_no_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .fetch import Reader
    from .selection import RegionSelection

_BYTES = 256


def bytes_picture(
    title: str, selection: RegionSelection, reader: Reader, sources: Sequence[str]
) -> Picture:
    """Return the bytes in view. The host reads them if it can: a picture causes no DMA."""
    region = selection.current()
    if region is None:
        picture = Picture(f"{title}: {selection.empty_reason}")
        picture.heading(title)
        picture.text(selection.empty_reason)
        return picture
    at = selection.at - selection.at % 16
    shown = f"{plural(min(_BYTES, region.size - at), 'byte')} at offset {at:#x}"
    about = f"{region.name} on {region.where}, {size_text(region.size)}"
    picture = Picture(f"{title}: {shown} of {about}")
    picture.heading(title, selection.model.state()["label"])
    picture.text(f"{about}; {shown}")
    try:
        source = sources[:1] if why_no_host(region) else ["host"]
        data = reader.read(region, source, at, min(_BYTES, region.size - at))[0]
        picture.fixed(hex_lines(data, offset=at))
    except DgkitError as error:
        picture.text(str(error))
    return picture


def bytes_html(
    title: str, selection: RegionSelection, reader: Reader, sources: Sequence[str]
) -> str:
    """Return the first bytes of the region as HTML."""
    region = selection.current()
    if region is None:
        return card(title, [("", selection.empty_reason)])
    about = [("Region", region.name), ("On", region.where), ("Size", size_text(region.size))]
    try:
        data = reader.read(region, sources[:1], 0, min(_BYTES, region.size))[0]
        lines = html.escape("\n".join(hex_lines(data)))
        body = f'<pre style="font-size:12px;overflow:auto">{lines}</pre>'
        about.append(
            ("Shown", f"the first {plural(len(data), 'byte')}; run the cell for the live view")
        )
    except DgkitError as error:
        body = f"<p>{html.escape(str(error))}</p>"
    badge = provider_badge(region.session.dpu.provider, region.session.dpu.emulated)
    return card(title, about, badge=badge, body=Html(body))
