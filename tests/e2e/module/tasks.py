"""Asyncio: each task has a stack of open spans of its own, and begins in the scope in which it was created."""
from common import TORCH, need_agent, need_store, store
from harness import PYTHONS, python_label, test_each

HEAD = r"""
import asyncio, gc, sys, threading, time
import cirron as ci
scope, sleep = ci.scope, asyncio.sleep

def run(main):
    asyncio.run(main())
"""


def run(case, python, body, sessions=1, outlast=()):
    """`outlast`: spans of tasks that go on when the scope that they began in is closed."""
    need_store()
    case.collect()
    r = case.run([python, case.script(HEAD + body)])
    case.equal((r.rc, r.err), (0, ""), "exit status, stderr")
    st = store(case, sessions, faults=False)
    late = [f"{name}: reaches outside its parent" for name in outlast]
    case.equal([f for f in st.faults() if not f.startswith(tuple(late))], [], "faults")
    return st, r


def nesting(st):
    """Each span's name with that of its parent, sorted."""
    return sorted((s["name"], (st.parent(s) or {"name": "?"})["name"]) for s in st.spans)


def check(case, st, expected, **marks):
    case.equal(nesting(st), sorted((a, b or "cirron.session") for a, b in expected), "who lies in whom")
    case.equal({m["name"]: (st.by_id.get(m["span_id"]) or {"name": "?"})["name"] for m in st.marks}, marks, "marks")
    case.equal([s["name"] for s in st.spans if s["end_ns"] is None], [], "unfinished")
    case.equal([x["scope_drop_count"] for x in st.sessions if x.get("scope_drop_count")], [], "left out")


@test_each(PYTHONS, python_label)
def tasks_switch_inside_scopes(case, python):
    st, _ = run(case, python, r"""
async def work(i):
    with scope(f"work{i}"):
        await sleep(0)
        for k in range(2):
            with scope(f"inner{i}"):
                await sleep(0)
                if k:
                    ci.mark(f"m{i}", i)
        await child(i)
        await asyncio.ensure_future(child(10 + i))

async def child(i):
    with scope(f"child{i}"):
        await sleep(0)

async def main():
    ci.mark("before", 0)
    with scope("main"):
        await asyncio.gather(*(work(i) for i in range(3)))
        ci.mark("after", 0)
    with scope("alone"):
        await sleep(0)

with scope("around"):
    run(main)
with scope("plain"):
    pass
""")
    tree = [("around", None), ("plain", None), ("main", "around"), ("alone", "around")]
    for i in range(3):
        tree += [(f"work{i}", "main"), (f"child{i}", f"work{i}"), (f"child{10 + i}", f"work{i}")] + [(f"inner{i}", f"work{i}")] * 2
    check(case, st, tree, before="around", after="main", m0="inner0", m1="inner1", m2="inner2")


@test_each(PYTHONS, python_label)
def created_in_one_scope_run_in_another(case, python):
    """Where a task is created counts, not what its creator does when it runs; and a scope that is closed by then stays the parent."""
    st, _ = run(case, python, r"""
async def leaf(name):
    await sleep(0)
    ci.mark("in " + name, 1)
    with scope(name):
        await sleep(0)

async def main():
    with scope("a"):
        early = asyncio.ensure_future(leaf("of a"))
    with scope("b"):
        await early
    outside = asyncio.ensure_future(leaf("of nothing"))
    with scope("c"):
        await asyncio.gather(outside, leaf("of c"))
        await asyncio.wait_for(leaf("waited for"), 10)
        asyncio.get_event_loop().call_soon(lambda: ci.mark("called", 1))
        await sleep(0)

loop = asyncio.new_event_loop()
with scope("before"):
    first = loop.create_task(leaf("of before"))
bare = loop.create_task(leaf("of the session"))
with scope("during"):
    loop.run_until_complete(first)
    loop.run_until_complete(bare)
    loop.run_until_complete(main())
loop.close()
""", outlast=["of before", "of a"])
    tree = [("before", None), ("during", None), ("of before", "before"), ("of the session", None), ("a", "during"), ("b", "during"), ("c", "during"),
            ("of a", "a"), ("of nothing", "during"), ("of c", "c"), ("waited for", "c")]
    check(case, st, tree, **{"in of before": "before", "in of the session": "cirron.session", "in of a": "a", "in of nothing": "during",
                             "in of c": "c", "in waited for": "c", "called": "during"})


