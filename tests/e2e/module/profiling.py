"""profile(), its handle, Cirron, and how the layers of settings lie on each other, on the fake stack. Run like surface.py."""
import ctypes
import gc
import logging
import os
import pathlib
import subprocess
import sys

import cirron as ci
from yaml_file import PROJECT, Files, unittest

fake = ctypes.CDLL(ci.__file__)
fake.fake_take.restype = ctypes.c_char_p
ALL = dict(torch=1, tensorflow=2, keras=4, transformers=8, sklearn=16, lightning=32)
BUILT_IN = dict(snapshots="stats", sample_rate=0.01, flush_interval=1.0, output=["spool"], output_dir="./.cirron/", spool_max_bytes=10**9,
                trace_buffer_max_spans=100000, load_warn_bytes=10**9, load_max_bytes=10**10)


class Stop:
    def __index__(self):
        raise KeyboardInterrupt


class Case(Files):
    def setUp(self):
        super().setUp()
        self.addCleanup(ci.shutdown)
        fake.fake_refuses(0)
        fake.fake_limit(100000)

    def quiet(self):
        return self.assertLogs("cirron.profiler", "WARNING")

    def settings(self, **given):
        """Effective settings of a fresh profiler, without those that are None."""
        with self.quiet() as logs:
            logging.getLogger("cirron.profiler").warning("one")
            p = ci.profile(**given)
        got = {k: v for k, v in p.settings.items() if v is not None}
        p.shutdown()
        return got, [line for line in logs.output if "no effect" not in line][1:]


