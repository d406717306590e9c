"""What the test agent's probes name."""
import functools


def plain(a, key=None):
    return a, key


def fails(a=None):
    raise KeyError(a)


def recursive(n):
    return 0 if n == 0 else 1 + recursive(n - 1)


class Base:
    def __init__(self, a, b=2):
        self.a, self.b = a, b

    @staticmethod
    def static(a):
        return a

    @classmethod
    def of_class(cls, a):
        return cls, a

    @property
    def value(self):
        return self.a


class Sub(Base):
    def __init__(self, a):
        super().__init__(a, b=3)


class Callable:
    def _call(self, *args, **kwargs):
        return args, kwargs

    __call__ = _call


class SubCallable(Callable):
    pass


class Stream:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


class SubStream(Stream):
    pass


class Outer:
    class Inner:
        def method(self):
            return "inner"


def traced(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


class Run:
    def time(self):
        return "time"

    @traced
    def decorated(self):
        return "decorated"

    @traced
    def other(self):
        return "other"
