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
ALL = dict(torch=1, tensorflow=2, keras=4, transformers=8, sklearn=16)
BUILT_IN = dict(snapshots="stats", sample_rate=0.01, flush_interval=1.0, output=["spool"], output_dir="./.cirron/", spool_max_bytes=10**9,
                trace_buffer_max_spans=100000, load_warn_bytes=10**9, load_max_bytes=10**10)


class Stop:
    def __bool__(self):
        raise KeyboardInterrupt


class Case(Files):
    def setUp(self):
        super().setUp()
        self.addCleanup(ci.shutdown)
        fake.fake_refuses(0)

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

    def test_wrong(self):
        for kwargs, error, text in ((dict(snapshots="all"), ValueError, "snapshots.*'stats'.*'all'"), (dict(snapshots=3), TypeError, "snapshots"),
                                    (dict(sample_rate=1.5), ValueError, "sample_rate.*between 0 and 1.*1.5"), (dict(sample_rate=float("nan")), ValueError, "sample_rate"),
                                    (dict(sample_rate="1"), TypeError, "sample_rate"), (dict(flush_interval=0), ValueError, "flush_interval"),
                                    (dict(flush_interval=True), TypeError, "flush_interval"), (dict(output="disk"), ValueError, "not valid"),
                                    (dict(output=["spool", 3]), ValueError, "must be strings"), (dict(output=3), TypeError, "output"),
                                    (dict(frameworks="torch"), TypeError, "frameworks"), (dict(config=[]), TypeError, "config"),
                                    (dict(config={"sample_rate": 2}), ValueError, "sample_rate"), (dict(path=3), TypeError, "path"),
                                    (dict(sampling=1), TypeError, "sampling"), (dict(sample_rate=10**400), OverflowError, ""),
                                    (dict(enabled=Stop()), KeyboardInterrupt, ""), (dict(path="a\0b"), ValueError, "zero byte")):
            with self.assertRaisesRegex(error, text, msg=str(kwargs)):
                ci.profile(**kwargs)
        with self.assertNoWarning():
            self.assertTrue(ci.profile().enabled)  # none of those was the first call

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
        self.assertEqual((p.enabled, ci.health()["enabled"], ci.health()["flush_mode"], p.settings), (False, False, "stopped", {}))
        fake.fake_take()
        with ci.scope("x") as s:
            ci.mark("m", 1)
        self.assertEqual((s.id, fake.fake_take(), p.installed_hooks), (None, b"", []))
        with self.quiet():
            self.assertIs(ci.profile(), p)  # it is the one there is
        ci.shutdown()
        self.assertTrue(ci.profile().enabled)

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

    def test_no_effect_is_said(self):
        for given, said in ((dict(snapshots="full"), True), (dict(sample_rate=0.5), True), (dict(snapshots="off"), False), (dict(flush_interval=2), False)):
            with self.assertLogs("cirron.profiler", "INFO") as logs:
                logging.getLogger("cirron.profiler").warning("one")
                ci.profile(**given)
            self.assertTrue(all(line.startswith("INFO") for line in logs.output[1:]), logs.output)
            self.assertEqual(["no effect" in line for line in logs.output[1:]], [True] * said, given)
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
        self.assertEqual(self.chosen(), (31, []))
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


class Cirrons(Case):
    def test_fields(self):
        c = ci.Cirron(api_key="k", snapshots="off", sample_rate=1, output=("spool", "log"), output_dir=pathlib.Path("/o"), spool_max_bytes=5)
        self.assertEqual((c.api_key, c.snapshots, c.sample_rate, c.output, c.output_dir, c.spool_max_bytes), ("k", "off", 1.0, ["spool", "log"], "/o", 5))
        self.assertEqual((c.flush_interval, c.workspace_id, c.trace_buffer_max_spans, c.load_warn_bytes, c.ingest_path, c.api_endpoint, c.load_max_bytes),
                         (1.0, None, 100000, 10**9, None, None, 10**10))
        with self.assertRaises(AttributeError):
            c.api_key = "x"

    def test_wrong(self):
        for kwargs, error, text in ((dict(sample_rate=2), ValueError, r"Cirron\(\): sample_rate"), (dict(output="x"), ValueError, "not valid"),
                                    (dict(spool_max_bytes=0), ValueError, "spool_max_bytes"), (dict(spool_max_bytes=1.5), TypeError, "spool_max_bytes"),
                                    (dict(spool_max_bytes=2**70), ValueError, "63 bits"), (dict(api_key=3), TypeError, "api_key"), (dict(other=1), TypeError, "other")):
            with self.assertRaisesRegex(error, text, msg=str(kwargs)):
                ci.Cirron(**kwargs)
        self.assertRaises(TypeError, ci.Cirron, "key")

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

        def run(n):
            for _ in range(n):
                c = ci.Cirron(output=["log"], output_dir="/x", sample_rate=0.5)
                p = c.profile({"a": [1]}, flush_interval=2)
                p.settings, p.installed_hooks, p.hook_handles, p.health(), c.output
                p.shutdown()
                for wrong in (dict(output=["x"]), dict(config={"sample_rate": 3})):
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