@test_each(PYTHONS, python_label)
def endings(case, python):
    """Cancelled, raised, dropped, left open, closed by another task."""
    st, r = run(case, python, r"""
async def forever(name):
    with scope(name):
        with scope(name + " inside"):
            await sleep(1000)

async def raises():
    with scope("raises"):
        await sleep(0)
        raise LookupError

async def leaves_open():
    scope("left", a=1).__enter__()

kept = []

async def opens():
    kept.append(scope("handed on", x=1))
    kept[0].__enter__()
    with scope("of opens"):
        await sleep(0)
    await gate.wait()
    with scope("opens goes on"):
        await sleep(0)

async def closes():
    with scope("closes"):
        kept.pop().__exit__(None, None, None)
        await sleep(0)
    gate.set()

async def forgets():
    kept.append(scope("kept open"))
    kept[-1].__enter__()

async def main():
    global gate
    gate = asyncio.Event()
    with scope("main"):
        t = asyncio.ensure_future(forever("cancelled"))
        await sleep(0)
        t.cancel()
        await asyncio.gather(t, raises(), return_exceptions=True)
        await asyncio.ensure_future(leaves_open())
        one = asyncio.ensure_future(opens())
        await sleep(0)
        await asyncio.ensure_future(closes())
        await one
        await asyncio.ensure_future(forgets())
        del t, one
        await sleep(0)  # the loop lets go of the task that it just told of
        gc.collect()
        ci.mark("end", 1)
    with scope("after"):
        await sleep(0)

run(main)
with scope("last"):
    kept.pop().__exit__(None, None, None)
""")
    tree = [("main", None), ("cancelled", "main"), ("cancelled inside", "cancelled"), ("raises", "main"), ("left", "main"), ("handed on", "main"),
            ("of opens", "handed on"), ("opens goes on", "main"), ("closes", "main"), ("kept open", "main"), ("after", None), ("last", None)]
    check(case, st, tree, end="main")
    errors = {s["name"]: (s["attrs"] or {}).get("exception") for s in st.spans if s["error"]}
    case.equal(errors, {"cancelled": "CancelledError", "cancelled inside": "CancelledError", "raises": "LookupError"}, "errors")
    case.equal([st.of(n)[0]["attrs"] for n in ("left", "handed on")], [{"a": 1}, {"x": 1}], "attributes")
    for name in ("left", "handed on", "kept open", "closes"):
        case.check(st.of(name)[0]["end_ns"] <= st.of("after")[0]["start_ns"], name + " was not closed in time")


@test_each(PYTHONS, python_label)
def generators_and_decorators(case, python):
    st, _ = run(case, python, r"""
@scope("decorated", n=1)
async def decorated(i):
    await sleep(0)
    with scope(f"d{i}"):
        await sleep(0.001 * (3 - i))

@scope("asyncgen")
async def numbers(i):
    for k in range(2):
        with scope(f"g{i}"):
            await sleep(0)
        yield k

async def consume(i):
    with scope(f"consume{i}"):
        async for k in numbers(i):
            await sleep(0)
    async for k in numbers(10 + i):
        break  # closed later, by a task of the loop's own

async def epochs(i):
    for e in ci.epochs(range(2)):
        await sleep(0)
        for b in ci.batches(range(2)):
            with scope(f"e{i}"):
                await sleep(0)

async def main():
    await asyncio.gather(*(decorated(i) for i in range(3)))
    with scope("main"):
        await asyncio.gather(*(consume(i) for i in range(2)))
    await asyncio.gather(*(epochs(i) for i in range(2)))
    gc.collect()

run(main)
""")
    case.equal([st.order(s) for s in sorted(st.of("decorated"), key=lambda s: s["start_ns"])], [["d0"], ["d1"], ["d2"]], "decorated")
    for i in range(2):
        case.equal(sorted(st.order(st.of(f"consume{i}")[0])), ["asyncgen"], "consumed")
        case.equal([st.parent(s)["name"] for s in st.of(f"g{i}")], ["asyncgen"] * 2, "in the generator")
        case.equal([[p["name"] for p in st.above(s)] for s in st.of(f"e{i}")], [["batch", "epoch"]] * 4, "epochs")
    case.equal(len({s["parent_id"] for s in st.of("e0")} & {s["parent_id"] for s in st.of("e1")}), 0, "batches shared")
    case.equal([s["name"] for s in st.spans if s["end_ns"] is None], [], "unfinished")


@test_each(PYTHONS, python_label)
def many_tasks(case, python):
    """More at a time than a stack is deep and than the table of open spans has room, with and without something open at a switch."""
    st, r = run(case, python, r"""
async def work(i):
    with scope("outer", index=i):
        await sleep(0)
        with scope("inner", index=i):
            await sleep(0)
    for _ in range(3):
        await sleep(0)
        with scope("short", index=i):
            pass

async def main():
    for _ in range(2):
        with scope("main"):
            await asyncio.gather(*(work(i) for i in range(700)))

run(main)
print(ci.health()["scope_drop_count"], ci.health()["scope_depth"])
""")
    case.equal(r.out, "0 0\n", "dropped, depth")
    case.equal((len(st.of("outer")), len(st.of("short"))), (1400, 4200), "spans")
    wrong = [s for s in st.of("inner") if st.parent(s)["name"] != "outer" or st.parent(s)["index"] != s["index"]]
    wrong += [s for s in st.of("outer") + st.of("short") if st.parent(s)["name"] != "main"]
    case.equal(wrong, [], "wrong parents")


