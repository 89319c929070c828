"""The session of a dashboard that starts its DPU, opened while the page draws the frame."""

from __future__ import annotations

import threading
from contextvars import copy_context
from typing import TYPE_CHECKING

from ... import cell_lifetime
from ...session.spawn import SoftwareDpu

if TYPE_CHECKING:
    from ...session import Session


class Opening:
    """A software DPU that is being started, and its session, which a thread opens."""

    def __init__(self) -> None:
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
        except BaseException as error:
            self._error = error

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
