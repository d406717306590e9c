"""Plays an agent that lists tensors: player.py with an area (proto/snapshot_abi.h). For the scripts of snapshots.py."""
import array
import ctypes
import mmap
import os
import socket
import struct
import sys
import time

import player
from player import field_bytes, field_int

PAGE, ENTRY, RESULT = 4096, 64, 480
MAGIC = 0x31617370616E73
F32, F64, F16, BF16, I8, I16, I32, I64, U8, U16, U32, U64, BOOL = range(1, 14)
WHOLE, CONTIGUOUS = 0xFFFFFFFF, 0xFFFFFFFF
OWN, BLOBS, SAMPLED = 1, 2, 4
GRADIENT, TORN, COMPLEX, SPARSE, COPY = 1, 2, 4, 8, 16
NUMBER, COUNT, FLAGS, DONE, REFUSED, FINISHED, STORED, BLOBS_AT, ERROR_AT, SETTLED = 64, 112, 124, 192, 196, 200, 208, 224, 228, 256


class Tensor:
    """Memory of its own that can be given back."""

    def __init__(self, name, values, dtype=F32, code="f", shape=None, **more):
        data = values if isinstance(values, (bytes, bytearray)) else array.array(code, values).tobytes()
        self.memory = mmap.mmap(-1, max(len(data), 1))
        self.memory[:len(data)] = data
        self.name, self.dtype, self.bytes = name.encode() if isinstance(name, str) else name, dtype, len(data)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.shape = [len(data) // array.array(code).itemsize] if shape is None else shape
        self.more = more


class Area:
    def __init__(self, session, entries, text=1 << 16):
        self.entries, self.text_at = entries, PAGE + entries * (ENTRY + RESULT)
        self.bytes = self.text_at + text
        self.fd, self.memory = player.memfd(self.bytes)
        struct.pack_into("<QIIQQQ", self.memory, 0, MAGIC, 1, entries, self.bytes, text, session)

    def text(self, data, align):
        self.used += -self.used % align
        at = self.used
        self.memory[self.text_at + at:self.text_at + at + len(data)] = data
        self.used += len(data)
        return at

    def name(self, data):
        if not data:
            return 0
        if data not in self.names:
            self.names[data] = self.text(struct.pack("<I", len(data)) + data, 4)
        return self.names[data]

    def write(self, number, tensors, flags=0, reason=1, first=1000, span=7, epoch=0, step=player.NO_INDEX):
        self.used, self.names = 8, {}
        for i, t in enumerate(tensors):
            shape = self.text(struct.pack(f"<{len(t.shape)}q", *t.shape), 8)
            strides = t.more.get("strides")
            strides = CONTIGUOUS if strides is None else self.text(struct.pack(f"<{len(strides)}q", *strides), 8)
            struct.pack_into("<QIIIIIIBBBxI", self.memory, PAGE + i * ENTRY, t.address, self.name(t.name), shape, strides,
                             self.name(t.more.get("model", "net").encode()), self.name(t.more.get("reason", "").encode()),
                             self.name(t.more.get("dtype_name", "").encode()), t.dtype, len(t.shape), t.more.get("flags", 0), 0)
        gradients = sum(t.more.get("flags", 0) & GRADIENT for t in tensors)
        struct.pack_into("<I", self.memory, DONE, 0)
        struct.pack_into("<QQQqqIIIIQ", self.memory, 72, span, first, time.monotonic_ns(), epoch, step, len(tensors), gradients, reason, flags, 1234)
        self.word(NUMBER, number)

    def word(self, at, value=None):
        words = memoryview(self.memory).cast("Q")
        if value is None:
            return words[at // 8]
        words[at // 8] = value

    def number(self, at):
        return struct.unpack_from("<i", self.memory, at)[0]

    def settle(self, torn_from=WHOLE, torn=0, wait_ns=99):
        struct.pack_into("<QII", self.memory, 264, wait_ns, torn_from, torn)
        self.word(SETTLED, self.word(NUMBER))


class Lister(player.Player):
    def __init__(self, path=None):
        super().__init__(path or sys.argv[1])
        self.area = None

    def make(self, entries, text=1 << 16):
        self.area = Area(self.session, entries, text)

    def say_area(self):
        self.send(field_bytes(6, field_int(1, self.area.bytes)), self.area.fd)

    def say_request(self, folder=None):
        fds = [] if folder is None else [os.open(folder, os.O_RDONLY | os.O_DIRECTORY)]
        self.send(field_bytes(7, field_int(1, self.area.word(NUMBER)) + (field_int(2, 1) if fds else b"")), *fds)
        for fd in fds:
            os.close(fd)

    def hello(self):
        super().hello()
        if self.area:
            self.say_area()

    def until(self, at, number=None, what=None, seconds=60):
        """The word at `at` is as high as the request's number."""
        number, end = self.area.word(NUMBER) if number is None else number, time.monotonic() + seconds
        while self.area.word(at) < number:
            assert time.monotonic() < end, f"{what or at}: {self.area.word(at)}, not {number}, {self.area.number(DONE)} done"
            time.sleep(0.001)

    def snapshot(self, tensors, number=1, folder=None, **more):
        """From the request until it is stored."""
        self.area.write(number, tensors, **more)
        self.say_request(folder)
        self.until(FINISHED, what="finished")
        self.area.settle()
        self.until(STORED, what="stored")


def tell(*words):
    print(*words, flush=True)


def wait():
    """Until the test says a word."""
    return sys.stdin.readline().strip()


def begin(entries=64, text=1 << 16):
    p = Lister()
    p.make(entries, text)
    p.hello()
    p.ring(1)
    return p


def ask(path, session=0, kind=1):
    """The command to take a snapshot: how many were told, and the error."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(60)
        s.connect(str(path))
        s.sendall(player.frame(player.field_bytes(9, player.field_int(1, kind) + player.field_fixed64(2, session))))
        data = b""
        while part := s.recv(100):
            data += part
    assert struct.unpack_from("<I", data)[0] == len(data) - 4 and data[4] == 12 << 3 | 2, data
    fields = dict(zip(data[6::2], data[7::2]))
    return fields.get(1 << 3, 0), fields.get(2 << 3, 0)
