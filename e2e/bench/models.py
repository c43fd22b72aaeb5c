"""The trainings that are measured: plain PyTorch, as people write it, with no word of the probe."""
import functools
import importlib
import time

import torch
from torch import nn
from torch.nn import functional as F

import lab
from training import BATCHES, Training


class DLRM(nn.Module):
    """Bottom MLP 512-512-64, 8 tables of 1M x 64 (sparse, 10 rows a bag), top MLP 576-1024-1024-1024-1."""

    def __init__(self, rows, wide=1024):
        super().__init__()
        self.bot = nn.Sequential(nn.Linear(512, wide // 2), nn.ReLU(), nn.Linear(wide // 2, 64), nn.ReLU())
        self.emb = nn.ModuleList(nn.EmbeddingBag(rows, 64, mode="sum", sparse=True) for _ in range(8))
        self.top = nn.Sequential(nn.Linear(576, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(),
                                 nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 1), nn.Sigmoid())

    def forward(self, x, indices, offsets):
        bags = [table(index, offsets) for table, index in zip(self.emb, indices)]
        return self.top(torch.cat([self.bot(x), *bags], 1))


class Copy(nn.Module):
    """Reads and writes so many bytes each, and gives its input on."""

    def __init__(self, size, device):
        super().__init__()
        self.register_buffer("source", torch.randn(size // 4, device=device))
        self.register_buffer("target", torch.empty(size // 4, device=device))

    def forward(self, x):
        torch.add(self.source, 1, out=self.target)
        return x


class Often(nn.Module):
    """Does something to its input again and again, as a layer does that runs for long; its backward knows the last time."""

    def __init__(self, times, pause=0.0):
        super().__init__()
        self.times, self.pause = times, pause

    def once(self, x):
        raise NotImplementedError

    def forward(self, x):
        with torch.no_grad():
            if self.pause and x.is_cuda:
                torch.cuda.synchronize()  # what the host launched ahead would hide that it is late
            for _ in range(self.times - 1):
                self.once(x)
                end = time.perf_counter() + self.pause
                while time.perf_counter() < end:  # the host is late: the GPU waits
                    pass
        return self.once(x)


class Product(Often):
    def __init__(self, width, times, cast=None):
        super().__init__(times)
        self.weight, self.cast = nn.Parameter(torch.randn(width, width) / width ** 0.5), cast

    def once(self, x):
        return x @ self.weight if self.cast is None else (x.to(self.cast) @ self.weight.to(self.cast)).float()


class Softmax(Often):
    def once(self, x):
        return F.softmax(x, 1)


class Filter(Often):
    def __init__(self, times):
        super().__init__(times)
        self.register_buffer("weight", torch.randn(1, 1, 3, 3) / 3)

    def once(self, x):
        return F.conv2d(x[None, None], self.weight, padding=1)[0, 0]


class Look(Often):
    """Rows of a table, in no order."""

    def __init__(self, rows, width, times):
        super().__init__(times)
        self.table = nn.Parameter(torch.randn(rows, width))
        self.register_buffer("index", torch.randint(rows, (rows,)))

    def once(self, x):
        return x * self.table[self.index[:x.shape[0]]]


class Slow(nn.Module):
    """Layers that run for 50 to 200 ms each on an H100, one of them waiting for its host for most of it."""

    def __init__(self, width, short):
        super().__init__()

        def times(n):
            return 2 if short else n
        self.products = Product(width, times(6))
        self.softmaxes = Softmax(times(400))
        self.halves = Product(width, times(60), torch.bfloat16)
        self.looks = Look(2 * width, width, times(120))
        self.filters = Filter(times(20))
        self.waits = Softmax(times(100), pause=0.0007)
        self.last = Product(width, times(3))

    def forward(self, x):
        for layer in self.children():
            x = layer(x)
        return x.mean(1)


class Residual(nn.Module):
    """Its layers, one after the other, beside its input."""

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.layers(x)


class Nested(nn.Module):
    """A layer, and the block within."""

    def __init__(self, width, depth):
        super().__init__()
        self.own = nn.Linear(width, width)
        self.within = Nested(width, depth - 1) if depth > 1 else nn.Linear(width, width)

    def forward(self, x):
        return x + self.within(torch.tanh(self.own(x)))


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inside != 4 * width:
            self.downsample = nn.Sequential(nn.Conv2d(inside, 4 * width, 1, stride, bias=False),
                                            nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self, blocks=(3, 4, 6, 3), width=64):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        inside, stages = width, []
        for i, count in enumerate(blocks):
            wide = width << i
            stages.append(nn.Sequential(*(Bottleneck(inside if j == 0 else 4 * wide, wide, 2 if i and j == 0 else 1)
                                          for j in range(count))))
            inside = 4 * wide
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(inside, 1000)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:  # torch < 2.0
            mask = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            y = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).masked_fill(mask, float("-inf")).softmax(-1) @ v
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, layers=12, width=768, heads=12, length=1024, words=50304, checkpoint=False):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.checkpoint = checkpoint

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            if self.checkpoint:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.lm_head(self.ln_f(x))


class Pipeline(nn.Module):
    """A GPT in two halves, each on a GPU; of one block in the middle the attention is on the first, the MLP on the second."""

    def __init__(self, first, second, width=1024, layers=8, heads=16, length=512, words=32000):
        super().__init__()
        self.first, self.second = first, second
        self.wte, self.wpe = nn.Embedding(words, width).to(first), nn.Embedding(length, width).to(first)
        self.h = nn.ModuleList(Block(width, heads).to(first if i < layers // 2 else second) for i in range(layers))
        self.middle = Across(width, heads, first, second)
        self.ln_f, self.lm_head = nn.LayerNorm(width).to(second), nn.Linear(width, words, bias=False).to(second)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        half = len(self.h) // 2
        for block in self.h[:half]:
            x = block(x)
        x = self.middle(x)
        for block in self.h[half:]:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class Across(nn.Module):
    """A block on two GPUs, whose own sums are on the second."""

    def __init__(self, width, heads, first, second):
        super().__init__()
        self.second, self.attn = second, Attention(width, heads).to(first)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)).to(second)

    def forward(self, x):
        y = (x + self.attn(x)).to(self.second)
        return y + self.mlp(y)


class Chunks(nn.Module):
    """A pipeline that is given its batch in pieces, so that both GPUs have work at a time."""

    def __init__(self, pipeline, count):
        super().__init__()
        self.pipeline, self.count = pipeline, count

    def forward(self, tokens):
        return torch.cat([self.pipeline(some) for some in tokens.chunk(self.count)])


class Recommender(nn.Module):
    """Multi-hot features: 12 dense tables of 50k x 128 with 1 to 60 rows a bag, their mean; cross layers beside an MLP."""

    def __init__(self, rows, width):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="mean") for _ in range(12))
        self.dense = nn.Sequential(nn.Linear(64, width), nn.LayerNorm(width), nn.GELU())
        wide = 13 * width
        self.cross = nn.ModuleList(nn.Linear(wide, wide) for _ in range(3))
        self.deep = nn.Sequential(nn.Linear(wide, 768), nn.BatchNorm1d(768), nn.GELU(), nn.Dropout(0.1),
                                  nn.Linear(768, 320), nn.GELU(), nn.Linear(320, 1))

    def forward(self, x, indices, offsets):
        parts = [table(index, offset) for table, index, offset in zip(self.tables, indices, offsets)]
        first = y = torch.cat([self.dense(x), *parts], 1)
        for layer in self.cross:
            y = first * layer(y) + y
        return self.deep(y)


class Down(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inside, width, 3, stride, 1), nn.GroupNorm(8, width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, 1, 1), nn.GroupNorm(8, width)
        self.act = nn.SiLU()

    def forward(self, x):
        return self.act(self.norm2(self.conv2(self.act(self.norm1(self.conv1(x))))))


class UNet(nn.Module):
    """An encoder and a decoder with skips: GroupNorm, SiLU, transposed convolutions."""

    def __init__(self, width=48):
        super().__init__()
        self.inc = Down(3, width, 1)
        self.down = nn.ModuleList(Down(width << i, width << (i + 1), 2) for i in range(3))
        self.up = nn.ModuleList(nn.ConvTranspose2d(width << (i + 1), width << i, 2, 2) for i in reversed(range(3)))
        self.join = nn.ModuleList(Down(width << (i + 1), width << i, 1) for i in reversed(range(3)))
        self.out = nn.Conv2d(width, 3, 1)

    def forward(self, x):
        kept = [self.inc(x)]
        for layer in self.down:
            kept.append(layer(kept[-1]))
        y = kept.pop()
        for up, join in zip(self.up, self.join):
            y = join(torch.cat([up(y), kept.pop()], 1))
        return self.out(y)


def _dlrm(device, small, batch, deterministic, wrap):
    rows, wide, batch = (5000, 64, batch or 32) if small else (1000000, 1024, batch or 1024)
    # Where results must be the same each time no row comes twice in a batch: the order of sums is then the only one.
    draw = torch.randperm if deterministic else functools.partial(torch.randint, rows)
    model = wrap(DLRM(rows, wide).to(device))
    offsets = torch.arange(0, batch * 10, 10, device=device)

    def data():
        indices = [(draw(rows)[:batch * 10] if deterministic else draw((batch * 10,))).to(device) for _ in range(8)]
        return (torch.randn(batch, 512).to(device), indices, offsets), torch.rand(batch, 1).to(device)

    return Training(model, torch.optim.SGD(model.parameters(), lr=0.01), nn.BCELoss(),
                    [data() for _ in range(BATCHES)])


def _resnet50(device, small, batch, deterministic, wrap):
    batch, size = batch or (4 if small else 64), 64 if small else 224
    model = wrap((ResNet((1, 1, 1, 1), 16) if small else ResNet()).to(device))
    batches = [((torch.randn(batch, 3, size, size).to(device),), torch.randint(0, 1000, (batch,)).to(device))
               for _ in range(BATCHES)]
    return Training(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), nn.CrossEntropyLoss(), batches)


def _gpt(device, small, batch, deterministic, wrap, amp=False):
    """In bfloat16 by autocast; with amp in float16 with a GradScaler (on a GPU) and each block checkpointed."""
    sizes = {"layers": 2, "width": 64, "heads": 4, "length": 64, "words": 512} if small else {}
    batch = batch or (2 if small else 8)
    model = wrap(GPT(checkpoint=amp, **sizes).to(device))
    length, words = sizes.get("length", 1024), sizes.get("words", 50304)
    scaled = amp and device == "cuda"
    cast = functools.partial(torch.autocast, device, torch.float16 if scaled else torch.bfloat16)
    scaler = torch.amp.GradScaler("cuda") if scaled else None

    def loss(logits, target):
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())

    batches = []
    for _ in range(BATCHES):
        tokens = torch.randint(0, words, (batch, length + 1)).to(device)
        batches.append(((tokens[:, :-1],), tokens[:, 1:]))
    return Training(model, torch.optim.AdamW(model.parameters(), lr=1e-4), loss, batches, cast, scaler)


