"""Call-bound Python that the agent has no business with. Prints the seconds of each of its rounds."""
import time


class Point:
    def __init__(self, x):
        self.x = x

    def moved(self, by):
        return Point(self.x + by)


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def walk(n):
    p = Point(0)
    for i in range(n):
        p = p.moved(i)
    return p.x


def one_round():
    begin = time.perf_counter()
    fib(19)
    walk(8000)
    sorted(range(4000), key=lambda v: -v)
    return time.perf_counter() - begin


one_round()
print(*(one_round() for _ in range(25)))
