"""Snapshots of tensors: tables, records, what differs, what was bad first, and asking for one."""
import contextlib, json, math, pathlib, shutil, socket, sqlite3, subprocess, threading

import tensors
from common import ENV, MAKE, QUERY, WORK, db, golden, ok, on_terminal, refused, rows, run

STATS = "mean std min max norm histogram count nan inf neg_inf zero magnitude".split()


def made(name, scenario="tensors", fill=tensors.fill_training):
    if not db(name).exists():
        subprocess.run([MAKE, db(name), scenario], check=True)
        fill(db(name))
    return db(name)


def training():
    return made("tensors")


def shards():
    return made("shards", "shards", tensors.fill_shards)


def case_snapshot_tables():
    golden("snapshots_tensors", ok("snapshots", "--db", training()))
    golden("snapshots_ascii", ok("snapshots", "--kind", "gradient", "--db", training(), env={"LC_ALL": "C"}))
    golden("snapshots_one", ok("snapshots", "head.weight", "--db", training()))
    golden("snapshots_pattern", ok("snapshots", "*.grad", "--db", training()))
    golden("snapshots_shards", ok("snapshots", "*", "--db", shards()))
    assert "rank 1" in ok("snapshots", "--rank", 1, "--db", shards()) and "rank 0 (of 2" in ok("snapshots", "--db", shards())
    assert ok("snapshots", "--epoch", 1, "--db", training()).count("\n") == 2 + 1 + 8
    rc, out, err = run("snapshots", "--limit", 3, "--db", training())
    assert (rc, out.count("\n"), err) == (0, 2 + 1 + 3, "")
    for args in (["no such"], ["--epoch", "9"], ["head*", "--epoch", "9"], ["--session", "abc", "x*"]):
        rc, out, err = run("snapshots", *args, "--db", training())
        assert (rc, out, err) == (0, "", "cirron-query: there are no snapshots that fit\n"), (args, rc, out, err)


def case_names_can_be_read_on_a_narrow_terminal():
    for args, name in ((["snapshots"], "head.weight.grad"), (["snapshots", "*"], "head.weight.grad"), (["diff-tensors", "0", "2"], "head.weight.grad")):
        for width in (80, 100, 200):
            lines = on_terminal({"NO_COLOR": "1"}, *args, "--db", str(training()), width=width).split("\r\n")
            assert any(line.startswith(name + " ") for line in lines), (args, width, lines)
            assert max(len(line) for line in lines if not line.startswith("Session")) <= width, (args, width, max(lines, key=len))
    assert "\033[1m" in on_terminal({}, "snapshots", "--db", str(training()))


