# SPDX-License-Identifier: Apache-2.0
"""The session of a dashboard that starts its DPU, opened while the page draws the frame."""

from __future__ import annotations

import contextlib
import threading
from contextvars import copy_context
from typing import TYPE_CHECKING

from ... import cell_lifetime
from ...errors import DgkitError
from ...session.spawn import SoftwareDpu
from ...units import us

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...session import Session

_SIZE, _COUNT = 64, 200  # bytes and samples of the first number


class Opening:
    """A software DPU that is being started, and its session, which a thread opens.

    Attributes:
        headline: The median of the first transfers, as `LatencyPlot.headline()`: the plot needs
            NumPy and has samples later. None: not measured yet.
        measured: Called by that thread when there is a headline.
    """

    def __init__(self) -> None:
        self.headline: dict[str, str] | None = None
        self.measured: Callable[[], None] = lambda: None
        self._dpu = SoftwareDpu()
        self._session: Session | None = None
        self._error: BaseException | None = None
        run = copy_context().run
        self._thread = threading.Thread(target=run, args=(self._open,), daemon=True)
        self._thread.name = "dgkit-connect"
        self._thread.start()

    def _open(self) -> None:
        try:
            from ...session.connect import connect_to

            with cell_lifetime.detached():  # stays open with its regions when the cell runs again
                self._session = connect_to(self._dpu)
                with contextlib.suppress(DgkitError):  # the plot will say it
                    self._measure(self._session)
        except BaseException as error:
            self._error = error

    def _measure(self, session: Session) -> None:
        with session.empty(_SIZE) as region:
            report = session.latency(region, _SIZE, count=_COUNT, destructive=True)
        about = f"p50 of the first {_COUNT} samples: write {_SIZE} B ({report.label})"
        self.headline = {"value": f"{us(report.p50_ns)} µs", "text": about}
        self.measured()

    def session(self) -> Session:
        """Wait for the session and return it.

        Raises:
            DgkitError: As dgkit.connect().
        """
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._session is not None
        return self._session

    def close(self) -> None:
        """End the DPU."""
        self._thread.join()
        if self._session is not None:
            self._session.close()
