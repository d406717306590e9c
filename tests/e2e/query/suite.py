"""What cirron-query prints for stores with known contents: golden texts, machine formats, bad stores, hostile names, pipes."""
import contextlib, csv, io, json, os, pathlib, re, shutil, sqlite3, subprocess, sys, time

import snapshot_cases
from common import ENV, MAKE, QUERY, WORK, Skip, db, golden, ok, on_terminal, refused, rows, run

SCENARIOS = "train killed running ranks evalonly scopes names keras lossy empty loop".split()
SPAN = ("id name parent_id index start_ns end_ns cpu_ns gpu_ns memory_peak_bytes thread_id pid rank attrs mark_ids session_id "
        "state error").split()
MARK = "id span_id name value_type value attrs ts_ns kind session_id".split()
SNAPSHOT = "id span_id tensor_name shape dtype mode stats blob_uri ts_ns attrs session_id model kind torn".split()
SESSION = "id pid ppid rank world_size host argv state exit_signal dropped exit_code start_ns end_ns spans marks run_id".split()


def case_report_texts():
    for name in SCENARIOS:
        if name != "running":
            golden(f"report_{name}", ok("--db", db(name)))


def case_report_of_a_running_session():
    text = ok("--db", db("running"))
    assert "still running, now in epoch 0, step 17, forward of ResNet" in text
    assert "3 spans are open now" in text and "complete so far" in text and " ago" in text


