"""How two processes talk: typed messages, keys, sockets. No payload travels here, DMA carries it.

messages.py   what is said, and the bounds of every field
failures.py   an exception on its way to the other side
keys.py       CURVE keys and who is let in
address.py    ipc:// and tcp:// addresses, the runtime folder's sockets
machine.py    which machine this is, and whether a process there runs, is stopped or is gone
watcher.py    wakes that end when anything else has news
liveness.py   what became of the other side, in words
dealer.py     the client's sockets
pending.py    a request without its reply
listener.py   the agent's end: a ROUTER socket that knows which client went
link.py       the client's end: a DEALER socket, replies matched by number
"""
