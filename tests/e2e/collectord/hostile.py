"""A traced process that keeps every rule of the wire and none of the shared memory: hostile.py SOCKET SECONDS KIND [HEX PREFIX]."""
import os
import random
import struct
import sys
import time

import player

PATH, SECONDS, KIND = sys.argv[1], float(sys.argv[2]), sys.argv[3]
chance = random.Random(7)


def until_time():
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        yield
        time.sleep(0.002)


def random_rings(p):
    """Random bytes in cells and open tables, under heads that move as they may."""
    ring = p.ring(1)
    for _ in until_time():
        at = player.CELLS_AT + chance.randrange(ring.cells - 64) * player.CELL
        ring.memory[at:at + 4096] = os.urandom(4096)
        for k in range(ring.cells):
            ring.memory[player.CELLS_AT + k * player.CELL] = chance.choice((1, 1, 2, 4, 5, 6, 3, 255))
        ring.memory[player.PAGE:player.CELLS_AT] = os.urandom(player.CELLS_AT - player.PAGE)
        ring.head = max(ring.head, ring.tail) + chance.randrange(ring.cells // 2)
        struct.pack_into("<Q", ring.memory, 64, ring.head)


def jumping_heads(p):
    rings = [p.ring(i) for i in range(1, 17)]
    for _ in until_time():
        for ring in rings:
            struct.pack_into("<Q", ring.memory, 64, chance.choice((0, 1 << 63, (1 << 64) - 1, ring.head, ring.head + 500, 77)))
            struct.pack_into("<Q", ring.memory, 128, chance.getrandbits(64))


def never_waits(p):
    """Overtakes the reader's tail at full speed."""
    ring = p.ring(1, 65536)
    for _ in until_time():
        ring.head += 60000
        struct.pack_into("<Q", ring.memory, 64, ring.head)


def overlapping_names(p):
    """A MiB of names, each of 4,092 bytes, one every 8 bytes: half a GiB, were they all taken."""
    area = b"".join(struct.pack("<II", 4092, i) for i in range((player.SEGMENT - player.PAGE) // 8))
    p.segment[player.PAGE:] = area
    struct.pack_into("<I", p.segment, 24, len(area))
    ring, n = p.ring(1, 65536), 0
    for _ in until_time():
        for _ in range(2000):
            n += 1
            if ring.head - ring.tail < ring.cells - 8:
                ring.span(9 + n, 1, 2 * (n % 128000))


def many_names(p):
    ring = p.ring(1, 65536)
    for i in range(10000):
        ring.span(10 + i, 1, p.name(f"name {i}"))
    for i in range(200):
        ring.span(20000 + i, 1, p.name(chr(0x4e00 + i) * 1365))
    for _ in until_time():
        pass


def moves(p):
    """A span with many children, and as many moves of them as fit."""
    ring, other = p.ring(1, 65536), p.ring(2, 65536)
    for i in range(50000):
        ring.span(100 + i, 10, 0)
    for i in range(60000):
        other.put(struct.pack("<B7xQQQ", 4, 10 + i % 2, 11 - i % 2, 0))
    p.hello()
    for _ in until_time():
        pass


def many_sessions(p):
    more = [player.Player(PATH) for _ in range(300)]
    for q in more:
        try:
            q.hello()
            q.ring(1)
        except OSError:
            pass
    for _ in until_time():
        pass


def silent_connections(p):
    import socket
    held = []
    for _ in range(2000):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(0.2)
        try:
            s.connect(PATH)
        except OSError:
            pass
        held.append(s)
    for _ in until_time():
        pass


def somebody_else(p):
    """Says Hello with the prefix of another session, and writes into it."""
    p.session = int(sys.argv[4], 16)
    struct.pack_into("<Q", p.segment, 16, p.session)
    p.hello()
    ring = p.ring(1)
    ring.span(66, 1, p.name("forged"))
    for _ in until_time():
        pass


import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
me = player.Player(PATH)
if KIND not in ("somebody_else", "silent_connections", "moves"):
    me.hello()
try:
    globals()[KIND](me)
except (BrokenPipeError, ConnectionResetError):
    pass