def case_report_json():
    r = json.loads(ok("--db", db("train"), "--json"))
    assert r["session"]["argv"] == ["python", "train.py", "--epochs", "3"] and r["data"]["complete"] is True
    t = r["training"]
    assert (t["steps"], t["epochs"], t["unit"]) == (60, 3, "step")
    assert sum(t["phases_ns"].values()) == t["step_ns"] == sum(e["step_ns"] for e in r["epochs"])
    assert t["slowest_step"]["index"] == 33 and t["slowest_step"]["slow_phase"] == "data_load"
    durations = sorted(s["dur_ns"] for s in rows("train", "steps"))
    assert t["median_ns"] == durations[(len(durations) - 1) // 2] == t["median_step"]["dur_ns"]
    for epoch in [e for e in r["epochs"] if e["kind"] == "epoch"]:
        mine = sorted(s["dur_ns"] for s in rows("train", "steps") if s["epoch"] == epoch["index"])
        assert epoch["median_ns"] == mine[(len(mine) - 1) // 2]
    bad = next(m for m in r["marks"] if m["name"] == "loss")["first_not_finite"]
    assert (bad["value"], bad["step"], bad["epoch"], bad["in_step"], bad["count"]) == ("NaN", 50, 2, True, 10)
    run_ = r["run"]
    assert run_["before_ns"] + run_["steps_ns"] + run_["eval_ns"] + run_["between_ns"] + run_["after_ns"] == run_["dur_ns"]
    r = json.loads(ok("--db", db("killed"), "--format", "jsonl"))
    assert r["ended"] == "killed by SIGKILL while in epoch 0, step 17, forward of ResNet"
    assert [o["kind"] for o in r["open"]] == ["epoch", "step", "forward"] and r["data"]["unfinished"] == 3
    r = json.loads(ok("--db", db("lossy"), "--json"))
    assert r["data"] == {"complete": False, "lost": 15, "dropped": {"spans_ring_full": 12, "marks_refused": 3}, "unfinished": 0}
    assert json.loads(ok("--db", db("empty"), "--json")) == {"session": None}


def case_report_chooses_the_lowest_rank_and_takes_others():
    assert "rank 0 of 2" in ok("--db", db("ranks"))
    assert "rank 1 of 2" in ok("--db", db("ranks"), "--rank", 1)
    assert "rank 1 of 2" in ok("--session", "1000000000000001", "--db", db("ranks"))
    assert len(json.loads(ok("--db", db("ranks"), "--json"))["ranks"]) == 2


def case_checks():
    assert run("--db", db("train"), "--check", "complete,finished")[0] == 0
    for name, check in (("train", "finite"), ("lossy", "complete"), ("lossy", "finished"), ("killed", "finished"),
                        ("empty", "complete")):
        rc, _, err = run("report", "--check", check, "--db", db(name))
        assert rc == 3 and err.startswith("cirron-query: ") and "not hold" in err, (name, check, rc, err)


def case_trees():
    for name in "train killed scopes names".split():
        golden(f"tree_{name}", ok("tree", "--db", db(name)))
    golden("tree_depth", ok("tree", "--db", db("train"), "--depth", 1))
    assert ok("tree", "--all", "--db", db("train")).count("\n") == 337 + 1
    assert ok("tree", "--last", 2, "--db", db("ranks")).count("cirron.session") == 2


def case_tree_of_spans_without_parents():
    rc, out, err = run("tree", "--db", db("loop"))
    assert rc == 0 and "lost" in out and "2 spans are not shown" in err


def case_tree_machine_formats():
    tree = json.loads(ok("tree", "--json", "--db", db("train")))
    count = lambda spans: sum(1 + count(s["children"]) for s in spans)
    assert len(tree) == 1 and count(tree[0]["spans"]) == 337
    flat = rows("train", "tree")
    assert len(flat) == 337 and flat[0]["depth"] == 0 and flat[1]["depth"] == 1
    assert max(r["depth"] for r in rows("train", "tree", "--depth", "1")) == 1
    assert json.loads(ok("tree", "--json", "--db", db("empty"))) == []


def case_tables():
    golden("sessions", ok("sessions", "--db", db("ranks")))
    golden("steps", ok("steps", "--slowest", "--limit", 3, "--db", db("train")))
    golden("spans_names", ok("spans", "--db", db("names")))
    golden("marks_scopes", ok("marks", "--db", db("scopes")))
    golden("snapshots", ok("snapshots", "--db", db("train")))
    golden("marks_names_csv", ok("marks", "--format", "csv", "--db", db("names")))


def case_fields():
    for name in SCENARIOS:
        for command, fields in (("spans", SPAN), ("marks", MARK), ("snapshots", SNAPSHOT), ("sessions", SESSION)):
            for row in rows(name, command):
                lacking = set(fields) - set(row)
                assert not lacking, (name, command, lacking)


def case_span_rows():
    spans, marks = rows("train", "spans"), rows("train", "marks")
    by_id = {s["id"]: s for s in spans}
    assert len(by_id) == len(spans) == 337
    assert all(re.fullmatch("[0-9a-f]{32}", i) for i in by_id)
    root, = [s for s in spans if s["name"] == "cirron.session"]
    assert root["parent_id"] is None and all(s["parent_id"] in by_id for s in spans if s is not root)
    assert all(type(s["start_ns"]) is type(s["end_ns"]) is int and s["error"] is False for s in spans)
    assert {m["id"]: m["span_id"] for m in marks} == {i: s["id"] for s in spans for i in s["mark_ids"]}
    assert all(s["attrs"] == {"mode": "train", "module": "ResNet"} for s in spans if s["name"] == "forward")
    unfinished = [s for s in rows("killed", "spans") if s["state"] == "unfinished"]
    assert len(unfinished) == 4 and all(s["end_ns"] is None for s in unfinished)
    work = rows("scopes", "spans", "--name", "work")
    assert len(work) == 100 and work[3]["attrs"] == {"tag": "a b", "n": [1, 2]} and work[4]["attrs"] == {}
    assert work[70]["error"] is True and work[70]["attrs"] == {"exception": "ValueError"}


def case_span_choices():
    assert {s["kind"] for s in rows("train", "spans", "--kind", "step")} == {"step"}
    slow = rows("ranks", "spans", "--kind", "step", "--slowest", "--limit", "5")
    assert [s["dur_ns"] for s in slow] == sorted((s["dur_ns"] for s in rows("ranks", "steps")), reverse=True)[:5]
    mine = rows("ranks", "spans", "--rank", "1", "--slowest", "--limit", "2")
    assert len(mine) == 2 and {s["rank"] for s in mine} == {1}
    assert len(rows("train", "spans", "--limit", "7")) == 7
    rc, out, err = run("spans", "--name", "no such", "--db", db("train"), "--format", "jsonl")
    assert (rc, out) == (0, "") and "no such" in err


def case_mark_values():
    got = {m["name"]: (m["value_type"], m["value"], m["kind"]) for m in rows("scopes", "marks")}
    assert got == {"flag": ("bool", True, "point"), "note": ("string", "two words", "point"),
                   "count": ("int", -2 ** 63, "summary"), "inf": ("float", "-Infinity", "point")}
    assert [m["value"] for m in rows("train", "marks", "--name", "loss")][-1] == "NaN"


def case_hostile_names():
    want = ["", "two\nlines", "\x1b[31mred\x1b[0m", "zero\0byte", "tab\tquote\"comma,back\\slash", "\u202eright to left", "ü漢😀",
            "bad \ufffd\ufffd", "\x9b31mC1", "x" * 3000]
    assert [m["name"] for m in rows("names", "marks")] == want == [m["value"] for m in rows("names", "marks")]
    assert [s["name"] for s in rows("names", "spans") if s["kind"] == "user"] == want
    for args in ([], ["tree"], ["spans"], ["marks"], ["sessions"], ["marks", "--json"], ["spans", "--format", "csv"], ["tree", "--json"],
                 ["--json"], ["sql", "SELECT text FROM names"], ["sql", "SELECT 1 AS '\x1b[2J'"]):
        for locale in ("C.UTF-8", "C"):
            out = ok(*args, "--db", db("names"), env={"LC_ALL": locale})
            bad = [c for c in out if (ord(c) < 32 and c != "\n") or 0x7f <= ord(c) < 0xa0 or c == "\u202e"]
            assert not bad, (args, bad[:3])
            if locale == "C" and args != ["spans", "--format", "csv"] and "--json" not in args:
                assert out.isascii(), (args, [c for c in out if not c.isascii()][:3])
    table = list(csv.reader(io.StringIO(ok("marks", "--format", "csv", "--db", db("names")))))
    assert len(table) == 11 and {len(r) for r in table} == {9}


def case_bad_stores():
    with contextlib.closing(sqlite3.connect(WORK / "other.db")) as other:
        other.execute("CREATE TABLE t(x)")
    for name, statement in (("newer", "PRAGMA user_version=99"), ("older", "PRAGMA user_version=0"), ("foreign", "PRAGMA application_id=7")):
        shutil.copy(db("train"), WORK / f"{name}.db")
        with contextlib.closing(sqlite3.connect(WORK / f"{name}.db")) as store:
            store.execute(statement)
    (WORK / "zero.db").write_bytes(b"")
    (WORK / "text.db").write_text("hello\n" * 100)
    (WORK / "short.db").write_bytes(db("train").read_bytes()[:3000])
    (WORK / "folder.db").mkdir()
    for name, part in (("absent", "no such store"), ("other", "not a cirron store"), ("newer", "schema 99"), ("older", "schema"),
                       ("foreign", "not a cirron store"), ("zero", "empty"), ("text", "not a store"), ("short", "short.db"),
                       ("folder", "a folder")):
        refused(1, part, "--db", db(name))
        refused(1, f"{name}.db", "spans", "--format", "jsonl", "--db", db(name))
    refused(1, "CIRRON_DB", cwd="/")
    refused(1, "absent.db", env={"CIRRON_DB": str(db("absent"))})


def case_damaged_pages_end_with_a_line():
    data = bytearray(db("train").read_bytes())
    for where in range(4096, len(data), 4096):
        data[where:where + 512] = b"\xa5" * 512
    (WORK / "damaged.db").write_bytes(data)
    for args in ([], ["spans", "--format", "jsonl"], ["marks"], ["tree"], ["steps"]):
        rc, _, err = run(*args, "--db", db("damaged"))
        assert rc == 1 and err.startswith("cirron-query: ") and err.count("\n") == 1, (args, rc, err)


def case_store_is_found():
    (WORK / "job/.cirron").mkdir(parents=True)
    shutil.copy(db("train"), WORK / "job/.cirron/traces.db")
    assert "337" in ok("sessions", cwd=WORK / "job")
    assert "337" not in ok("sessions", cwd=WORK / "job", env={"CIRRON_DB": str(db("killed"))})
    assert "337" in ok("sessions", "--db", db("train"), env={"CIRRON_DB": str(db("killed"))})


def case_unreadable_store():
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        raise Skip("root reads everything, and there is no setpriv")
    shutil.copy(db("train"), WORK / "shut.db")
    (WORK / "shut.db").chmod(0)
    WORK.chmod(0o755)
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    if subprocess.run([*user, QUERY, "--version"], capture_output=True).returncode:
        raise Skip("an ordinary user cannot run the program where it lies")
    done = subprocess.run([*user, QUERY, "--db", str(db("shut"))], capture_output=True, text=True, env=ENV)
    assert done.returncode == 1 and "Permission denied" in done.stderr and done.stderr.count("\n") == 1, done


def case_read_only_file_system():
    script = f'mount -t tmpfs none "$0" && cp "$1" "$0/s.db" && mount -o remount,ro "$0" && exec {QUERY} --db "$0/s.db" sessions'
    folder = WORK / "ro"
    folder.mkdir()
    for flags in ("-m", "-rm"):
        if subprocess.run(["unshare", flags, "sh", "-c", 'mount -t tmpfs none "$0"', str(folder)], capture_output=True).returncode == 0:
            done = subprocess.run(["unshare", flags, "sh", "-c", script, str(folder), str(db("train"))], capture_output=True, text=True,
                                  env=ENV)
            assert done.returncode == 0 and "337" in done.stdout and done.stderr == "", done
            return
    raise Skip("no mount namespace")


def case_while_a_writer_writes():
    shutil.copy(db("train"), WORK / "live.db")
    with contextlib.closing(sqlite3.connect(WORK / "live.db", isolation_level=None)) as writer:
        assert writer.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE sessions SET marks = 64")
        assert rows("live", "sessions")[0]["marks"] == 63
        writer.execute("COMMIT")
        assert rows("live", "sessions")[0]["marks"] == 64
        assert "before" not in ok("sql", "SELECT * FROM marks", "--db", db("live"))
    before = (WORK / "live.db").read_bytes()
    ok("--db", db("live"))
    assert before == (WORK / "live.db").read_bytes()


def case_stats():
    def by_name(*args, name="train"):
        return {x["name"]: x for x in rows(name, "stats", *args)}
    exact, fast = by_name(), by_name("--fast")
    spans = [x for x in rows("train", "spans") if x["end_ns"] is not None]
    assert {x["name"] for x in spans} == set(exact) == set(fast)
    for name, s in exact.items():
        lengths = sorted(x["end_ns"] - x["start_ns"] for x in spans if x["name"] == name)
        n = len(lengths)
        rank = lambda percent: lengths[max(1, -(-percent * n // 100)) - 1]
        want = [n, sum(lengths), sum(lengths) // n, rank(50), rank(90), rank(99), lengths[-1]]
        assert [s[k] for k in "count total_ns mean_ns p50_ns p90_ns p99_ns max_ns".split()] == want, (name, s, want)
        f = fast[name]
        assert all(f[k] == s[k] for k in "count total_ns self_ns mean_ns max_ns".split()), (f, s)
        assert all(abs(f[k] - s[k]) <= s[k] / 8 for k in ("p50_ns", "p90_ns", "p99_ns")), (f, s)
    assert list(by_name("--name", "step")) == ["step"] and set(by_name("--kind", "forward")) == {"forward"}
    assert by_name("--name", "nothing of this name") == {} == by_name("--fast", "--kind", "fetch")
    assert by_name("--rank", "0", name="ranks") != by_name("--rank", "1", name="ranks")
    names = by_name(name="names")
    assert "" in names and "zero\0byte" in names
    assert rows("empty", "stats") == [] and "P99" in ok("stats", "--db", db("train"))
    assert "open" not in by_name(name="killed") and by_name(name="killed")["step"]["count"] == 17


EXTENSION = pathlib.Path(QUERY).with_name("libcirron_sqlite.so")


def case_extension_in_the_sqlite_shell():
    if not shutil.which("sqlite3") or "san" in EXTENSION.parts:
        raise Skip("no sqlite3 shell" if not shutil.which("sqlite3") else "a sanitized library needs a sanitized program")
    query = "SELECT session_id, id, name, dur_ns, attrs FROM spans WHERE dur_ns > 20000000 ORDER BY id"
    for name in ("train", "killed", "scopes"):
        done = subprocess.run(["sqlite3", "-json", db(name), f".load {EXTENSION.with_suffix('')}", query], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert json.loads(done.stdout) == json.loads(ok("sql", query, "--json", "--db", db(name)))
    renamed = WORK / "cirron.so"
    shutil.copy(EXTENSION, renamed)
    done = subprocess.run(["sqlite3", db("train"), f".load {renamed}", "SELECT count(*) > 100 FROM spans"], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("1\n", ""), done
    shutil.copy(db("train"), WORK / "damaged_ext.db")
    with contextlib.closing(sqlite3.connect(WORK / "damaged_ext.db")) as c, c:
        c.execute("UPDATE blocks SET data = x'c101'")
    done = subprocess.run(["sqlite3", WORK / "damaged_ext.db", f".load {renamed}", "SELECT * FROM spans"], capture_output=True, text=True)
    assert done.returncode and "damaged" in done.stderr, done


def case_extension_in_python():
    if "san" in EXTENSION.parts:
        raise Skip("a sanitized library needs a sanitized program")
    code = ("import json, sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.enable_load_extension(True); c.load_extension(sys.argv[2]);"
            "print(json.dumps(c.execute('SELECT name, count(*) FROM spans GROUP BY name ORDER BY name').fetchall()))")
    can = "import sqlite3; sqlite3.connect(':memory:').enable_load_extension"
    pythons = [p for p in (sys.executable, "/usr/bin/python3") if os.access(p, os.X_OK) and not subprocess.run(
        [p, "-c", can], stderr=subprocess.DEVNULL).returncode]
    if not pythons:
        raise Skip("no Python here whose sqlite3 loads extensions")
    got = json.loads(subprocess.run([pythons[0], "-c", code, db("train"), EXTENSION], check=True, capture_output=True).stdout)
    want = json.loads(ok("sql", "SELECT name, count(*) AS n FROM spans GROUP BY name ORDER BY name", "--json", "--db", db("train")))
    assert got == [[x["name"], x["n"]] for x in want]


def case_clear():
    path = WORK / "clear.db"
    shutil.copy(db("ranks"), path)
    refused(2, "2 sessions with", "clear", "--db", path)
    refused(2, "1 session with", "clear", "--db", path, "--keep", "1")
    for bad in ("yesterday", "2026-13-01", "-3d", "7", "7dd"):
        refused(2, "--before", "clear", "--before", bad, "--db", path)
    assert ok("clear", "--yes", "--keep", "2", "--db", path) == "" and len(rows("clear", "sessions")) == 2
    assert ok("clear", "--yes", "--before", "2001-09-01", "--db", path) == ""
    first, second = (x["id"] for x in rows("clear", "sessions"))
    done = json.loads(ok("clear", "--yes", "--session", first, "--format", "jsonl", "--db", path))
    assert done["sessions"] == 1 and done["spans"] > 100 and done["bytes"] > 0, done
    assert [x["id"] for x in rows("clear", "sessions")] == [second]
    assert {x["session_id"] for x in rows("clear", "spans")} == {second}
    ok("clear", "--yes", "--before", "1h", "--db", path)
    with contextlib.closing(sqlite3.connect(path)) as c:
        for table, in c.execute("SELECT m.name FROM sqlite_schema m JOIN pragma_table_info(m.name) t WHERE t.name = 'sid'").fetchall():
            assert c.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
        assert c.execute("SELECT count(*) FROM blocks").fetchone() == (0,)
        assert c.execute("PRAGMA freelist_count").fetchone() == (0,)
        c.execute("INSERT INTO sessions(id, prefix, state, pid, start_ns) VALUES('erased 9', '1', 'erased', 1, 1)")
        c.commit()
    assert rows("clear", "sessions") == [] and rows("clear", "spans") == [] and rows("clear", "marks") == []
    shutil.copy(db("running"), path)
    rc, out, err = run("clear", "--yes", "--db", path)
    assert (rc, out) == (0, "") and "running sessions, which stay" in err
    refused(1, "is running", "clear", "--yes", "--session", "last", "--db", path)


def case_usage():
    for part, *args in (("no command 'foo'", "foo"), ("--foo", "--foo"), ("table, json, jsonl or csv", "--format", "xml"),
                        ("'-1'", "--rank", "-1"), ("'x'", "--limit", "x"), ("first digits", "spans", "--session", "zz"),
                        ("--depth has no meaning for spans", "spans", "--depth", "1"), ("sql needs QUERY", "sql"),
                        ("too much", "spans", "x"), ("--check", "--check", "x"), ("--kind", "spans", "--kind", "q"),
                        ("no form csv", "report", "--format", "csv")):
        refused(2, part, *args, "--db", db("train"))
    refused(2, "needs a value", "--db")
    refused(1, "not in this store", "--session", "0123", "--db", db("train"))
    refused(1, "2 sessions", "--session", "1", "--db", db("ranks"))
    refused(1, "rank 7", "--rank", "7", "--db", db("ranks"))
    assert ok("--version").startswith("cirron-query ")
    assert "Commands:" in ok("--help") and "--kind" in ok("spans", "--help") and "--depth" not in ok("spans", "--help")
    assert rows("ranks", "sessions", "--session", "last")[0]["rank"] == 0
    assert ok("--format", "jsonl", "--db", db("train"), "sessions") == ok("sessions", "--db", db("train"), "--format=jsonl")


def case_sql():
    sql = lambda query, *more: ok("sql", query, "--db", db("train"), *more)
    assert json.loads(sql("SELECT count(*) AS n FROM spans", "--json")) == [{"n": 337}]
    assert sql("SELECT 'a,b' AS a, NULL AS b, 1.5 AS c, x'00ff' AS d", "--format", "csv") == 'a,b,c,d\n"a,b",,1.5,00ff\n'
    assert json.loads(sql("SELECT 9e999 AS inf, 1e0 AS one, 'q\"' AS q", "--format", "jsonl")) == {"inf": "Infinity", "one": 1.0, "q": 'q"'}
    before = db("train").read_bytes()
    for query, part in (("DELETE FROM steps", "only read"), ("ATTACH 'x.db' AS x", "only read"), ("PRAGMA journal_mode=DELETE", "only read"),
                        ("CREATE TEMP TABLE t(x)", "only read"), ("SELECT load_extension('x')", ""), ("SELEC", "syntax"), ("SELECT nothing", "nothing"),
                        ("VACUUM INTO 'x.db'", "only read")):
        refused(1, part, "sql", query, "--db", db("train"))
    refused(2, "one statement", "sql", "SELECT 1; SELECT 2", "--db", db("train"))
    refused(2, "one statement", "sql", " -- nothing", "--db", db("train"))
    assert before == db("train").read_bytes() and not (WORK / "x.db").exists()


def case_closed_pipe_ends_quietly():
    for args in (["spans", "--format", "jsonl"], ["marks", "--json"], ["steps"], ["tree", "--all"], []):
        proc = subprocess.Popen([QUERY, *args, "--db", str(db("big"))], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV)
        proc.stdout.read(10)
        proc.stdout.close()
        err = proc.stderr.read()
        assert proc.wait(60) == 0 and (err == b"" or b"there are more" in err), (args, proc.returncode, err)


def case_full_disk_is_an_error():
    with open("/dev/full", "wb") as full:
        for args in (["spans", "--format", "jsonl"], [], ["--help"], ["tree"]):
            done = subprocess.run([QUERY, *args, "--db", str(db("train"))], stdout=full, stderr=subprocess.PIPE, env=ENV)
            assert done.returncode == 1 and b"No space left" in done.stderr, (args, done)


def case_colour_and_width_on_a_terminal_only():
    assert "\033[" in on_terminal({}, "--db", str(db("train")))
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\033[" not in on_terminal(env, "--db", str(db("train"))), env
    assert "\033[" not in ok("--db", db("train"), env={"TERM": "xterm"})
    lines = on_terminal({"NO_COLOR": "1"}, "spans", "--db", str(db("names"))).split("\r\n")
    assert max(map(len, lines)) <= 90, max(lines, key=len)
    assert max(map(len, ok("spans", "--db", db("names")).split("\n"))) > 100


def case_a_million_spans():
    begin = time.monotonic()
    ok("--db", db("big"))
    report = time.monotonic() - begin
    proc = subprocess.Popen([QUERY, "spans", "--format", "jsonl", "--db", str(db("big"))], stdout=subprocess.PIPE, env=ENV)
    count = sum(1 for _ in proc.stdout)
    _, status, usage = os.wait4(proc.pid, 0)
    proc.returncode = status
    assert status == 0 and count == json.loads(ok("sql", "SELECT sum(spans) AS n FROM sessions", "--json", "--db", db("big")))[0]["n"]
    assert usage.ru_maxrss < 100 * 1024, f"{usage.ru_maxrss} KiB"
    assert report < 3, f"report took {report:.2f} s"  # 0.15 s of CPU; the machine may be busy


def main():
    for name in SCENARIOS:
        subprocess.run([MAKE, db(name), name], check=True)
    subprocess.run([MAKE, db("big"), "big", "300000"], check=True)
    only = re.compile(sys.argv[sys.argv.index("-k") + 1] if "-k" in sys.argv else "")
    tally = {"passed": 0, "failed": 0, "skipped": 0}
    for name, test in [(n, f) for n, f in {**globals(), **vars(snapshot_cases)}.items() if n.startswith("case_") and only.search(n)]:
        try:
            test()
            tally["passed"] += 1
        except Skip as why:
            tally["skipped"] += 1
            print(f"skip {name}: {why}")
        except Exception as error:
            tally["failed"] += 1
            import traceback
            where = traceback.extract_tb(error.__traceback__)[1]
            print(f"FAIL {name}, line {where.lineno}: {where.line}: {type(error).__name__} {error}")
    print(", ".join(f"{n} {what}" for what, n in tally.items()))
    return bool(tally["failed"])


if __name__ == "__main__":
    sys.exit(main())