def case_snapshot_records():
    training()
    got = rows("tensors", "snapshots")
    assert len(got) == 24 and [r["ts_ns"] for r in got] == sorted(r["ts_ns"] for r in got)
    spans = {s["id"]: s for s in rows("tensors", "spans", "--kind", "epoch")}
    assert all(spans[r["span_id"]]["index"] == r["epoch"] for r in got)
    for epoch in range(3):
        want = {t[0]: t for t in tensors.model(epoch, 2)}
        mine = [r for r in got if r["epoch"] == epoch]
        assert [r["tensor_name"] for r in mine] == sorted(want, key=lambda n: want[n][1] != "gradient")
        for r in mine:
            _, kind, shape, values, *_ = want[r["tensor_name"]]
            assert (r["kind"], r["shape"], r["model"]) == (kind, shape, "net")
            if isinstance(values, str):
                assert r["stats"] is None and r["attrs"] == {"reason": values}
                continue
            s, w = r["stats"], tensors.stats(values)
            assert list(s) == STATS
            assert [s[k] for k in ("mean", "std", "min", "max", "norm")] == [w[k] for k in ("mean", "std", "min", "max", "norm")]
            assert [s[k] for k in ("count", "nan", "inf", "neg_inf", "zero")] == [w[k] for k in ("count", "nans", "infs", "neg_infs", "zeros")]
            assert s["magnitude"] == {"exponents": list(range(-48, 16, 2)), "counts": json.loads(w["magnitude"])}
            if w["min"] is None:
                assert s["histogram"] is None
                continue
            low, high = w["min"], w["min"] + 1 if w["min"] == w["max"] else w["max"]
            assert s["histogram"]["counts"] == json.loads(w["histogram"]) and len(s["histogram"]["bins"]) == 17
            assert all(math.isclose(b, low + (high - low) * i / 16, rel_tol=1e-12, abs_tol=1e-15) for i, b in enumerate(s["histogram"]["bins"]))
            assert (s["histogram"]["bins"][0], s["histogram"]["bins"][16]) == (low, high)
    torn, = [r for r in got if r["torn"]]
    assert (torn["tensor_name"], torn["mode"], torn["blob_uri"]) == ("head.weight", "full", "snapshots/s/weights.safetensors")
    assert {r["kind"] for r in rows("tensors", "snapshots", "--kind", "gradient")} == {"gradient"}
    assert len(rows("tensors", "snapshots", "--epoch", 1)) == 8 and len(rows("tensors", "snapshots", "head.*", "--limit", 5)) == 5
    assert {r["epoch"] for r in rows("tensors", "snapshots", "steps")} == {0, 1, 2}
    shards()
    assert len(rows("shards", "snapshots")) == 8 and len(rows("shards", "snapshots", "--rank", 0)) == 4
    several = ok("snapshots", "--format", "jsonl", "--db", training(), "--db", shards())
    assert several.count("\n") == 32


def case_snapshots_over_stores():
    for rank in (0, 1):
        path = WORK / f"host{rank}.db"
        shutil.copy(shards(), path)
        with contextlib.closing(sqlite3.connect(path)) as c, c:
            c.execute("DELETE FROM sessions WHERE rank <> ?", (rank,))
    both = ["--db", WORK / "host0.db", "--db", WORK / "host1.db"]
    assert ok("snapshots", "*", *both) == ok("snapshots", "*", "--db", shards())
    ok("diff-tensors", "1000000000000002:0", "1000000000000001:0", *both)


def case_diff_tensors():
    golden("diff_tensors", ok("diff-tensors", 0, "last", "--db", training()))
    got = {r["tensor_name"]: r for r in rows("tensors", "diff-tensors", 0, 1)}
    assert [got[n]["what"] for n in ("head.weight", "conv1.weight", "bn.bias", "odd\x1b[31m\n")] == ["changed", "unchanged", "unchanged", "not_read"]
    a, b = (tensors.stats(tensors.model(e, 9)[2][3]) for e in (0, 1))
    head = got["head.weight"]
    assert head["norm_a"] == a["norm"] and math.isclose(head["norm_change"], b["norm"] / a["norm"] - 1)
    x, y = json.loads(a["magnitude"]), json.loads(b["magnitude"])
    assert math.isclose(head["distance"], sum(abs(i - j) for i, j in zip(x, y)) / 160)
    assert got["conv1.weight"]["change"] == got["conv1.weight"]["distance"] == 0
    changed = [r["change"] for r in rows("tensors", "diff-tensors", 0, 1) if r["what"] == "changed"]
    assert changed == sorted(changed, reverse=True) and len(changed) == 3
    assert [r["what"] for r in rows("tensors", "diff-tensors", 2, 0)][:2] == ["became_finite"] * 2
    assert {r["what"] for r in rows("tensors", "diff-tensors", 1, 1)} == {"unchanged", "not_read"}
    assert len(rows("tensors", "diff-tensors", "first", 2, "--kind", "gradient")) == 2
    shards()
    split, = [r for r in rows("shards", "diff-tensors", "1000000000000001:0", "1000000000000002:last") if r["tensor_name"] == "split"]
    assert (split["mean_a"], split["mean_b"]) == (3.75, -7.5)
    mixed = ok("diff-tensors", "abcdef:0", "1000000000000001:0", "--format", "jsonl", "--db", training(), "--db", shards())
    assert {json.loads(line)["what"] for line in mixed.splitlines()} == {"only_a", "only_b"}
    for status, part, *args in ((2, "'x'", "x", "1"), (2, "zz", "zz:1", "1"), (1, "epoch 7", 0, 7), (1, "step 5", 0, "step=5"), (2, "needs A B", 0),
                                (1, "not in this store", "0123:1", 0), (2, "weight or gradient", 0, 1, "--kind", "step")):
        refused(status, part, "diff-tensors", *args, "--db", training())
    refused(1, "no snapshots", "diff-tensors", 0, 1, "--db", db("train"))


