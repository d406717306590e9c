"""Connects many times and says what no agent says: strangers.py SOCKET."""
import contextlib
import os
import socket
import sys

import player


def say(p, i):
    null = os.open("/dev/null", os.O_RDONLY)
    unsealed, memory = player.memfd(player.SEGMENT, 0)
    kinds = [
        lambda: p.socket.send(os.urandom(200)),
        lambda: p.socket.send(b"\xff\xff\xff\xff"),
        lambda: p.socket.send(b"\0\0\0\0"),
        lambda: p.send(p.hello_body()),  # without its descriptor
        lambda: p.send(p.hello_body(), null),
        lambda: p.send(p.hello_body(), unsealed),
        lambda: p.send(p.hello_body(), *[null] * 40),
        lambda: p.goodbye(),
        lambda: p.attach(player.Ring(p.session, 1)),
        lambda: p.socket.send(player.frame(p.hello_body())[:30]),
        lambda: (p.send(p.hello_body(), p.segment_fd), p.send(p.hello_body(), p.segment_fd)),
        lambda: (p.send(p.hello_body(), p.segment_fd), p.attach(player.Ring(p.session + 1, 1))),
    ]
    kinds[i % len(kinds)]()
    memory.close()
    os.close(unsealed)
    os.close(null)


for i in range(60):
    p = player.Player(sys.argv[1])
    p.connect()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        say(p, i)
        p.socket.shutdown(socket.SHUT_WR)
        p.socket.settimeout(5)
        assert p.socket.recv(1) == b"", f"{i}: an answer"  # until it hangs up
    p.socket.close()