def _pipeline(device, small, batch, deterministic, wrap, chunks=1):
    """float32: on CUDA two GPUs of this process, on a CPU that one."""
    first, second = ("cuda:0", "cuda:1") if device == "cuda" else (device, device)
    sizes = {"layers": 2, "width": 64, "heads": 4, "length": 64, "words": 512} if small else {}
    batch = batch or 8
    pipeline = Pipeline(first, second, **sizes)
    model = wrap(Chunks(pipeline, chunks) if chunks > 1 else pipeline)
    length, words = sizes.get("length", 512), sizes.get("words", 32000)

    def loss(logits, target):
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())

    batches = []
    for _ in range(BATCHES):
        tokens = torch.randint(0, words, (batch, length + 1))
        batches.append(((tokens[:, :-1].to(first),), tokens[:, 1:].to(second)))
    return Training(model, torch.optim.AdamW(model.parameters(), lr=1e-4), loss, batches)


def _recommender(device, small, batch, deterministic, wrap):
    rows, width, batch = (500, 16, batch or 32) if small else (50000, 128, batch or 4096)
    model = wrap(Recommender(rows, width).to(device))

    def feature():
        lengths = torch.randint(1, 61, (batch,))
        return torch.randint(rows, (int(lengths.sum()),)).to(device), (lengths.cumsum(0) - lengths).to(device)

    def data():
        indices, offsets = zip(*(feature() for _ in range(12)))
        return (torch.randn(batch, 64).to(device), indices, offsets), torch.rand(batch, 1).round().to(device)

    return Training(model, torch.optim.Adagrad(model.parameters(), lr=0.01), nn.BCEWithLogitsLoss(),
                    [data() for _ in range(BATCHES)])


