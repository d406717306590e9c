"""cirron.yaml: find_cirron_yaml() and load_cirron_yaml(), on the fake stack. Run like surface.py."""
import json
import os
import pathlib
import tempfile
import unittest

import cirron as ci

PROJECT = "name: churn\nframework: pytorch\ntype: classification\nversion: '1.2'\n"


class Files(unittest.TestCase):
    def setUp(self):
        self.before = os.getcwd()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, self.before)
        self.top = pathlib.Path(folder.name).resolve()
        self.deep = self.top / "a" / "b"
        self.deep.mkdir(parents=True)
        os.chdir(str(self.deep))
        self.home(self.top)  # nobody's own settings

    def home(self, folder):
        """What ~ is from now on."""
        if "HOME" in os.environ:
            self.addCleanup(os.environ.__setitem__, "HOME", os.environ["HOME"])
        os.environ["HOME"] = str(folder)

    def put(self, name, text):
        path = self.top / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


class Find(Files):
    def test_nearest(self):
        self.assertIsNone(ci.find_cirron_yaml())
        self.assertIsNone(ci.load_cirron_yaml())
        above = self.put("cirron.json", "{}")
        self.assertEqual(ci.find_cirron_yaml(), above)
        self.assertIsInstance(ci.find_cirron_yaml(), pathlib.Path)
        near = self.put("a/cirron.yml", "")
        for start in (None, ".", self.deep, str(self.deep), os.fsencode(str(self.deep))):
            self.assertEqual(ci.find_cirron_yaml(start), near)
        self.assertEqual(ci.find_cirron_yaml(start=self.top), above)
        first = self.put("a/cirron.yaml", "")
        self.assertEqual((ci.find_cirron_yaml(), ci.find_cirron_yaml(first)), (first, first))
        self.assertIsNone(ci.find_cirron_yaml(self.top / "nowhere"))

    def test_arguments(self):
        class Path:
            def __fspath__(self):
                raise LookupError

        self.assertRaises(LookupError, ci.find_cirron_yaml, Path())
        self.assertRaises(LookupError, ci.load_cirron_yaml, Path())

    def test_odd_names(self):
        folder = self.top / "caf\u00e9 \udcff"
        folder.mkdir()
        (folder / "cirron.yaml").write_text(PROJECT)
        os.chdir(str(folder))
        self.assertEqual(ci.find_cirron_yaml(), folder / "cirron.yaml")
        self.assertEqual(ci.load_cirron_yaml().name, "churn")


class Load(Files):
    def test_fields(self):
        self.put("cirron.yaml", PROJECT + "env: {A: '1'}\nprofiling:\n  snapshots: off\n  sample_rate: 0.01\n  torch:\n    epoch_steps: 500\n"
                 "servingConfig:\n  runtime: onnx\n  class_labels: [yes, 'no', 2]\n")
        got = ci.load_cirron_yaml()
        self.assertEqual((got.name, got.framework, got.type, got.version), ("churn", "pytorch", "classification", "1.2"))
        self.assertEqual((got.description, got.env, got.secrets, got.data), (None, {"A": "1"}, [], {}))
        p = got.profiling
        self.assertEqual((p.snapshots, p.sample_rate, p.flush_interval, p.frameworks, p.torch), ("off", 0.01, None, None, {"epoch_steps": 500}))
        self.assertEqual((got.serving_config.runtime, got.serving_config.class_labels, got.serving_config.feature_order), ("onnx", [True, "no", 2], None))
        self.assertEqual((type(got), type(p), type(got.serving_config)), (ci.CirronYaml, ci.ProfilingConfig, ci.ServingConfig))
        self.assertFalse(hasattr(got, "servingConfig"))
        self.assertEqual(got, ci.load_cirron_yaml(str(self.top / "cirron.yaml")))
        self.assertIn("churn", repr(got))

    def test_least(self):
        got = ci.load_cirron_yaml(self.put("x.yaml", PROJECT))
        self.assertEqual((got.profiling, got.serving_config), (None, None))

    def test_json(self):
        content = dict(name="n\u00e9", framework="onnx", type="embedding", version="2", profiling=dict(frameworks=[], flush_interval=3))
        got = ci.load_cirron_yaml(self.put("cirron.json", json.dumps(content)))
        self.assertEqual((got.name, got.profiling.frameworks, got.profiling.flush_interval), ("n\u00e9", [], 3))

    def test_unknown_key(self):
        with self.assertLogs("cirron.profiler", "WARNING") as logs:
            got = ci.load_cirron_yaml(self.put("x.yaml", PROJECT + "profilng: {a: [1, 2.5, null]}\nother: x\n"))
        self.assertEqual((got.profilng, got.other), ({"a": [1, 2.5, None]}, "x"))
        self.assertEqual(len(logs.output), 1)
        self.assertRegex(logs.output[0], r"x\.yaml:5: unknown key profilng")

    def test_wrong(self):
        for text, why in (("a: [", ":1: the bracket"), (PROJECT + "profiling:\n\tsnapshots: x", ":6: a tab"), (PROJECT + "name: x", ":5: the key 'name' is there twice"),
                          ("name: x", ":1: framework is missing"), (PROJECT + "profiling: {sample_rate: 2}", ":5: profiling.sample_rate must be a number from 0 to 1, not 2"),
                          ("", ":1: the file must be a map"), ("workspace: [a]", "several projects"), ("a: &x 1", "anchors")):
            with self.assertRaises(ci.CirronYamlError) as caught:
                ci.load_cirron_yaml(self.put("x.yaml", text))
            self.assertIn(str(self.top / "x.yaml"), str(caught.exception))
            self.assertIn(why, str(caught.exception))
        for path in ("nowhere.yaml", self.top, "/dev/null"):
            self.assertRaisesRegex(ci.CirronYamlError, "no such file", ci.load_cirron_yaml, path)

    def test_percent(self):
        with self.assertRaisesRegex(ci.CirronYamlError, "not %s %d"):
            ci.load_cirron_yaml(self.put("x.yaml", PROJECT.replace("pytorch", "'%s %d'")))

    def test_memory(self):
        path = self.put("x.yaml", PROJECT + "data: {a: 'b'}\n")
        gone = self.put("y.yaml", "a: [")
        for _ in range(300):
            ci.load_cirron_yaml(path)
            self.assertRaises(ci.CirronYamlError, ci.load_cirron_yaml, gone)
        with open("/proc/self/statm") as f:
            before = int(f.read().split()[1])
        for _ in range(2000):
            ci.load_cirron_yaml(path)
            self.assertRaises(ci.CirronYamlError, ci.load_cirron_yaml, gone)
        with open("/proc/self/statm") as f:
            self.assertLess(int(f.read().split()[1]) - before, 200)


if __name__ == "__main__":
    unittest.main(verbosity=1)
