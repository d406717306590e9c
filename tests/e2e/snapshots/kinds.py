"""Tensors of every kind."""
import json

from boundaries import all_as_told
from harness import test, test_each
from parts import BEGIN
from reference import SCRIPT, Snapshots, compare, snapshot_parts
from values import SIZES


@test
def unlike_others(t):
    """Tied, frozen, sparse, empty, scalar, transposed parameters: one record for each name, as PyTorch lists them."""
    parts = all_as_told(t, '''
class Zoo(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.sparse = nn.Embedding(10, 4), nn.Embedding(10, 4, sparse=True)
        self.decoder = nn.Linear(4, 10, bias=False)
        self.decoder.weight = self.emb.weight
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.narrow_w = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
        self.empty = nn.Parameter(torch.empty(0, 3))
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.turned = nn.Parameter(torch.randn(3, 4).t())
        self.none = None
        self.register_parameter("absent", None)

    def forward(self, i):
        h = self.frozen(self.emb(i) + self.sparse(i)) * self.narrow_w.float() * self.scale
        return self.decoder(h + self.turned.sum(1))


@part
def zoo():
    model = Zoo()
    ci.watch(model)
    opt, kept = sgd(model), []
    for _ in ci.epochs(range(2)):
        for (i,) in DataLoader(TensorDataset(torch.arange(8)), batch_size=4):
            opt.zero_grad(set_to_none=True)
            F.cross_entropy(model(i), i).backward()
            opt.step()
        kept.append(copies(model))
    assert model.sparse.weight.grad.is_sparse
    ci.watch(None)
    return [told(k) for k in kept]


@part
def views():
    base = torch.randn(40, 30)
    model = nn.ParameterDict({
        "every_other": nn.Parameter(base[::2, ::3]), "expanded": nn.Parameter(base[:, :1].expand(40, 6)), "part": nn.Parameter(base[3:7, 2:9]),
        "last": nn.Parameter(base.permute(1, 0)), "channels": nn.Parameter(torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)),
        "overlapping": nn.Parameter(base.as_strided((5, 4), (2, 1))), "unit": nn.Parameter(base[None, :1, :, None])})
    ci.watch(model)
    kept = []
    for _ in ci.epochs(range(2)):
        sum(p.sum() for p in model.parameters()).backward()
        kept.append(told(copies(model)))
    ci.watch(None)
    return kept


@part
def types():
    made = torch.arange(-9, 40).reshape(7, 7)
    model = nn.ParameterDict({"a_" + str(d).split(".")[1]: nn.Parameter((made * 0.37 if d.is_floating_point else made if d != torch.bool else made % 3).to(d), requires_grad=False)
                              for d in (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)})
    model["c_complex64"] = nn.Parameter(torch.complex(made * 0.5, made * -2.0))
    model["c_complex128"] = nn.Parameter(torch.complex(made * 0.5, made * -2.0).to(torch.complex128).t())
    ci.watch(model)
    kept = []
    for _ in ci.epochs(range(2)):
        for k in ("c_complex64", "c_complex128"):
            model[k].grad = None
            (model[k].abs() ** 2).sum().backward()
        kept.append(told(copies(model)))
    ci.watch(None)
    return kept


@part
def gradients_unlike_their_tensors():
    model = nn.ParameterDict({"turned": nn.Parameter(torch.randn(6, 5)), "expanded": nn.Parameter(torch.randn(6, 5)), "plain": nn.Parameter(torch.randn(3))})
    ci.watch(model)
    kept = []
    for _ in ci.epochs(range(1)):
        model["turned"].grad = torch.randn(5, 6).t()
        model["expanded"].grad = torch.tensor(2.0).expand(6, 5)
        kept.append(told(copies(model)))
    ci.watch(None)
    return kept


@part
def lazily_made():
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyLinear(1))
    ci.watch(model)
    kept = []
    for _ in ci.epochs(range(2)):
        model(torch.randn(2, 4)).sum().backward()
        kept.append(told(copies(model)))
    ci.watch(None)
    return kept
''')
    rows = parts["zoo"].snapshots[1].rows
    t.equal([k for k in rows if not k.endswith(".grad")], "narrow_w empty scale turned emb.weight sparse.weight frozen.weight frozen.bias".split(),
            "weights, in the order in which PyTorch lists them")
    t.equal(rows["sparse.weight.grad"]["attrs"], {"sparse": True}, "attributes of a sparse gradient")
    t.equal(rows["empty"]["stats"]["count"], 0, "count of an empty tensor")
    types = parts["types"].snapshots[1].rows
    t.equal({k for k, r in types.items() if r["attrs"]}, {"c_complex64", "c_complex128", "c_complex64.grad", "c_complex128.grad"}, "records with attributes")
    t.equal(types["c_complex64"]["stats"]["count"], 98, "complex numbers count as two")