def first_bad(path, *args):
    rc, out, err = run("first-bad", "--json", "--db", path, *args)
    assert err == "" and rc in (0, 3), err
    got = json.loads(out)
    assert got["bad"] == (rc == 3)
    return got


def case_first_bad():
    golden("first_bad", run("first-bad", "--db", training())[1])
    got = first_bad(training())
    assert got["first"] == "mark" and [m["name"] for m in got["marks"]] == ["loss"]
    mark = got["marks"][0]
    assert (mark["value"], mark["step"], mark["epoch"], mark["count"]) == ("NaN", 50, 2, 10)
    assert (mark["last_good"]["value"], mark["last_good"]["step"], mark["last_good"]["epoch"]) == (2.5 - 49 / 32, 49, 2)
    snapshot = got["snapshot"]
    assert [t["tensor_name"] for t in snapshot["tensors"]] == ["head.weight.grad", "head.bias.grad"]
    assert (snapshot["epoch"], snapshot["began_after_step"], snapshot["began_by_step"]) == (2, 39, 59)
    assert [snapshot["tensors"][0][k] for k in ("nan", "inf", "neg_inf", "count", "shape")] == [10, 1, 1, 80, [10, 8]]
    assert got["last_good_snapshot"]["epoch"] == 1
    want = tensors.stats(tensors.model(1, 2)[6][3])["norm"]
    assert snapshot["tensors"][0]["last_good_norm"] == want

    early = made("early", fill=lambda path: tensors.fill_training(path, bad=0))
    got = first_bad(early)
    assert got["first"] == "snapshot" and got["snapshot"]["epoch"] == 0 and got["last_good_snapshot"] is None
    text = run("first-bad", "--db", early)[1]
    assert "it is the first snapshot" in text and text.index("head.weight.grad and 1 more") < text.index("loss = NaN")
    report = ok("--db", early)
    assert report.index("First bad head.weight.grad") < report.index("loss = NaN")


def case_first_bad_of_what_is_well():
    good = made("well", "tensors", lambda path: tensors.fill_training(path, bad=9))
    with contextlib.closing(sqlite3.connect(good)) as c, c:
        c.execute("UPDATE marks SET value = 1.5 WHERE value_type = 'float'")
    got = first_bad(good)
    assert (got["bad"], got["first"], got["marks"], got["snapshot"]) == (False, None, [], None)
    rc, out, _ = run("first-bad", "--db", good)
    assert rc == 0 and "none: 63 numbers marked and 3 snapshots with 8 tensors, all finite" in out and "1 of 8 tensors in that snapshot: not read" in out
    assert run("--check", "finite", "--db", good)[0] == 0
    rc, _, err = run("--check", "finite", "--db", training())
    assert rc == 3 and "head.weight.grad and 1 more of 8 tensors" in err
    rc, out, _ = run("first-bad", "--db", db("scopes"))
    assert rc == 3 and "inf = -Infinity" in out and "there was no good one" in out
    rc, out, _ = run("first-bad", "--db", db("evalonly"))
    assert rc == 0 and "nothing to judge by" in out and "the loss: no number was marked" in out and "no snapshots (CIRRON_SNAPSHOTS)" in out
    assert "still running" in run("first-bad", "--db", db("running"))[1]
    assert first_bad(shards())["ranks"] and first_bad(shards(), "--rank", "1")["ranks"] == []
    refused(2, "no form csv", "first-bad", "--format", "csv", "--db", training())
    refused(1, "there is no session", "first-bad", "--db", db("empty"))