class Profile(Case):
    def test_handle(self):
        p = ci.profile()
        self.assertIsInstance(p, ci.Profiler)
        self.assertEqual((p.enabled, p.cirron, p.platform_context), (True, ci.get_default(), ci.health()["platform_context"]))
        self.assertEqual((p.installed_hooks, p.hook_handles), ([], {}))
        self.assertEqual((p.flush(), ci.flush(), ci.watch(None)), (None, None, None))
        self.assertEqual(set(p.health()), set(ci.health()))
        self.assertRaises(TypeError, ci.Profiler)

    def test_second_call(self):
        p = ci.profile(flush_interval=2)
        before = p.settings
        for again in (lambda: ci.profile(), lambda: ci.profile(flush_interval=3, output="stdout"), lambda: ci.Cirron(output="log").profile(),
                      lambda: ci.profile(sample_rate=7), lambda: ci.profile(enabled=False)):
            with self.quiet() as logs:
                self.assertIs(again(), p)
            self.assertEqual(len(logs.output), 1)
            self.assertIn("called more than once", logs.output[0])
        self.assertEqual((p.settings, p.enabled), (before, True))

    def assertNoWarning(self):
        case = self

        class Check:
            def __enter__(self):
                self.logs = case.quiet()
                self.caught = self.logs.__enter__()
                logging.getLogger("cirron.profiler").warning("one")

            def __exit__(self, *error):
                self.logs.__exit__(*error)
                case.assertEqual(len(self.caught.output), 1, self.caught.output)

        return Check()

    def test_disabled(self):
        p = ci.profile(enabled=False)
        self.assertEqual((p.enabled, ci.health()["enabled"], ci.health()["flush_mode"]), (False, False, "stopped"))
        fake.fake_take()
        with ci.scope("x") as s:
            ci.mark("m", 1)
        self.assertEqual((s.id, fake.fake_take(), p.installed_hooks), (None, b"", []))
        with self.quiet():
            self.assertIs(ci.profile(), p)  # it is the one there is
        ci.shutdown()
        self.assertTrue(ci.profile().enabled)

    def test_disabled_settings(self):
        """They are what would hold."""
        self.put("cirron.yaml", PROJECT + "profiling: {flush_interval: 3}\n")
        for off in (False, 0):
            p = ci.Cirron(output="log").profile(enabled=off, sample_rate=0.5)
            got = p.settings
            self.assertEqual((p.enabled, got["flush_interval"], got["sample_rate"], got["output"]), (False, 3.0, 0.5, ["log"]))
            self.assertEqual(fake.fake_frameworks(), 63)
            ci.shutdown()
        self.assertTrue(ci.profile(enabled=None).enabled)

    def test_after_shutdown(self):
        p = ci.profile()
        p.shutdown()
        self.assertEqual((p.enabled, p.shutdown()), (False, None))
        with ci.scope("x") as s:
            self.assertIsNone(s.id)
        q = ci.profile(flush_interval=5)
        self.assertIsNot(p, q)
        p.shutdown()  # it is not the one there is
        with ci.scope("x") as s:
            self.assertIsNotNone(s.id)
        self.assertEqual((q.enabled, q.settings["flush_interval"]), (True, 5.0))

    def test_no_way_back(self):
        ci.shutdown()
        fake.fake_refuses(1)
        with self.quiet() as logs:
            p = ci.profile()
        self.assertIn("nothing is recorded any more", logs.output[0])
        self.assertEqual((p.enabled, ci.health()["enabled"]), (False, False))

    def test_what_is_asked_for_is_told_to_snapshots(self):
        fake.fake_sample_rate.restype = ctypes.c_double
        for given, mode, rate in ((dict(), 0, 0.01), (dict(snapshots="full"), 2, 0.01), (dict(snapshots="sampled", sample_rate=0.5), 1, 0.5),
                                  (dict(snapshots="off"), 3, 0.01), (dict(snapshots="stats", sample_rate=1), 0, 1.0)):
            ci.profile(**given)
            self.assertEqual((fake.fake_snapshots(), fake.fake_sample_rate()), (mode, rate), given)
            ci.shutdown()

    def test_unconfigured_logging(self):
        script = "import cirron as ci; ci.profile(); ci.profile()"
        r = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        self.assertEqual((r.returncode, r.stdout, r.stderr.count("\n")), (0, "", 1), r.stderr)
        self.assertIn("cirron: profile() was called more than once", r.stderr)
        script = "import sys; import cirron as ci; ci.profile(flush_interval=1); print('logging' in sys.modules)"
        r = subprocess.run([sys.executable, "-S", "-c", script], stdout=subprocess.PIPE, universal_newlines=True)
        self.assertEqual(r.stdout, "False\n")

    def test_handler_raises(self):
        class Handler(logging.Handler):
            def handle(self, record):
                raise self.error

        ci.profile()
        handler, logger = Handler(), logging.getLogger("cirron.profiler")
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)
        handler.error = RuntimeError("x")
        self.assertTrue(ci.profile().enabled)
        handler.error = KeyboardInterrupt()
        self.assertRaises(KeyboardInterrupt, ci.profile)


class Frameworks(Case):
    def chosen(self, **given):
        with self.quiet() as logs:
            logging.getLogger("cirron.profiler").warning("one")
            p = ci.profile(**given)
        self.assertEqual(ci.health()["installed_hooks"], p.installed_hooks)
        p.shutdown()
        return fake.fake_frameworks(), logs.output[1:]

    def test_choice(self):
        self.assertEqual(self.chosen(), (63, []))
        self.assertEqual(self.chosen(frameworks=[]), (0, []))
        self.assertEqual(self.chosen(frameworks=("torch", "sklearn")), (17, []))
        bits, logs = self.chosen(frameworks=["torch", "jax"])
        self.assertEqual((bits, len(logs)), (1, 1))
        self.assertRegex(logs[0], "no framework 'jax'; known are torch, ")
        self.assertEqual(self.chosen(config={"frameworks": ["keras"]}), (4, []))
        self.put("cirron.yaml", PROJECT + "profiling:\n  frameworks: []\n")
        self.assertEqual(self.chosen(), (0, []))
        self.assertEqual(self.chosen(frameworks=["torch"]), (1, []))

    def test_list_is_a_copy(self):
        names = ["torch"]
        p = ci.profile(frameworks=names)
        names.append("x")
        p.settings["frameworks"].append("y")
        self.assertEqual(p.settings["frameworks"][:1], ["torch"])


