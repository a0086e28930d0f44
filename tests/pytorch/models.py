"""Models as people have them, chosen by MODEL, trained by Starling or (plain_losses) by a loop of torch alone;
and, by WRONG, what a script can do wrong. A job's numbers come from the environment: STEPS, WORKERS, OUT."""

import copy
import os
import sys
import time

import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import starling

MODEL = os.environ.get("MODEL", "mlp")
WRONG = os.environ.get("WRONG", "")
MICRO_BATCHES, BATCH = 8, 4


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(32, 64), nn.ReLU(), nn.LayerNorm(64), nn.Dropout(0.1), nn.Linear(64, 4))

    def forward(self, x):
        return self.layers(x)


class Averaged(Mlp):
    """With a slow average of itself, which takes part in what it says."""

    def __init__(self):
        super().__init__()
        self.average = starling.moving(copy.deepcopy(self.layers).requires_grad_(False))

    def forward(self, x):
        if self.training:
            for slow, now in zip(self.average.parameters(), self.layers.parameters()):
                slow.lerp_(now.detach(), 0.01)
        return self.layers(x) + 0.5 * self.average(x)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
            nn.Dropout(0.1), nn.Linear(128, 4))

    def forward(self, x):
        return self.layers(x)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(64, 32)
        self.lstm = nn.LSTM(32, 48, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(48, 4)

    def forward(self, x):
        return self.head(self.lstm(self.embed(x))[0][:, -1])


class BatchNormed(Mlp):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(32, momentum=None)

    def forward(self, x):
        return self.layers(self.norm(x))


class Residual(nn.Module):
    """Two convolutions beside a short way: He et al., 2016, "Deep Residual Learning for Image Recognition"."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
                                  nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after))
        self.short = nn.Identity() if before == after and stride == 1 else nn.Sequential(
            nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


class ResNet18(nn.Module):
    """With running statistics that move. WIDTH=64 is the paper's."""

    def __init__(self, width=int(os.environ.get("WIDTH", "8"))):
        super().__init__()
        layers = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        for i, after in enumerate((width, 2 * width, 4 * width, 8 * width)):
            layers += [Residual(width if i == 0 else after // 2, after, 1 if i == 0 else 2), Residual(after, after, 1)]
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(8 * width, 4)

    def forward(self, x):
        return self.head(self.body(x))


class Vit(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 2, 2)
        self.first = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(1, 17, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.1, "gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 3, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.body(x)[:, 0])


class Unet(nn.Module):
    """Predicts the noise in a picture at some time: Ho et al., 2020, "Denoising Diffusion Probabilistic Models"."""

    def __init__(self, width=16):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.into = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, 2 * width, 3, 2, 1))
        self.middle = nn.Sequential(nn.GroupNorm(4, 2 * width), nn.SiLU(), nn.Conv2d(2 * width, 2 * width, 3, padding=1))
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.out = nn.Sequential(nn.GroupNorm(4, 2 * width), nn.SiLU(), nn.Conv2d(2 * width, 3, 3, padding=1))

    def forward(self, x, time):
        x = self.into(x) + self.time(time[:, None])[:, :, None, None]
        return self.out(torch.cat([x, self.up(self.middle(self.down(x)))], 1))

    def loss(self, pictures):
        """Draws times and noise: a micro-batch's own."""
        time = torch.rand(len(pictures))
        noise = torch.randn_like(pictures)
        kept = torch.cos(time * torch.pi / 2)[:, None, None, None]
        return nn.functional.mse_loss(self(pictures * kept + noise * (1 - kept ** 2).sqrt(), time), noise)


class Seq2Seq(nn.Module):
    """Says a sequence backwards."""

    def __init__(self, vocabulary=64, width=48):
        super().__init__()
        self.embed = nn.Embedding(vocabulary + 1, width)
        self.body = nn.Transformer(width, 4, 2, 2, 2 * width, 0.1, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def loss(self, tokens):
        wanted = tokens.flip(1)
        begun = torch.cat([torch.full_like(wanted[:, :1], 64), wanted[:, :-1]], 1)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        made = self.head(self.body(self.embed(tokens), self.embed(begun), tgt_mask=mask, tgt_is_causal=True))
        return nn.functional.cross_entropy(made.flatten(0, 1), wanted.flatten())


class Frozen(nn.Module):
    """A body that is trained elsewhere, with running statistics that stand still, and a new head."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
        self.more = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32, momentum=0.0), nn.ReLU())
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.1), nn.Linear(128, 4))
        nn.init.uniform_(self.body[1].running_mean)
        nn.init.uniform_(self.body[1].running_var, 0.5, 2.0)
        self.body.requires_grad_(False).eval()

    def forward(self, x):
        return self.head(self.more(self.body(x)))


class Counting(Mlp):
    def __init__(self):
        super().__init__()
        self.inner = nn.Module()
        self.inner.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.inner.seen += 1
        return super().forward(x)


class Tokens(Dataset):
    """Token sequences with something to learn: each follows from the one before."""

    def __init__(self, samples, length, vocabulary):
        generator = torch.Generator().manual_seed(11)
        first = torch.randint(vocabulary, (samples, 1), generator=generator)
        stride = torch.randint(1, 4, (samples, 1), generator=generator)
        self.tokens = (first + stride * torch.arange(length)) % vocabulary

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return self.tokens[i]


class Endless(IterableDataset):
    def __iter__(self):
        return iter(())


def classified(shape, integer=False):
    generator = torch.Generator().manual_seed(7)
    x = torch.randint(64, (512, *shape), generator=generator) if integer else \
        torch.randn(512, *shape, generator=generator)
    flat = x.reshape(512, -1).float()
    half = flat.shape[1] // 2
    y = (flat[:, :half].mean(1) > flat.mean()).long() + 2 * (flat[:, half:].mean(1) > flat.mean()).long()
    return TensorDataset(x, y)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=32, n_embd=64, n_layer=2, n_head=2))


def gpt2_124m():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config())


def half():
    return gpt2().to(torch.bfloat16)


def bert():
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig(vocab_size=128, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
                                      intermediate_size=128, max_position_embeddings=32))


TRANSFORMERS = {"gpt2": gpt2, "gpt2-124m": gpt2_124m, "bert": bert, "half": half}


def sized(parameters):
    """About so many parameters, most of them in one matrix each, and little to compute."""
    width = 1024
    layers = max(1, parameters // (width * width))
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)), nn.Linear(width, 4))


def build():
    if MODEL in TRANSFORMERS:
        return TRANSFORMERS[MODEL](), Tokens(512, 24, 128)
    if MODEL.startswith("sized-"):
        return sized(int(MODEL[6:])), classified((1024,))
    net, shape = {"averaged": (Averaged, (32,)), "cnn": (Cnn, (3, 8, 8)), "frozen": (Frozen, (3, 8, 8)), "resnet": (ResNet18, (3, 16, 16)),
                  "vit": (Vit, (3, 8, 8)), "unet": (Unet, (3, 8, 8)), "lstm": (Lstm, (12,)), "seq2seq": (Seq2Seq, (12,)),
                  }.get(MODEL, (Mlp, (32,)))
    net, data = net(), classified(shape, integer=net in (Lstm, Seq2Seq))
    if WRONG == "batchnorm":
        net = BatchNormed()
    if WRONG == "buffer":
        net = Counting()
    if WRONG == "double":
        net = net.double()
    if WRONG == "iterable":
        data = Endless()
    return net, data


def misbehave(net):
    """What a loss does wrong, at the second pass of a process at the earliest; what is done once leaves
    the file ONCE behind."""
    misbehave.calls += 1
    if misbehave.calls < 12:
        return None
    if WRONG in ("exit", "hang", "memory", "raise-once") and not os.path.exists(os.environ["ONCE"]):
        open(os.environ["ONCE"], "w").close()
        if WRONG == "exit":
            os._exit(7)
        if WRONG == "hang":
            time.sleep(3600)
        if WRONG == "raise-once":
            raise ValueError("no such colour")
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:  # pages
            size = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 30), size + (1 << 30)))
        held = []
        while True:
            held.append(torch.empty(64 << 20))  # never touched: pages would take longer than a pass may
    if WRONG == "fork" and os.fork() == 0:
        time.sleep(3600)
    if WRONG == "fork-returns":
        os.fork()
    if WRONG == "raise":
        raise ValueError("no such colour")
    if WRONG == "shape":
        return net(torch.zeros(3, 5))
    if WRONG == "parameter":
        with torch.no_grad():
            next(net.parameters()).mul_(0.5)
    if WRONG == "data":
        next(net.parameters()).data.clamp_(-0.01, 0.01)
    if WRONG == "optimizer":
        torch.optim.SGD(net.parameters(), lr=0.1).step()
    if WRONG == "three":
        return torch.zeros(()), {}, 1
    if WRONG == "no-gradient":
        return torch.zeros(())
    if WRONG == "many":
        return sum(p.sum() for p in net.parameters()).repeat(3)
    return None


misbehave.calls = 0


PACE = float(os.environ.get("PACE", "0"))  # seconds that a micro-batch takes at least: time for kills


def loss(net, batch):
    time.sleep(PACE)
    if WRONG:
        given = misbehave(net)
        if given is not None:
            return given
    if MODEL in TRANSFORMERS:
        return net(input_ids=batch, labels=batch).loss
    x, y = batch
    if hasattr(net, "loss"):
        return net.loss(x)
    return nn.functional.cross_entropy(net(x), y)


RATE, WARMUP, FLOOR = 2e-3, 5, 0.1


def plain_losses(steps, order, out=None, change=None):
    """The same training by torch alone, in one process. order(step, m): numbers of the samples; change(net) is called
    before the first step. Saves what moves beside the parameters, running statistics, by its names."""
    from starling import statistics
    from starling.module import seed_everything

    torch.set_num_threads(1)
    seed_everything(1)
    net, data = build()
    if change is not None:
        change(net)
    collate = torch.utils.data.default_collate
    # Of a net of bfloat16 the optimizer has parameters in float32, with which the net computes rounded.
    own, masters = list(net.parameters()), list(net.parameters())
    rounds = any(p.dtype != torch.float32 for p in own)
    if rounds:
        masters = [nn.Parameter(p.detach().float()) for p in own]
    decayed = [p for p in masters if p.dim() >= 2]
    others = [p for p in masters if p.dim() < 2]
    moving = statistics.of(net)
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=RATE, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        total, begun = 0.0, [t.clone() for _, t in moving]
        made = [torch.zeros_like(t) for t in begun]  # each micro-batch begins with the step's; the mean of them counts
        for m in range(MICRO_BATCHES):
            seed_everything(1, step, m)
            value = loss(net, collate([data[i] for i in order(step, m)]))
            (value / MICRO_BATCHES).backward()
            for p, master in zip(own, masters) if rounds else ():
                master.grad = p.grad.float() + (0 if master.grad is None else master.grad)
                p.grad = None
            total += value.item() / MICRO_BATCHES
            for (_, now), old, mean in zip(moving, begun, made):
                mean += now / MICRO_BATCHES
                now.copy_(old)
        nn.utils.clip_grad_norm_(masters, 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        optimizer.step()
        for p, master in zip(own, masters) if rounds else ():
            p.data.copy_(master.data)
        for (_, now), mean in zip(moving, made):
            now.copy_(mean)
        losses.append(total)
    if out is not None:
        torch.save(dict(moving), out)
    return losses


def rate(step, steps):
    import math

    if step < WARMUP:
        return RATE * (step + 1) / WARMUP
    if step + 1 >= steps:
        return RATE * FLOOR
    return RATE * (FLOOR + (1 - FLOOR) * (1 + math.cos(math.pi * (step + 1 - WARMUP) / (steps - WARMUP))) / 2)


if __name__ == "__main__":
    starling.train(build, loss, steps=int(os.environ.get("STEPS", "40")), micro_batches=MICRO_BATCHES, batch_size=BATCH,
                   optimizer=starling.AdamW(RATE, warmup=WARMUP), workers=int(os.environ.get("WORKERS", "2")),
                   out=os.environ.get("OUT"), lease_ms=int(os.environ.get("LEASE_MS", "5000")),
                   command=sys.argv[1:])