def case_report_tells_snapshots():
    text = ok("--db", training())
    golden("report_snapshots", text[text.index("\nSnapshots"):])
    s = json.loads(ok("--json", "--db", training()))["snapshots"]
    assert (s["passes"], s["records"], s["tensors"], s["torn"], s["own"], s["with_blobs"], s["blob_errors"], s["last_blob_errno"]) == (3, 24, 8, 1, 1, 1, 1, 28)
    assert s["wait_ns"] == 6_000_000 and (s["first_not_finite"]["tensors"], s["first_not_finite"]["epoch"]) == (2, 2)
    assert json.loads(ok("--json", "--db", db("train")))["snapshots"] is None


def case_a_store_of_schema_1():
    old = WORK / "v1.db"
    with contextlib.closing(sqlite3.connect(old)) as c, c:
        c.executescript(pathlib.Path("tests/unit/golden/store_v1.sql").read_text())
        assert c.execute("PRAGMA user_version").fetchone() == (1,)
    assert rows("v1", "snapshots") == [] and "no snapshots" in run("snapshots", "--db", old)[2]
    assert "a version that took no snapshots" in run("first-bad", "--db", old)[1]
    refused(1, "no snapshots", "diff-tensors", 0, 1, "--db", old)
    assert json.loads(ok("--json", "--db", old))["snapshots"] is None and ok("sessions", "--db", old)
    several = ok("snapshots", "--format", "jsonl", "--db", old, "--db", shards())
    assert several.count("\n") == 8
    ok("clear", "--yes", "--db", old)
    assert rows("v1", "sessions") == []


HOSTILE = [None, "", "text", "[1,2", "{}", "[]", '[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,99999999999999999999]', "[" * 5000, -1, 2 ** 63 - 1, -2 ** 63, 1e308, math.inf,
           -math.inf, b"\xff\x00\xfe", "\x1b[2J\n", "\u202e", "NaN"]


def case_hostile_snapshots():
    """Nothing that a table can hold makes a command crash, hang or print what moves a terminal."""
    path = WORK / "hostile.db"
    columns = tensors.RECORD[2:]
    for at, column in enumerate(columns + [f"pass.{c}" for c in tensors.PASS[1:]]):
        shutil.copy(training(), path)
        with contextlib.closing(sqlite3.connect(path)) as c, c:
            for i, value in enumerate(HOSTILE):
                table, name = ("snapshot_passes", column[5:]) if column.startswith("pass.") else ("snapshots", column)
                key = "pass" if table == "snapshot_passes" else "snapshot"
                with contextlib.suppress(sqlite3.IntegrityError):
                    c.execute(f"UPDATE {table} SET {name} = ? WHERE {key} = (SELECT {key} FROM {table} ORDER BY {key} LIMIT 1 OFFSET ?)",
                              (value, (i + at) % 3 if table == "snapshot_passes" else i))
        for args in (["snapshots"], ["snapshots", "*"], ["snapshots", "--json"], ["snapshots", "--format", "csv"], ["diff-tensors", "first", "last"],
                     ["first-bad"], ["first-bad", "--json"], ["report"], ["report", "--json"]):
            rc, out, err = run(*args, "--db", path)
            assert rc in (0, 3) or (rc == 1 and err.startswith("cirron-query: ")), (column, args, rc, err)
            bad = [c for c in out + err if (ord(c) < 32 and c != "\n") or 0x7f <= ord(c) < 0xa0 or c == "\u202e"]
            assert not bad, (column, args, bad[:3])
            if "--json" in args:
                json.loads(out, parse_constant=lambda c: 1 / 0)
    shutil.copy(training(), path)
    with contextlib.closing(sqlite3.connect(path)) as c, c:
        c.execute("DELETE FROM snapshot_passes WHERE pass = 2")
        c.execute("DROP INDEX snapshots_bad")
    assert run("first-bad", "--db", path)[0] == 3 and len(rows("hostile", "snapshots")) == 24
    ok("snapshots", "*", "--db", path)