@test_each(PYTHONS, python_label)
def loops_in_threads(case, python):
    """Threads have nothing open, whoever starts them; a loop in each, and a task that ends on another thread."""
    st, _ = run(case, python, r"""
def job(i):
    with scope(f"job{i}"):
        pass

async def work(i):
    with scope(f"work{i}"):
        await sleep(0.001)
        await asyncio.get_event_loop().run_in_executor(None, job, i)
        if sys.version_info >= (3, 9):
            await asyncio.to_thread(job, i)
        else:
            job_thread = threading.Thread(target=job, args=(i,))
            job_thread.start(), job_thread.join()

async def leaves(box):
    scope("left", a=1).__enter__()
    box.append(asyncio.current_task())

async def main(i, box):
    with scope(f"main{i}"):
        await asyncio.gather(work(i), work(10 + i))
    await asyncio.ensure_future(leaves(box))
    if i:
        box.clear()

boxes = [], []
threads = [threading.Thread(target=lambda i=i: asyncio.run(main(i, boxes[i]))) for i in range(2)]
with scope("starts"):
    [t.start() for t in threads]
    [t.join() for t in threads]
boxes[0].clear()
gc.collect()

def host():
    async def stay():
        stop.wait
        while not stop.is_set():
            await sleep(0.001)
        with scope("late"):
            await sleep(0)
    asyncio.run(stay())

stop = threading.Event()
t = threading.Thread(target=host)
t.start()
time.sleep(0.05)
stop.set()
t.join()
""")
    tree = [("starts", None), ("main0", None), ("main1", None), ("left", None), ("left", None), ("late", None)]
    for i in (0, 1, 10, 11):
        tree += [(f"work{i}", f"main{i % 10}"), (f"job{i}", None), (f"job{i}", None)]
    check(case, st, tree)


@test_each([p for p in PYTHONS if "3.8" not in python_label(p) and "3.9" not in python_label(p) and "3.10" not in python_label(p)], python_label)
def groups_eager_tasks_and_contexts(case, python):
    """What came with 3.11 and 3.12."""
    st, _ = run(case, python, r"""
import contextvars

async def leaf(name, then=()):
    with scope(name):
        await sleep(0)
        for t in then:
            await t

async def quick(name):
    with scope(name):
        pass

async def main():
    with scope("main"):
        async with asyncio.TaskGroup() as g:
            with scope("in group"):
                g.create_task(leaf("a"))
            g.create_task(leaf("b"))
        context = contextvars.copy_context()
        with scope("other context"):
            t = asyncio.create_task(leaf("c"), context=context)
        await t
        if sys.version_info >= (3, 12):
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
            with scope("eager"):
                one = asyncio.create_task(quick("at once"))
                two = asyncio.create_task(nested())
                ci.mark("outside", 1)
            with scope("later"):
                await asyncio.gather(one, two)

async def nested():
    with scope("nested"):
        three = asyncio.create_task(leaf("innermost"))
        ci.mark("nested", 1)
        await sleep(0)
        await three

with asyncio.Runner() as runner:
    for name in ("first", "second"):
        with scope(name):
            runner.run(leaf("of " + name))
    with scope("third"):
        runner.run(main())
""", outlast=["a", "c", "nested"])
    tree = [("first", None), ("second", None), ("third", None), ("of first", "first"), ("of second", "second"), ("main", "third"),
            ("in group", "main"), ("a", "in group"), ("b", "main"), ("other context", "main"), ("c", "other context")]
    marks = {}
    if "3.11" not in python_label(python):
        tree += [("eager", "main"), ("later", "main"), ("at once", "eager"), ("nested", "eager"), ("innermost", "nested")]
        marks = {"outside": "eager", "nested": "nested"}
    check(case, st, tree, **marks)


@test_each(PYTHONS, python_label)
def forked_inside_a_task(case, python):
    st, _ = run(case, python, r"""
import os, warnings
warnings.simplefilter("ignore")

async def work(i):
    with scope(f"work{i}"):
        await sleep(0)
        if i == 1:
            pid = os.fork()
            if not pid:
                with scope("child"):
                    ci.mark("m", 1)
                os._exit(0)
            os.waitpid(pid, 0)
        with scope(f"goes on{i}"):
            await sleep(0)

async def main():
    with scope("main"):
        await asyncio.gather(work(0), work(1))

run(main)
""", 2)
    check(case, st, [("main", None), ("work0", "main"), ("work1", "main"), ("goes on0", "work0"), ("goes on1", "work1"), ("child", None)], m="child")