def _unet(device, small, batch, deterministic, wrap):
    batch, size = batch or (2 if small else 24), 32 if small else 160
    model = wrap(UNet(*((8,) if small else ())).to(device))
    batches = [((torch.randn(batch, 3, size, size).to(device),), torch.randn(batch, 3, size, size).to(device))
               for _ in range(BATCHES)]
    return Training(model, torch.optim.Adam(model.parameters(), lr=1e-3), nn.MSELoss(), batches)


def _slow(device, small, batch, deterministic, wrap, short=False):
    width, batch = (64, batch or 64) if small else (8192, batch or 8192)
    model = wrap(Slow(width, short).to(device))
    batches = [((torch.randn(batch, width).to(device),), torch.rand(batch).to(device)) for _ in range(BATCHES)]
    return Training(model, torch.optim.SGD(model.parameters(), lr=1e-3), nn.MSELoss(), batches)


def _many(model, wrap, device, batch, width):
    model = wrap(model.to(device))
    batches = [((torch.randn(batch, width).to(device),), torch.randn(batch, width).to(device)) for _ in range(BATCHES)]
    return Training(model, torch.optim.SGD(model.parameters(), lr=1e-4), nn.MSELoss(), batches)


def _wide(device, small, batch, deterministic, wrap):
    """4,000 leaf layers in 40 blocks."""
    width, pairs = 16, 5 if small else 50
    blocks = [Residual(layer for _ in range(pairs) for layer in (nn.LayerNorm(width), nn.Linear(width, width)))
              for _ in range(40)]
    return _many(nn.Sequential(*blocks), wrap, device, batch or 8, width)