def case_many_snapshots():
    """A layout that is not small: 40 snapshots of 2,000 tensors."""
    def fill(path):
        stats = tensors.stats([0.5, -0.25, 0.0])
        with tensors.opened(path) as store:
            for number in range(1, 41):
                first = 1_000_000 * number
                store.executemany(
                    f"INSERT INTO snapshots(sid, snapshot, pass, span, tensor_name, model, kind, shape, dtype, mode, {', '.join(tensors.STATS)}, ts_ns, torn, attrs)"
                    f" VALUES(1, ?, ?, 2, ?, 'net', ?, '[3]', 'float32', 'stats', {', '.join('?' * len(tensors.STATS))}, ?, 0, '{{}}')",
                    ((first + i, number, f"layer{i % 1000}.weight" + ".grad" * (i < 1000), "gradient" if i < 1000 else "weight",
                      *({**stats, "nans": int(number == 40 and i == 1500), "norm": number + i}[k] for k in tensors.STATS), 10 ** 18 + first) for i in range(2000)))
                tensors.insert(store, "snapshot_passes", tensors.PASS, {"sid": 1, "pass": number, "span": 2, "epoch": number - 1, "reason": "epoch",
                               "mode": "stats", "ts_ns": 10 ** 18 + first, "records": 2000, **dict.fromkeys("list_ns read_ns wait_ns torn own blobs".split(), 0)})
    made("many", fill=fill)
    lines = ok("snapshots", "--limit", 4, "--db", db("many")).splitlines()
    assert [line.split()[0] for line in lines[3:]] == ["layer0.weight", "layer0.weight.grad", "layer1.weight", "layer1.weight.grad"]
    assert all(line.split()[4] == "40" for line in lines[3:]) and lines[3].count("█") >= 1
    assert first_bad(db("many"))["snapshot"]["tensors"][0]["tensor_name"] == "layer500.weight"
    plan = rows("many", "sql", "EXPLAIN QUERY PLAN SELECT min(pass) FROM snapshots INDEXED BY snapshots_bad WHERE sid = 1 AND (nans > 0 OR infs > 0 OR neg_infs > 0)")
    assert "snapshots_bad" in plan[0]["detail"], plan
    assert len(rows("many", "diff-tensors", 0, 39)) == 2000
    proc = subprocess.Popen([QUERY, "snapshots", "--format", "jsonl", "--db", db("many")], stdout=subprocess.PIPE, env=ENV)
    assert proc.stdout.read(10) and proc.stdout.close() is None and proc.wait(60) == 0


# --- snapshot now ---

class Collector(threading.Thread):
    """Stands in for one: answers a Command with what it is told, and lets `then` do the rest."""

    def __init__(self, reply, then=None):
        super().__init__(daemon=True)
        self.path, self.reply, self.then, self.asked = WORK / "stand-in.sock", reply, then, []
        self.path.unlink(missing_ok=True)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(self.path))
        self.socket.listen()
        self.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self.socket.accept()
                with peer:
                    size = int.from_bytes(peer.recv(4, socket.MSG_WAITALL), "little")
                    self.asked.append(peer.recv(size, socket.MSG_WAITALL))
                    if self.reply is not None:
                        peer.sendall(self.reply)
                    if self.then:
                        self.then()

    def __enter__(self):
        return {"CIRRON_SOCKET": str(self.path)}

    def __exit__(self, *_):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.join()


def framed(body):
    return len(body).to_bytes(4, "little") + body


