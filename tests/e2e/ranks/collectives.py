"""What is recorded of torch.distributed, and that the script never notices."""
import harness
from harness import test
from scripts import ENV, RANKS


def both(t, text, **env):
    t.collect()
    t.both([harness.TORCH_PYTHON, t.script(RANKS + text)], env={**ENV, **env})
    return t.store()


def of_rank(st, rank):
    """(operation, group, number, bytes, async) of its collectives, in order."""
    return [(a["op"], a["group"], s["index"], a.get("bytes"), a.get("async", False)) for s in st.of("collective")
            if s["rank"] == rank for a in [s["attrs"]]]


@test
def operations(t):
    """One span each, numbered by group; what they consist of is none. Tensors live no longer, exceptions are as they were."""
    st = both(t, """
import weakref
from torch.overrides import TorchFunctionMode

class Seen(TorchFunctionMode):
    calls = 0
    def __torch_function__(self, function, types, args=(), kwargs=None):
        Seen.calls += 1
        return function(*args, **(kwargs or {}))

def work(rank):
    own = [dist.new_group([r]) for r in (0, 1)][rank]
    pair = dist.new_group([0, 1])
    ones, parts = torch.ones(4), [torch.zeros(4), torch.zeros(4)]
    dist.all_reduce(ones)
    dist.all_reduce(torch.ones(2, dtype=torch.float64), op=dist.ReduceOp.MAX, group=pair)
    dist.all_reduce(nn.Parameter(torch.ones(3)).detach(), group=dist.group.WORLD)
    dist.broadcast(ones, src=0)
    dist.reduce(ones, 0)
    dist.all_gather(parts, torch.ones(4))
    dist.all_gather_into_tensor(torch.zeros(8), ones)
    dist.gather(ones, parts if rank == 0 else None, dst=0)
    dist.scatter(torch.zeros(4), parts if rank == 0 else None, src=0)
    objects = [None, None]
    dist.all_gather_object(objects, {"rank": rank})
    dist.broadcast_object_list(objects, src=1)
    dist.barrier(group=own)
    waiting = dist.all_reduce(ones, async_op=True)
    waiting.wait()
    dist.barrier()
    if rank == 0:
        dist.send(torch.ones(2), 1)
        dist.irecv(torch.ones(3), src=1).wait()
    else:
        dist.recv(torch.ones(2), src=0)
        dist.isend(torch.ones(3), dst=0).wait()
    dist.monitored_barrier()
    try:
        dist.all_reduce("no tensor")
    except Exception as e:
        raised = type(e).__name__ + str(e)[:40]
    gone = weakref.ref(ones)
    del ones, parts, waiting
    with Seen():
        dist.all_reduce(torch.ones(1))
    if rank == 0:
        print(objects, raised, gone() is None, Seen.calls, dist.all_reduce.__name__, dist.get_rank(), flush=True)

print(fork_ranks(2, work))
""")
    common = [("all_reduce", "world", 0, 16, False), ("all_reduce", "PAIR", 0, 16, False), ("all_reduce", "world", 1, 12, False),
              ("broadcast", "world", 2, 16, False), ("reduce", "world", 3, 16, False), ("all_gather", "world", 4, 16, False),
              ("all_gather_into_tensor", "world", 5, 16, False), ("gather", "world", 6, 16, False),
              ("scatter", "world", 7, 16, False), ("all_gather_object", "world", 8, None, False),
              ("broadcast_object_list", "world", 9, None, False), ("barrier", "OWN", 0, None, False),
              ("all_reduce", "world", 10, 16, True), ("barrier", "world", 11, None, False)]
    pairs = {0: [("send", "world", None, 8, False), ("irecv", "world", None, 12, True)],
             1: [("recv", "world", None, 8, False), ("isend", "world", None, 12, True)]}
    last = [("monitored_barrier", "world", 12, None, False), ("all_reduce", "world", 13, None, False),
            ("all_reduce", "world", 14, None, False)]
    for rank in (0, 1):
        got = of_rank(st, rank)
        groups = {g for _, g, *_ in got} - {"world"}
        own, pair = [[g for g in groups if g.endswith(end)] for end in (f"[{rank}]", "[0-1]")]
        t.equal((len(groups), len(own), len(pair)), (2, 1, 1), f"groups {groups}")
        names = {"OWN": own[0], "PAIR": pair[0]}
        expected = [(op, names.get(group, group), *rest) for op, group, *rest in common + pairs[rank] + last]
        setup = [("init_process_group", "world", None, None, False)] + 3 * [("new_group", "world", None, None, False)]
        t.equal(got, setup + expected, f"collectives of rank {rank}")
        wrong = [s for s in st.of("collective") if s["rank"] == rank and s["error"]]
        t.equal([(s["index"], s["attrs"]["exception"]) for s in wrong], [(13, "TypeError")], "the one that raised")
    peers = {s["attrs"]["op"]: s["attrs"]["module"] for s in st.of("collective")}
    t.equal([peers[x] for x in ("send", "recv", "isend", "irecv")], ["send to 1", "recv from 0", "isend to 0", "irecv from 1"],
            "whom they spoke with")


@test
def inside_steps(t):
    """They lie where they are called; DistributedDataParallel shows what it does in Python. The rank is known that only torch was told."""
    st = both(t, """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 5), nn.BatchNorm1d(5)
    def forward(self, x):
        return self.b(self.a(x)).sum(1, keepdim=True)

for i in (0, 1):
    if os.fork() == 0:
        meet(i, 2)
        torch.manual_seed(7)
        model = nn.parallel.DistributedDataParallel(Net())
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in rows(3):
            loss = F.mse_loss(model(x), y)
            loss.backward()
            norm = torch.ones(1)
            dist.all_reduce(norm)
            opt.step()
        dist.destroy_process_group()
        if i == 0:
            print(sum(p.double().sum().item() for p in model.parameters()))
        sys.exit(0)
os.wait()
os.wait()
""")
    trained = [x for x in st.sessions if st.of("step", x["pid"])]
    t.equal(sorted((x["rank"], x["world_size"]) for x in trained), [(0, 2), (1, 2)], "ranks")
    for session in trained:
        mine = [s for s in st.spans if s["pid"] == session["pid"]]
        t.counts(mine, epoch=1, step=3, data_load=3, forward=3, backward=3, optimizer_step=3, collective=8)
        for step in st.of("step", session["pid"]):
            t.equal(st.order(step), ["data_load", "forward", "backward", "collective", "optimizer_step"], "order in a step")
            inner = st.inside(step, "collective")
            t.equal([s["attrs"]["op"] for s in inner], ["sync_buffers", "all_reduce"], "collectives of a step")
            t.equal(st.parent(inner[0])["name"], "forward", "parent of sync_buffers")
        ops = [s["attrs"]["op"] for s in st.of("collective", session["pid"])]
        t.equal(ops[:2], ["init_process_group", "sync_module_states"], "what comes before")
        t.equal([s["index"] for s in st.of("collective", session["pid"])], [None, 0, 1, 2, 3, 4, 5, 6], "numbers")
