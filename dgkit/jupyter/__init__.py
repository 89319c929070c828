# SPDX-License-Identifier: Apache-2.0
"""dgkit in Jupyter: an extension of its server, and `dgkit lab`'s server.

tcp_nodelay  server extension: TCP_NODELAY on kernel websockets
panel_routes plugin of `panel serve`: anywidget's JavaScript from its wheel
lab_server   JupyterLab as a child process of `dgkit lab`
"""
