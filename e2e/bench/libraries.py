"""Trainings of real libraries, as their users write them: timm, transformers, peft, torch_geometric, torchvision, Lightning."""
import contextlib
import functools
import queue
import threading

import torch
from torch import nn
from torch.nn import functional as F

from training import BATCHES, Training


def autocast(device, dtype=torch.bfloat16):
    return functools.partial(torch.autocast, device, dtype)


def images(device, batch, size, classes=1000):
    return [((torch.randn(batch, 3, size, size, device=device),), torch.randint(classes, (batch,), device=device))
            for _ in range(BATCHES)]


# ---- timm and torchvision ----

def _vit(device, small, batch):
    import timm
    model = timm.create_model("vit_tiny_patch16_224" if small else "vit_base_patch16_224").to(device)
    return Training(model, torch.optim.AdamW(model.parameters(), lr=1e-4), nn.CrossEntropyLoss(),
                    images(device, batch or (2 if small else 64), 224), autocast(device))


def _small_vit(device, small, batch):
    """In float16 with a GradScaler, on a GPU; its host sets the pace."""
    import timm
    model = timm.create_model("vit_tiny_patch16_224" if small else "vit_small_patch16_224").to(device)
    scaled = device == "cuda"
    return Training(model, torch.optim.AdamW(model.parameters(), lr=1e-4), nn.CrossEntropyLoss(),
                    images(device, batch or (2 if small else 16), 224),
                    autocast(device, torch.float16) if scaled else contextlib.nullcontext,
                    torch.amp.GradScaler("cuda") if scaled else None)


def _convnext(device, small, batch):
    import timm
    model = timm.create_model("convnext_atto" if small else "convnext_tiny").to(device)
    return Training(model, torch.optim.AdamW(model.parameters(), lr=1e-4), nn.CrossEntropyLoss(),
                    images(device, batch or (2 if small else 64), 64 if small else 224))


def _compiled_resnet(device, small, batch):
    import torchvision
    model = torch.compile(torchvision.models.resnet18().to(device))
    return Training(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), nn.CrossEntropyLoss(),
                    images(device, batch or (2 if small else 64), 64 if small else 224))


# ---- transformers and peft ----

def llama(device, small):
    from transformers import LlamaConfig, LlamaForCausalLM
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
             "vocab_size": 512} if small else {
                 "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8, "num_attention_heads": 16,
                 "vocab_size": 32000}
    return LlamaForCausalLM(LlamaConfig(**sizes, use_cache=False)).to(device, torch.bfloat16), sizes["vocab_size"]


def texts(device, model, words, batch, length, optimizer):
    """A training of a language model on random tokens, by the loss of the next one."""
    batches = []
    for _ in range(BATCHES):
        tokens = torch.randint(words, (batch, length), device=device)
        batches.append(((tokens,), tokens))

    def loss(output, target):
        logits = output.logits[:, :-1].float()
        return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())

    return Training(model, optimizer, loss, batches)


def _llama(device, small, batch):
    model, words = llama(device, small)
    return texts(device, model, words, batch or (2 if small else 8), 32 if small else 1024,
                 torch.optim.AdamW(model.parameters(), lr=1e-4))


def _lora(device, small, batch):
    import peft
    model, words = llama(device, small)
    model = peft.get_peft_model(model, peft.LoraConfig(
        r=8, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], task_type="CAUSAL_LM"))
    return texts(device, model, words, batch or 2, 32 if small else 512,
                 torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4))


# ---- torch_geometric ----

class Graph(nn.Module):
    def __init__(self, wide, layers):
        super().__init__()
        from torch_geometric.nn import GCNConv, SAGEConv
        kinds = [GCNConv, SAGEConv]
        self.convs = nn.ModuleList(kinds[i % 2](wide, wide) for i in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(wide) for _ in range(layers))
        self.out = nn.Linear(wide, 40)

    def forward(self, x, edges):
        for conv, norm in zip(self.convs, self.norms):
            x = x + F.relu(conv(norm(x), edges))
        return self.out(x)


def graph(device, nodes, edges, wide, layers):
    model = Graph(wide, layers).to(device)
    batches = [((torch.randn(nodes, wide, device=device), torch.randint(nodes, (2, edges), device=device)),
                torch.randint(40, (nodes,), device=device)) for _ in range(BATCHES)]
    return Training(model, torch.optim.Adam(model.parameters(), lr=1e-3), nn.CrossEntropyLoss(), batches)


def _graph(device, small, batch):
    return graph(device, *((200, 1000, 16, 2) if small else (20000, 200000, 128, 4)))


def _big_graph(device, small, batch):
    return graph(device, *((200, 1000, 16, 2) if small else (100000, 1000000, 192, 4)))


# ---- policy gradient ----

class ActorCritic(nn.Module):
    def __init__(self, inside, wide, actions):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inside, wide), nn.Tanh(), nn.Linear(wide, wide), nn.Tanh())
        self.actor, self.critic = nn.Linear(wide, actions), nn.Linear(wide, 1)

    def forward(self, x):
        y = self.body(x)
        return self.actor(y), self.critic(y).squeeze(-1)