class Layers(Case):
    def test_built_in(self):
        self.assertEqual(self.settings(), (BUILT_IN, []))

    def test_each_over_the_one_below(self):
        own = ci.Cirron(sample_rate=0.2, flush_interval=20, output="log", output_dir="/x", snapshots="full")

        def check(expected, *args, **kwargs):
            with self.quiet() as logs:
                logging.getLogger("cirron.profiler").warning("one")
                p = own.profile(*args, **kwargs)
            self.assertIs(p.cirron, own)
            got = p.settings
            p.shutdown()
            self.assertEqual({k: got[k] for k in expected}, expected, logs.output)

        check(dict(sample_rate=0.2, flush_interval=20.0, snapshots="full", output=["log"], output_dir="/x"))
        self.put("cirron.yaml", PROJECT + "profiling: {sample_rate: 0.3, flush_interval: 30, snapshots: off, torch: {epoch_steps: 5}, output: stdout}\n")
        check(dict(sample_rate=0.3, flush_interval=30.0, snapshots="off", output=["log"], torch={"epoch_steps": 5}))
        check(dict(sample_rate=0.4, flush_interval=30.0, output=["log"], x=1), {"sample_rate": 0.4, "output": "none", "x": 1, 3: 4, "snapshots": None})
        check(dict(sample_rate=0.5, snapshots="stats", output=["spool", "stdout"], torch=None), {"sample_rate": 0.4, "torch": None}, sample_rate=0.5,
              snapshots="stats", output=["spool", "stdout"])
        self.assertRaises(TypeError, own.profile, None, ["torch"])  # by name only

    def test_environment(self):
        script = "import cirron as ci; s = ci.profile().settings; print([s[k] for k in ('output_dir', 'spool_max_bytes', 'load_max_bytes', 'api_key')])"
        env = dict(os.environ, CIRRON_OUTPUT_DIR="/y", CIRRON_SPOOL_MAX_BYTES="77", CIRRON_LOAD_MAX_BYTES="many", CIRRON_API_KEY="k")
        r = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, universal_newlines=True, env=env)
        self.assertEqual(r.stdout, "['/y', 77, 10000000000, 'k']\n")

    def test_bad_environment(self):
        """What was said to be used holds, whatever lies below."""
        self.put(".cirron/config.toml", "[default]\nflush_interval = 7\nspool_max_bytes = 7\noutput_dir = '/t'\n")
        script = "import cirron as ci; s = ci.profile().settings; print([s[k] for k in ('flush_interval', 'spool_max_bytes', 'output_dir')])"
        env = dict(os.environ, CIRRON_FLUSH_INTERVAL="soon", CIRRON_SPOOL_MAX_BYTES="1G", CIRRON_OUTPUT_DIR="")
        r = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, env=env)
        self.assertEqual(r.stdout, "[1.0, 1000000000, '/t']\n")
        self.assertEqual(r.stderr.splitlines(), ["cirron: CIRRON_FLUSH_INTERVAL=soon is not allowed: seconds from 0.001 to 3600; using 1.0",
                                                 "cirron: CIRRON_SPOOL_MAX_BYTES=1G is not allowed: a whole number of bytes above 0; using 1000000000"])

    def test_trace_buffer(self):
        """Sticks until another profile() says something else."""
        for given, expected in (({}, 100000), (dict(trace_buffer_max_spans=5), 5), ({}, 5), (dict(trace_buffer_max_spans=2**63 - 1), 2**63 - 1)):
            p = ci.Cirron(**given).profile()
            self.assertEqual((p.settings["trace_buffer_max_spans"], ci.Cirron().trace_buffer_max_spans), (expected, expected))
            p.shutdown()
        ci.Cirron(trace_buffer_max_spans=3).profile(enabled=False)
        self.assertEqual(ci.Cirron().trace_buffer_max_spans, 2**63 - 1)  # nothing is recorded under it

    def test_path(self):
        file = self.put("other.yaml", PROJECT + "profiling: {flush_interval: 7}\n")
        self.put("cirron.yaml", PROJECT + "profiling: {flush_interval: 8}\n")
        self.assertEqual(self.settings(path=file)[0]["flush_interval"], 7.0)
        got, logs = self.settings(path=self.top)
        self.assertEqual((got["flush_interval"], got["output_dir"], logs), (8.0, str(self.top), []))
        got, logs = self.settings(path=str(self.top / "nowhere.yaml"))
        self.assertEqual((got["flush_interval"], len(logs)), (1.0, 1))
        self.assertRegex(logs[0], "nowhere.yaml: there is no such file; the file is not used")

    def test_bad_file_counts_as_absent(self):
        for text, why in ((PROJECT + "profiling: {flush_interval: 0}\n", "cirron.yaml:5: profiling.flush_interval must be a number above 0, not 0"),
                          ("a: [\n", "cirron.yaml:1: the bracket"), ("name: x\n", "framework is missing"), ("x" * 70000, "longer than")):
            self.put("cirron.yaml", text)
            got, logs = self.settings()
            self.assertEqual((got, len(logs)), (BUILT_IN, 1))
            self.assertIn(why, logs[0])
            self.assertIn("the file is not used", logs[0])
        self.put("cirron.yaml", "workspace: [a]\n")
        self.assertEqual(self.settings(), (BUILT_IN, []))


