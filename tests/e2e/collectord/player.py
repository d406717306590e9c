"""Plays an agent: the wire and the shared memory of proto/, written by hand so that it can also do what no agent does.

As a program it is a traced process that is told what to do by lines on its standard input, one answer a line:
  player.py SOCKET      then: hello | ring N [CELLS] | open ID PARENT NAME KIND FLAGS | span ID PARENT NAME KIND | burst N |
                        after RING OTHER POSITION | in RING ID PARENT NAME KIND | goodbye | hangup
"""
import array
import contextlib
import fcntl
import mmap
import os
import socket
import struct
import sys
import time

RING_MAGIC, SEGMENT_MAGIC = 0x31676E6972726963, 0x31676573726963
PAGE, CELL, SLOTS, SEGMENT = 4096, 64, 256, 1 << 20
CELLS_AT = PAGE + SLOTS * CELL
SEALS = 0x0002 | 0x0004 | 0x0001  # shrink, grow, seal
F_ADD_SEALS = 1033
NO_INDEX = -(1 << 63)


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


def field_bytes(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def field_int(number, value):
    return varint(number << 3) + varint(value & (1 << 64) - 1)


def field_fixed64(number, value):
    return varint(number << 3 | 1) + struct.pack("<Q", value)


def frame(body):
    return struct.pack("<I", len(body)) + body


def memfd(size, seals=SEALS):
    fd = os.memfd_create("cirron-player", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd, mmap.mmap(fd, size)


class Ring:
    def __init__(self, session, number, cells=1024):
        self.number, self.cells = number, cells
        self.fd, self.memory = memfd(CELLS_AT + cells * CELL)
        struct.pack_into("<QHHIIIQ", self.memory, 0, RING_MAGIC, 1, 0, cells, SLOTS, number, session)
        self.words = memoryview(self.memory).cast("Q")  # one store a word; struct.pack_into clears what it is about to write
        self.head = self.emitted = 0
        self.began = {}
        self.put(struct.pack("<B3xI", 5, os.getpid()))

    @property
    def tail(self):
        return self.words[128 // 8]

    def put(self, cell):
        at = CELLS_AT + self.head % self.cells * CELL
        self.memory[at:at + CELL] = cell.ljust(CELL, b"\0")
        self.head += 1
        self.words[64 // 8] = self.head

    def span(self, number, parent, name, kind=0, start=None, end=None, index=NO_INDEX):
        while self.head - self.tail > self.cells - 8:
            time.sleep(0.001)
        end = end or time.monotonic_ns()
        self.emitted += 1
        self.words[72 // 8] = self.emitted
        self.put(struct.pack("<BBBBIQQQQqqII", 1, kind, 0, 0, name, number, parent, start or self.began.pop(number, end), end, index, -1, 0, 0))

    def open(self, slot, number, parent, name, kind=0, flags=0):
        self.began[number] = time.monotonic_ns()
        entry = struct.pack("<QQQqIIBBHI", number, parent, self.began[number], NO_INDEX, name, 0, kind, flags, 0, os.getpid())
        at = PAGE + slot * CELL
        self.memory[at + 8:at + len(entry)] = entry[8:]
        self.words[at // 8] = number

    def close(self, slot):
        at = PAGE + slot * CELL
        self.words[at // 8] = 0


def hello_fields(p):
    return b"".join([
        field_int(1, 1), field_fixed64(4, p.session), field_int(5, os.getpid()), field_int(6, os.getppid()),
        field_bytes(7, b"host\xff"), field_bytes(9, b"train.py"), field_bytes(9, b'--name="\xe9"'), field_int(12, 2),
        field_int(13, -1), field_int(14, 4), field_int(17, p.anchor[0]), field_int(18, p.anchor[1]), field_int(19, p.start)])


class Player:
    def __init__(self, path):
        self.path, self.session = str(path), int.from_bytes(os.urandom(8), "little") | 1
        self.segment_fd, self.segment = memfd(SEGMENT)
        struct.pack_into("<QHHIQI", self.segment, 0, SEGMENT_MAGIC, 1, 0, SEGMENT, self.session, 4)
        self.names, self.rings, self.start = {}, {}, time.monotonic_ns()
        self.anchor = time.monotonic_ns(), time.time_ns()
        self.socket = None

    def name(self, text):
        if text not in self.names:
            at = struct.unpack_from("<I", self.segment, 24)[0]
            data = text.encode()
            self.segment[PAGE + at:PAGE + at + 4 + len(data)] = struct.pack("<I", len(data)) + data
            memoryview(self.segment).cast("I")[24 // 4] = at + 4 + len(data) + 3 & ~3
            self.names[text] = at // 4
        return self.names[text]

    def send(self, body, *fds):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([frame(body)], rights)

    def hello_body(self):
        return field_bytes(1, hello_fields(self))

    def connect(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(self.path)

    def hello(self):
        self.connect()
        self.send(self.hello_body(), self.segment_fd)
        for ring in self.rings.values():
            self.attach(ring)

    def attach(self, ring):
        self.send(field_bytes(2, field_int(1, ring.number) + field_int(2, ring.cells)), ring.fd)

    def ring(self, number, cells=1024):
        self.rings[number] = ring = Ring(self.session, number, cells)
        if self.socket:
            self.attach(ring)
        return ring

    def goodbye(self):
        self.send(field_bytes(3, b""))

    def hangup(self):
        self.socket.close()
        self.socket = None


def do(player, words):
    verb, rest = words[0], words[1:]
    first = next(iter(player.rings.values()), None)
    if verb == "ring":
        player.ring(*map(int, rest))
    elif verb == "open":
        number, parent, name, kind, flags = rest
        first.open(int(number) % SLOTS, int(number), int(parent), player.name(name), int(kind), int(flags))
    elif verb == "span":
        number, parent, name, kind = rest
        first.close(int(number) % SLOTS)
        first.span(int(number), int(parent), player.name(name), int(kind), start=player.start if int(number) == 1 else None)
    elif verb == "after":
        at, other, position = map(int, rest)
        player.rings[at].put(struct.pack("<B3xIQ", 6, other, position))
    elif verb == "in":
        player.rings[int(rest[0])].span(int(rest[1]), int(rest[2]), player.name(rest[3]), int(rest[4]))
    elif verb == "burst":  # ids from 10 on, over all rings in turn
        rings = list(player.rings.values())
        for i in range(int(rest[0])):
            rings[i % len(rings)].span(10 + i, 1, player.name("burst"))
    elif verb == "survive":  # a burst through deaths of the collector: says Hello again when it hung up
        survive(player, int(rest[0]))
    elif verb == "exec":
        os.execvp(rest[0], rest)
    else:
        getattr(player, verb)()


def survive(player, count):
    ring = next(iter(player.rings.values()))
    for i in range(count):
        while ring.head - ring.tail > ring.cells - 8:
            reconnect(player)
            time.sleep(0.0005)
        ring.span(10 + i, 1, player.name("burst"))
        if i % 100 == 0:
            reconnect(player)
            time.sleep(0.01)
    while ring.tail != ring.head:
        reconnect(player)
        time.sleep(0.001)


def reconnect(player):
    if player.socket:
        try:
            if player.socket.recv(1, socket.MSG_DONTWAIT) == b"":
                player.hangup()
        except BlockingIOError:
            return
        except OSError:
            player.hangup()
    with contextlib.suppress(OSError):
        if not player.socket:
            player.hello()
            return
    player.socket = None


def main():
    player = Player(sys.argv[1])
    for line in sys.stdin:
        do(player, line.split())
        print("ok", flush=True)


if __name__ == "__main__":
    main()