def _nested(device, small, batch, deterministic, wrap):
    """200 blocks, each in the one before."""
    width = 32
    return _many(Nested(width, 20 if small else 200), wrap, device, batch or 16, width)


def _linears(device, small, batch, deterministic, wrap):
    """Matrix products of 25 us, one after the other: a sample is of their like, wherever it begins and ends."""
    width, layers, batch = (64, 4, batch or 64) if small else (1024, 48, batch or 8192)
    model = wrap(nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers))).to(device, torch.bfloat16))
    batches = [((torch.randn(batch, width).to(device, torch.bfloat16),), torch.randn(batch, width).to(device)) for _ in range(BATCHES)]
    return Training(model, torch.optim.SGD(model.parameters(), lr=1e-4), lambda output, target: F.mse_loss(output.float(), target),
                    batches)


# Recommender and U-Net are for accuracy.py: nothing of the probe was tried on them before its figures were taken.
MODELS = {"dlrm": _dlrm, "resnet50": _resnet50, "gpt": _gpt, "recommender": _recommender, "unet": _unet,
          "pipeline": _pipeline, "slow": _slow, "linears": _linears, "wide": _wide, "nested": _nested}
# How the same models can be run besides: name -> (model, what is done with it).
VARIANTS = {"gpt-amp-checkpoint": ("gpt", "amp"), "gpt-compile": ("gpt", "compile"),
            "gpt-reduce-overhead": ("gpt", "reduce-overhead"), "resnet50-compile": ("resnet50", "compile"),
            "resnet50-reduce-overhead": ("resnet50", "reduce-overhead"), "resnet50-ddp": ("resnet50", "ddp"),
            "gpt-fsdp2": ("gpt", "fsdp2"), "pipeline-chunks": ("pipeline", "chunks"),
            "slow-short": ("slow", "short")}


def settle_all(deterministic):
    """The same random numbers each time; with deterministic also the same sums."""
    torch.manual_seed(1)
    if deterministic:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True
        for kind in ("flash", "mem_efficient", "cudnn"):  # their backwards sum in any order
            getattr(torch.backends.cuda, f"enable_{kind}_sdp", bool)(False)


def sharded(model):
    """FSDP2: each block, and the rest."""
    from torch.distributed.fsdp import fully_shard
    for block in model.h:
        fully_shard(block)
    return fully_shard(model)


def compiled(module):
    """The module that torch.compile has compiled, where this is what it gave."""
    return getattr(module, "_orig_mod", None)


def layers(training):
    """[(name, module)] of what is a layer, as results name them: the model's leaves, or all of it where it is compiled."""
    model, loss = training.model, training.loss
    leaves = [(name, module) for name, module in model.named_modules() if not list(module.children())]
    if compiled(model):
        leaves = [(type(compiled(model)).__name__, model)]
    return leaves + ([(type(loss).__name__, loss)] if isinstance(loss, nn.Module) else [])


def parents(training):
    """[(name, module)] of what calls layers, and is one for what it does itself (docs/timing.md)."""
    if compiled(training.model):
        return []
    return [(name or type(module).__name__, module) for name, module in training.model.named_modules()
            if list(module.children()) and type(module).forward is not nn.Sequential.forward
            and not isinstance(module, nn.parallel.DistributedDataParallel)]


def build(name, device, small=False, batch=None, deterministic=False, backend="inductor"):
    """A Training by its name in MODELS, VARIANTS or lab.ELSEWHERE. For ddp the process group is there already."""
    base, variant = VARIANTS.get(name, (name, None))
    settle_all(deterministic)
    for module, names in lab.ELSEWHERE.items():
        if name in names:
            return importlib.import_module(module).TRAININGS[name](device, small, batch)  # a machine has some of the libraries
    wraps = {"compile": lambda model: torch.compile(model, backend=backend),
             "reduce-overhead": lambda model: torch.compile(model, mode="reduce-overhead"),
             "ddp": lambda model: nn.parallel.DistributedDataParallel(model), "fsdp2": sharded}
    more = {variant: True} if variant in ("amp", "short") else {variant: 4} if variant == "chunks" else {}
    return MODELS[base](device, small, batch, deterministic, wraps.get(variant) or (lambda model: model), **more)
