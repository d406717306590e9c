"""What the suites of this folder share."""
import os
import pathlib

from harness import AGENT, BUILD, COLLECTORD, QUERY, TORCH_PYTHON, Skip, Store, until

HERE = pathlib.Path(__file__).resolve().parent
FAKE = BUILD / "module"
TORCH = [TORCH_PYTHON] if TORCH_PYTHON and os.path.exists(TORCH_PYTHON) else []


def need_agent():
    if not AGENT.is_file():
        raise Skip("no agent is built")


def need_store():
    need_agent()
    if not COLLECTORD.is_file() or not QUERY.is_file():
        raise Skip("no collectord or cirron-query is built")


def store(case, sessions=1, **how):
    """The store once this many sessions are in it and have ended."""

    def there():
        try:
            return len(Store(case.collector.db).sessions) >= sessions
        except AssertionError:  # no store yet
            return False

    until(there, what=f"{sessions} session(s) in the store")
    return case.store(**how)