@test_each(PYTHONS, python_label)
def tasks_without_tracing(case, python):
    """Nothing changes where nothing is recorded; and what is left open at the end of the program is closed by it."""
    need_agent()
    script = HEAD + r"""
async def work(i):
    scope("open").__enter__()
    with scope("w"):
        await sleep(0)
    return i

async def main():
    return await asyncio.gather(*(work(i) for i in range(3)))

loop = asyncio.new_event_loop()
print(loop.run_until_complete(main()))
held = loop.create_task(work(3))
loop.run_until_complete(sleep(0))
print(ci.health()["enabled"])
held.cancel()
loop.run_until_complete(asyncio.gather(held, return_exceptions=True))
loop.close()
"""
    for body in (script, script.replace("loop = ", "ci.profile(enabled=False)\nloop = ", 1)):
        r = case.run([python, case.script(body)], env={"CIRRON_AUTOSTART": 0})
        case.equal((r.rc, r.out, r.err), (0, f"[0, 1, 2]\n{body == script}\n", ""), "the run")


TRAINING = r"""
import torch
from torch.utils.data import DataLoader, TensorDataset

def parts():
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=2)

async def train(name, rounds=2):
    model, optimizer, loader = parts()
    with scope(name):
        for _ in range(rounds):
            for (x,) in loader:
                await sleep(0)
                loss = model(x).sum()
                await sleep(0)
                optimizer.zero_grad()
                loss.backward()
                await sleep(0)
                optimizer.step()
                ci.mark("loss of " + name, 1.0)

async def chatter(stop):
    while not stop.is_set():
        with scope("chatter"):
            await sleep(0)
"""


@test_each(TORCH, python_label)
def trainings_in_tasks(case, python):
    """Automatic spans lie in the stack of their task: two trainings at once are as good as one after the other."""
    st, _ = run(case, python, TRAINING + r"""
async def main():
    stop = asyncio.Event()
    talk = asyncio.ensure_future(chatter(stop))
    with scope("main"):
        await asyncio.gather(train("one"), train("two"))
    await asyncio.ensure_future(train("three"))
    for e in ci.epochs(range(2)):
        await asyncio.ensure_future(train("by hand", 1))
    stop.set()
    await talk

run(main)
""")
    for name in ("one", "two", "three"):
        top = st.of(name)[0]
        epochs = [s for s in st.children(top) if s["name"] == "epoch"]
        case.equal(sorted(set(st.order(top))), ["epoch"], name + " holds")
        case.equal([st.order(e) for e in epochs], [["step"] * 4] * 2, "steps of " + name)
        for e in epochs:
            for s in st.children(e):
                case.equal(st.order(s), ["data_load", "forward", "backward", "optimizer_step"], "a step of " + name)
        marks = {st.by_id[m["span_id"]]["name"] for m in st.marks_of("loss of " + name)}
        case.equal(marks, {"step"}, "marks of " + name)
    for top in st.of("by hand"):
        case.equal(st.order(top), ["step"] * 4, "steps in an epoch by hand")
        case.equal(st.parent(top)["name"], "epoch", "which lies in it")
    case.equal({st.parent(s)["name"] for s in st.of("chatter")}, {"cirron.session"}, "chatter")
    case.equal((len(st.of("epoch")), len(st.of("eval"))), (8, 0), "epochs in all")


@test_each(TORCH, python_label)
def created_inside_a_step(case, python):
    """A step and a pass are opened on suspicion: where they never were, what was created in them is their parent's."""
    st, _ = run(case, python, TRAINING + r"""
async def upload(name):
    await sleep(0)
    with scope(name):
        await sleep(0)

async def main():
    model, optimizer, loader = parts()
    later = []
    with scope("looks"):
        model.eval()
        for (x,) in loader:
            model(x)
            later.append(asyncio.ensure_future(upload("of a look")))
            await sleep(0)
        await asyncio.gather(*later)
        model.train()
    with scope("trains"):
        for (x,) in loader:
            model(x).sum().backward()
            t = asyncio.ensure_future(upload("of a step"))
            optimizer.step()
            await t

run(main)
""", outlast=["of a look", "of a step"])
    ids = {s["id"] for s in st.all}
    case.equal([s["name"] for s in st.spans if s["parent_id"] not in ids], [], "without a parent")
    case.equal([[p["name"] for p in st.above(s)] for s in st.of("of a step")], [["step", "epoch", "trains"]] * 4, "in steps")
    above = [[p["name"] for p in st.above(s)] for s in st.of("of a look")]
    case.equal(above, [["eval", "looks"]] * 4, "in a pass without updates")