class User(Case):
    """~/.cirron/config.toml"""

    def user(self, text, **given):
        self.put(".cirron/config.toml", text)
        with self.quiet() as logs:
            logging.getLogger("cirron.profiler").warning("one")
            c = ci.Cirron(**given)
        return c, logs.output[1:]

    def test_each_field(self):
        c, logs = self.user("""# mine
[default]
api_key = "key"   # text
api_endpoint = 'https://x'
workspace_id = 42
output_dir = "/t"
snapshots = "full"
sample_rate = 1
flush_interval = "2.5"
spool_max_bytes = 1_000
ingest_path = "/i"
load_warn_bytes = 1e6
load_max_bytes = "0"
output = ["stdout", "log"]
trace_buffer_max_spans = 0x10
other = 1
[other]
api_key = "no"
""")
        self.assertEqual(logs, [])
        self.assertEqual((c.api_key, c.api_endpoint, c.workspace_id, c.output_dir, c.snapshots, c.sample_rate, c.flush_interval, c.spool_max_bytes),
                         ("key", "https://x", "42", "/t", "full", 1.0, 2.5, 1000))
        self.assertEqual((c.ingest_path, c.load_warn_bytes, c.load_max_bytes, c.output, c.trace_buffer_max_spans),
                         ("/i", 10**6, 10**10, ["stdout", "log"], 16))
        got = c.profile(snapshots="off").settings
        self.assertEqual((got["output_dir"], got["snapshots"], got["output"], got["trace_buffer_max_spans"]), ("/t", "off", ["stdout", "log"], 16))
        self.assertNotIn("other", got)

    def test_what_is_not_allowed_is_dropped(self):
        for line in ("sample_rate = true", "sample_rate = 2", "sample_rate = 'x'", "sample_rate = [1]", "sample_rate = nan", "sample_rate = ''",
                     "flush_interval = 0", "flush_interval = inf", "flush_interval = false", "snapshots = 'all'", "snapshots = ''", "snapshots = 1",
                     "output = 'disk'", "output = ['log', 3]", "output = 3", "spool_max_bytes = 0", "spool_max_bytes = true", "spool_max_bytes = 1.5",
                     "spool_max_bytes = 9223372036854775808", "spool_max_bytes = '1e400'", "output_dir = 3", "output_dir = ''", "output_dir = \"a\\u0000\"",
                     "api_key = true", "api_key = ['k']", "api_key = ''", "api_key = {a = 1}", "frameworks = ['jax']", "config = {}", "path = 'x'", "enabled = false"):
            c, logs = self.user("[default]\n" + line + "\nworkspace_id = 'w'\n")
            with self.quiet():
                logging.getLogger("cirron.profiler").warning("one")
                got = c.profile().settings
            self.assertEqual({k: v for k, v in got.items() if v is not None}, dict(BUILT_IN, workspace_id="w"), line)
            self.assertEqual(logs, [])
            ci.shutdown()

    def test_no_table(self):
        for text in ("", "api_key = 'k'", "default = 3", "[[default]]\napi_key = 'k'", "[Default]\napi_key = 'k'"):
            c, logs = self.user(text)
            self.assertEqual((c.api_key, logs), (None, []), text)

    def test_wrong_file_counts_as_absent(self):
        for text, why in (("[default]\napi_key = k\n", "config.toml:2: a value is expected"), ("[default]\n\n[default]\n", ":3: the key 'default' is there twice"),
                          ("\nx = [1,\n", ":2: the bracket that begins here has no end"), ("x" * 70000, "longer than"), ("a = '\udcff'", ":1: the text is not UTF-8")):
            path = self.put(".cirron/config.toml", "")
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
            with self.quiet() as logs:
                c = ci.Cirron()
            self.assertEqual((c.api_key, len(logs.output)), (None, 1))
            self.assertIn(str(path), logs.output[0])
            self.assertIn(why, logs.output[0])
            self.assertIn("the file is not used", logs.output[0])
            with self.quiet() as logs:
                logging.getLogger("cirron.profiler").warning("one")
                c.profile()  # once for each
            self.assertEqual(len(logs.output), 1)
            ci.shutdown()
        os.unlink(str(path))
        os.mkdir(str(path))
        with self.quiet() as logs:
            logging.getLogger("cirron.profiler").warning("one")
            ci.Cirron()
        self.assertEqual(len(logs.output), 1)

    def test_place_in_the_layers(self):
        c, _ = self.user("[default]\nflush_interval = 7\napi_key = 't'\noutput_dir = '/t'\nsample_rate = 0.7\nspool_max_bytes = 7\n", sample_rate=0.2)
        self.put("cirron.yaml", PROJECT + "profiling: {flush_interval: 8}\n")
        got = c.profile().settings
        self.assertEqual((got["flush_interval"], got["api_key"], got["sample_rate"], got["spool_max_bytes"]), (8.0, "t", 0.2, 7))
        ci.shutdown()
        os.unlink(str(self.top / "cirron.yaml"))
        script = "import cirron as ci; s = ci.profile().settings; print([s[k] for k in ('flush_interval', 'api_key', 'output_dir', 'sample_rate')])"
        env = dict(os.environ, CIRRON_FLUSH_INTERVAL="9", CIRRON_API_KEY="e", CIRRON_OUTPUT_DIR="/e")
        r = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, universal_newlines=True, env=env)
        self.assertEqual(r.stdout, "[9.0, 'e', '/e', 0.7]\n")

    def test_when_it_is_read(self):
        """By Cirron(), and where profile() makes the one of the module; not by an import, nor by anything that records."""
        script = """
import os, sys
import cirron as ci
with ci.scope("s"): ci.mark("m", 1)
ci.health(), ci.flush()
os.environ["HOME"] = sys.argv[1]
own = ci.Cirron()
open(sys.argv[1] + "/.cirron/config.toml", "w").write("[default]\\napi_key = 'later'")
print(own.api_key, own.profile().settings["api_key"], ci.get_default().api_key)
"""
        self.put(".cirron/config.toml", "[default]\napi_key = 'first'")
        env = {k: v for k, v in os.environ.items() if k != "HOME"}
        r = subprocess.run([sys.executable, "-c", script, str(self.top)], stdout=subprocess.PIPE, universal_newlines=True, env=env)
        self.assertEqual(r.stdout, "first first later\n")
        r = subprocess.run([sys.executable, "-c", "import cirron as ci; print(ci.profile().settings['api_key'])"], stdout=subprocess.PIPE,
                           universal_newlines=True, env=env)
        self.assertEqual(r.stdout, "None\n")

    def test_handler_calls_back(self):
        self.put(".cirron/config.toml", "x")
        script = """
import logging
import cirron as ci
class Handler(logging.Handler):
    depth = 0
    def emit(self, record):
        Handler.depth += 1
        if Handler.depth < 3:
            handles.append(ci.profile())
handles = []
logging.getLogger("cirron.profiler").addHandler(Handler())
p = ci.profile()
print(all(h is p for h in handles), p.cirron is ci.get_default())
"""
        r = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, universal_newlines=True)
        self.assertEqual(r.stdout, "True True\n")


