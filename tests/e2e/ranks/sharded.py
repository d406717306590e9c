"""Models that ranks share: FSDP in both of its kinds, and DistributedDataParallel with accumulation."""
from collectives import both
from harness import test_each

BODY = """
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
def work(rank):
    model = net()
    if KIND == "fsdp":
        model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    elif KIND == "fully_shard":
        from torch.distributed.device_mesh import init_device_mesh
        mesh = init_device_mesh("cpu", (2,))
        for layer in model:
            if list(layer.parameters()):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        model = nn.parallel.DistributedDataParallel(model, static_graph=KIND == "static")
    opt = torch.optim.Adam(model.parameters())
    for epoch in range(2):
        for i, (x, y) in enumerate(rows(4)):
            last = i % 2 == 1
            with model.no_sync() if KIND == "ddp" and not last else contextlib.nullcontext():
                F.mse_loss(model(x), y).backward()
            if last:
                opt.step()
                opt.zero_grad()
    found = sum((p.full_tensor() if hasattr(p, "full_tensor") else p).detach().double().sum().item() for p in model.parameters())
    if rank == 0:
        print(round(found, 9), flush=True)

print(fork_ranks(2, work))
"""


@test_each(["ddp", "static", "fsdp", "fully_shard"])
def shared_by_ranks(t, kind):
    """One forward a batch, whatever wraps it; an update every other batch; the library's operations lie where it called them."""
    st = both(t, f"import contextlib\nKIND = {kind!r}\n" + BODY)
    trained = [x for x in st.sessions if st.of("step", x["pid"])]
    t.equal(sorted(x["rank"] for x in trained), [0, 1], "ranks")
    for session in trained:
        pid = session["pid"]
        mine = [s for s in st.spans if s["pid"] == pid]
        calls = len(st.of("collective", pid))
        t.counts(mine, epoch=2, step=4, data_load=8, forward=8, backward=8, optimizer_step=4, collective=calls)
        t.equal([len(st.inside(s, "forward")) for s in st.of("step", pid)], [2] * 4, "forwards of a step")
        modules = {"ddp": "DistributedDataParallel", "static": "DistributedDataParallel", "fsdp": "FullyShardedDataParallel",
                   "fully_shard": "FSDPSequential"}
        t.equal({s["attrs"]["module"] for s in st.of("forward", pid)}, {modules[kind]}, "modules")
        inner = {s["attrs"]["op"] for x in st.of("forward", pid) + st.of("backward", pid) for s in st.inside(x, "collective")}
        if kind in ("fsdp", "fully_shard"):
            t.check(any(x.startswith("all_gather") for x in inner) and any("reduce" in x for x in inner), f"operations: {inner}")
    a, b = ([(s["attrs"]["op"], s["index"]) for s in st.of("collective", x["pid"])] for x in trained)
    t.equal(a, b, "operations of the ranks")
