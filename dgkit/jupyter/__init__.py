"""dgkit in Jupyter: an extension of its server, and `dgkit lab`'s server.

tcp_nodelay  server extension: TCP_NODELAY on kernel websockets
lab_server   JupyterLab as a child process of `dgkit lab`
"""
