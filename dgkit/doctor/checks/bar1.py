"""BAR1: the window through which other devices reach a GPU's memory."""