def reply(sessions=0, error=0):
    body = (b"\x08" + bytes([sessions]) if sessions else b"") + (b"\x10" + bytes([error]) if error else b"")
    return framed(b"\x62" + bytes([len(body)]) + body)


def case_snapshot_now():
    path = WORK / "now.db"
    shutil.copy(db("running"), path)

    def take():
        with tensors.opened(path) as store:
            number = store.execute("SELECT coalesce(max(pass), 0) + 1 FROM snapshot_passes").fetchone()[0]
            tensors.add_pass(store, 1, number, tensors.model(0, 9), epoch=0, step=16, reason="command", torn=1)

    collector = Collector(reply(sessions=1), take)
    with collector as env:
        got = ok("snapshot", "now", "--db", path, env=env)
        assert "SNAPSHOT" in got and got.splitlines()[1].split()[:5] == ["abcdef01", "-", "1", "0", "16"], got
        one = json.loads(ok("snapshot", "now", "--session", "abcdef", "--format", "jsonl", "--db", path, env=env))
        assert (one["pass"], one["step"], one["records"], one["torn"], one["wait_ns"]) == (2, 16, 8, 1, 2_000_000)
    assert collector.asked == [b"\x4a\x02\x08\x01", b"\x4a\x0b\x08\x01\x11" + bytes.fromhex("8967452301efcdab")]
    assert [r["reason"] for r in rows("now", "sql", "SELECT reason FROM snapshot_passes")] == ["command"] * 2


def case_snapshot_now_in_vain():
    path = WORK / "vain.db"
    shutil.copy(db("running"), path)

    def end():
        with contextlib.closing(sqlite3.connect(path)) as c, c:
            c.execute("UPDATE sessions SET state = 'killed'")

    for status, part, answer, then in ((1, "no such session", reply(error=3), None), (1, "another user", reply(error=1), None), (1, "hung up", None, None),
                                       (1, "refuses: Input/output error", reply(error=5), None), (1, "something else", framed(b"\x1a\x00"), None),
                                       (1, "something else", framed(b"\xff" * 9), None), (1, "something else", b"\xff" * 4, None),
                                       (1, "took no snapshot within 1 s", reply(sessions=1), None), (1, "ended before", reply(sessions=1), end)):
        with Collector(answer, then) as env:
            refused(status, part, "snapshot", "now", "--session", "abcdef", "--timeout", 1, "--db", path, env=env)
    refused(1, "does not run any more", "snapshot", "now", "--session", "abcdef", "--db", path)
    refused(1, "no session runs", "snapshot", "now", "--db", path)
    refused(2, "it has to be now", "snapshot", "later", "--db", path)
    refused(2, "needs now", "snapshot", "--db", path)
    path = db("running")
    refused(1, "no such socket", "snapshot", "now", "--db", path, env={"CIRRON_SOCKET": str(WORK / "none.sock")})
    (WORK / "plain.sock").write_text("")
    refused(1, "plain.sock", "snapshot", "now", "--db", path, env={"CIRRON_SOCKET": str(WORK / "plain.sock")})


def case_snapshot_now_finds_the_private_collector():
    """By the folder that the store lies in, as the agent found it."""
    folder, run_dir = WORK / "private", WORK / "run"
    (folder / ".cirron").mkdir(parents=True)
    (run_dir / "cirron").mkdir(parents=True)
    shutil.copy(db("running"), folder / ".cirron/traces.db")
    h = 0xcbf29ce484222325
    for byte in str(folder.resolve()).encode():
        h = (h ^ byte) * 0x100000001b3 % 2 ** 64
    collector = Collector(reply(error=3))
    try:
        with collector:
            (run_dir / f"cirron/{h:016x}.sock").symlink_to(collector.path)
            refused(1, "no session runs that takes", "snapshot", "now", cwd=folder, env={"XDG_RUNTIME_DIR": str(run_dir)})
    finally:
        shutil.rmtree(run_dir)
    assert len(collector.asked) == 1