class Cirrons(Case):
    def test_fields(self):
        c = ci.Cirron(api_key="k", snapshots="off", sample_rate=1, output=("spool", "log"), output_dir=pathlib.Path("/o"), spool_max_bytes=5)
        self.assertEqual((c.api_key, c.snapshots, c.sample_rate, c.output, c.output_dir, c.spool_max_bytes), ("k", "off", 1.0, ["spool", "log"], "/o", 5))
        self.assertEqual((c.flush_interval, c.workspace_id, c.trace_buffer_max_spans, c.load_warn_bytes, c.ingest_path, c.api_endpoint, c.load_max_bytes),
                         (1.0, None, 100000, 10**9, None, None, 10**10))
        with self.assertRaises(AttributeError):
            c.api_key = "x"

    def test_methods(self):
        c = ci.Cirron()
        c.profile()
        fake.fake_take()
        with c.scope("a", 3) as s:
            c.mark("m", 1)
        self.assertEqual((s.name, list(c.epochs(range(2))), list(c.batches("ab"))), ("a", [0, 1], ["a", "b"]))
        self.assertIn(b"mark", fake.fake_take())
        self.assertFalse(hasattr(c, "watch"))
        self.assertEqual((c.trace, c.wrap), (ci.trace, ci.wrap))

    def test_default(self):
        self.assertIs(ci.get_default(), ci.get_default())
        self.assertIsInstance(ci.get_default(), ci.Cirron)
        p = ci.get_default().profile()
        self.assertIs(p.cirron, ci.get_default())

    def test_memory(self):
        self.put("cirron.yaml", PROJECT + "profiling: {flush_interval: 3, frameworks: [torch]}\n")
        self.put(".cirron/config.toml", "[default]\napi_key = 'k'\noutput = 3\n[x]\na = [{b = 1}]\n")

        def run(n):
            for _ in range(n):
                c = ci.Cirron(output=["log"], output_dir="/x", sample_rate=0.5)
                p = c.profile({"a": [1]}, flush_interval=2)
                p.settings, p.installed_hooks, p.hook_handles, p.health(), c.output
                p.shutdown()
                for wrong in (dict(output=["x"]), dict(config={"sample_rate": 3}), dict(path="x\0" * 10)):
                    self.assertRaises(ValueError, c.profile, **wrong)

        def pages():
            gc.collect()
            with open("/proc/self/statm") as f:
                return int(f.read().split()[1])

        run(300)
        before, blocks = pages(), sys.getallocatedblocks()
        run(2000)
        self.assertLess(sys.getallocatedblocks() - blocks, 1000)  # a leak of one object a round would be 2000
        self.assertLess(pages() - before, 1000)  # of our own memory: 2 KB a round


if __name__ == "__main__":
    unittest.main(verbosity=1)