class PolicyGradient(Training):
    """PPO: a rollout in an environment on the device, then four updates of clipped ratios; step() does one update."""

    UPDATES, LENGTH = 4, 8

    def __init__(self, model, optimizer, rooms, inside, device):
        super().__init__(model, optimizer, None, [])
        self.state = torch.randn(rooms, inside, device=device)
        self.move = torch.randn(inside, inside, device=device) / inside ** 0.5
        self.told = None

    @torch.no_grad()
    def roll_out(self):
        seen = []
        for _ in range(self.LENGTH):
            logits, value = self.model(self.state)
            policy = torch.distributions.Categorical(logits=logits, validate_args=False)
            action = policy.sample()
            reward = -(self.state.mean(1) - action / logits.shape[1]) ** 2
            seen.append((self.state, action, policy.log_prob(action), reward - value))
            self.state = torch.tanh(self.state @ self.move + 0.1 * torch.randn_like(self.state))
        return [torch.cat(column) for column in zip(*seen)]

    def step(self):
        if self.number % self.UPDATES == 0:
            self.told = self.roll_out()
        self.number += 1
        states, actions, before, advantage = self.told
        self.optimizer.zero_grad(set_to_none=True)
        logits, value = self.model(states)
        policy = torch.distributions.Categorical(logits=logits, validate_args=False)
        ratio = (policy.log_prob(actions) - before).exp()
        gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        loss = -gain + 0.5 * value.pow(2).mean() - 0.01 * policy.entropy().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def _policy(device, small, batch):
    inside, wide, rooms = (8, 16, 4) if small else (64, 1024, batch or 2048)
    model = ActorCritic(inside, wide, 16).to(device)
    return PolicyGradient(model, torch.optim.Adam(model.parameters(), lr=3e-4), rooms, inside, device)


# ---- Lightning ----

class Fitted:
    """A training whose loop is a framework's: it runs in a thread of its own, and goes on by one batch for each step()."""

    def __init__(self, model, optimizer, fit):
        self.model, self.optimizer, self.loss = model, optimizer, None
        self.asked, self.done = queue.SimpleQueue(), queue.SimpleQueue()
        threading.Thread(target=self.run, args=(fit,), daemon=True).start()
        self.done.get()  # its preparations are over: it asks for a batch

    def run(self, fit):
        try:
            fit(self)
        except BaseException as error:  # whoever waits for a step is told
            self.done.put(error)
            raise

    def __iter__(self):
        while True:
            self.done.put(None)
            for function in iter(self.asked.get, None):
                function()
                self.done.put(None)
            yield 0

    def step(self):
        self.within(None)

    def within(self, function):
        """Calls it in the thread that runs the steps; None: it does one."""
        self.asked.put(function)
        error = self.done.get()
        if error is not None:
            raise error


def _lightning(device, small, batch):
    """Two networks against each other, each with an optimizer of its own."""
    import lightning

    wide, size, batch = (8, 64, batch or 4) if small else (64, 784, batch or 4096)

    def network(inside, outside):
        return nn.Sequential(nn.Linear(inside, 16 * wide), nn.LeakyReLU(0.2), nn.Linear(16 * wide, 16 * wide), nn.LeakyReLU(0.2),
                             nn.Linear(16 * wide, outside))

    class Gan(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.generator, self.critic = network(64, size), network(size, 1)

        def training_step(self, index):
            first, second = self.optimizers()
            real = torch.randn(batch, size, device=self.device)
            made = self.generator(torch.randn(batch, 64, device=self.device))
            first.zero_grad()
            self.manual_backward(F.softplus(-self.critic(made)).mean())
            first.step()
            second.zero_grad()
            self.manual_backward((F.softplus(self.critic(made.detach())) + F.softplus(-self.critic(real))).mean())
            second.step()

        def configure_optimizers(self):
            return [torch.optim.Adam(self.generator.parameters(), lr=2e-4), torch.optim.Adam(self.critic.parameters(), lr=2e-4)]

    class Forever(torch.utils.data.IterableDataset):
        def __init__(self, batches):
            self.batches = batches

        def __iter__(self):
            return iter(self.batches)

    model = Gan()

    def fit(batches):
        trainer = lightning.Trainer(accelerator=device if device == "cpu" else "gpu", devices=1, max_epochs=1, logger=False,
                                    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
        trainer.fit(model, torch.utils.data.DataLoader(Forever(batches), batch_size=None))

    return Fitted(model, None, fit)


TRAININGS = {"timm-vit": _vit, "timm-small-vit": _small_vit, "timm-convnext": _convnext, "torchvision-compiled": _compiled_resnet,
             "hf-llama": _llama, "peft-lora": _lora, "pyg-graph": _graph, "pyg-big-graph": _big_graph,
             "policy-gradient": _policy, "lightning-gan": _lightning}