@test
def that_cannot_be_read(t):
    """Each says why, and the others are there all the same."""
    parts = snapshot_parts(t, '''
@part
def odd():
    model = nn.ParameterDict({"plain": nn.Parameter(torch.ones(3)), "meta": nn.Parameter(torch.empty(3, 4, device="meta")),
                              "float8": nn.Parameter(torch.ones(3, 4).to(torch.float8_e4m3fn), requires_grad=False),
                              "lazy": nn.UninitializedParameter(), "last": nn.Parameter(torch.zeros(2))})
    ci.watch(model)
    for _ in ci.epochs(range(2)):
        pass
    ci.watch(None)


@part
def quantized():
    model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 3), nn.Tanh()), dtype=torch.qint8)
    model.register_parameter("own", nn.Parameter(torch.ones(2)))
    ci.watch(model)
    for _ in ci.epochs(range(1)):
        pass
    ci.watch(None)
''', plain=False)
    for snapshot in parts["odd"].snapshots:
        rows = snapshot.rows
        t.equal({k: r["attrs"].get("reason") for k, r in rows.items() if r["stats"] is None},
                {"meta": "meta", "float8": "float8_e4m3fn", "lazy": "a UninitializedParameter"}, "reasons")
        t.equal((rows["meta"]["shape"], rows["meta"]["dtype"], rows["float8"]["dtype"]), ([3, 4], "float32", "float8_e4m3fn"), "shape and types")
        t.equal((rows["plain"]["stats"]["mean"], rows["last"]["stats"]["zero"]), (1, 2), "the others")
    t.equal(len(parts["odd"].snapshots), 2, "snapshots")
    t.equal(parts["quantized"].snapshots[0].rows["own"]["stats"]["count"], 2, "a quantized model's own parameter")


SHARED = SCRIPT.replace("AGENT = ", "import torch.distributed as dist\nAGENT = ") + '''
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=2)
HIDDEN = %d


def local(kept):
    return {k: v.to_local() if hasattr(v, "to_local") else v for k, v in kept.items()}


@part
def data_parallel():
    model = nn.parallel.DistributedDataParallel(net(4, HIDDEN))
    ci.watch(model)
    opt, kept = torch.optim.SGD(model.parameters(), lr=0.1), []
    for _ in range(2):
        for x, y in rows():
            learn(model, opt, x + rank, y)
            last = copies(model)
        kept.append(last)
    ci.watch(None)
    return [told(k) for k in kept]


@part
def sharded():
    from torch.distributed.fsdp import fully_shard
    model = net(4, HIDDEN)
    for m in model:
        if isinstance(m, nn.Linear):
            fully_shard(m)
    fully_shard(model)
    ci.watch(model)
    opt, kept = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False), []
    for _ in range(2):
        for x, y in rows():
            learn(model, opt, x + rank, y)
            last = local(copies(model))
        kept.append(last)
    ci.watch(None)
    return [told(k) for k in kept]


run_parts()
time.sleep(0.3)  # gloo may abort who leaves while another is at work
dist.destroy_process_group()
time.sleep(0.3)
'''


@test_each(SIZES)
def of_two_ranks(t, size):
    t.collect()
    script = t.script(BEGIN + SHARED % {"small": 6, "large": 1200}[size])
    ranks = [t.start([t.python, script, t.folder / "rendezvous"], env=dict(RANK=i, WORLD_SIZE=2, LOCAL_RANK=i, CIRRON_SNAPSHOT_WAIT_MS=60000, GLOO_SOCKET_IFNAME="lo")) for i in range(2)]
    done = [p.communicate(timeout=120) for p in ranks]
    t.equal([p.returncode for p in ranks], [0, 0], "exit status: " + done[0][1][-600:])
    snapshots = Snapshots(t.store())
    for rank, (out, _) in enumerate(done):
        for line in (x for x in out.splitlines() if x.startswith("[")):
            name, own = json.loads(line)
            scope, = [s for s in snapshots.st.of(name) if s["rank"] == rank]
            compare(t, f"rank {rank}, {name}", snapshots.below(scope), own)
