"""A training as users of a library write it, small, on the CPU.

usage: library_train.py TRAINING STEPS [by-hand]

Prints each step's loss, when each step was over and, with `by-hand`, what hooks of its own count and time (by_hand.py).
PP_LIBRARIES  a folder with the libraries, where this Python has none of its own
"""
import contextlib
import json
import os
import pathlib
import sys
import tempfile
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2] / "e2e/bench"), *filter(None, [os.environ.get("PP_LIBRARIES")])]
os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import by_hand  # noqa: E402

BATCHES = 4  # that take turns
WORDS = 512


class Told:
    """What a training says of itself."""

    def __init__(self, steps, watched):
        self.steps, self.watched, self.hooks, self.model = steps, watched, None, None
        self.losses, self.ends = [], []
        self.begins = []  # of what steps, where that is long: the step ends within

    def begin(self, model):
        """Before the first step, with the model as it is called."""
        self.model = model
        self.hooks = by_hand.Hooks(getattr(model, "module", model)) if self.watched else None  # what DistributedDataParallel wraps

    def loss(self, loss):
        self.losses.append(float(loss).hex())

    def step(self, loss=None):
        """A step is over: its optimizer has stepped."""
        self.ends.append(time.time_ns())
        if self.hooks:
            self.hooks.end_step()
        if loss is not None:
            self.loss(loss.detach())

    def line(self):
        parameters = sum(float(p.detach().double().sum()) for p in self.model.parameters())
        return "loop " + json.dumps({"iterations": len(self.ends), "losses": self.losses, "parameters": parameters.hex(),
                                     "begins": self.begins, "ends": self.ends,
                                     "by_hand": self.hooks.steps if self.hooks else []})


def plain_loop(told, model, optimizer, loss_of):
    """loss_of(i) is the loss of the i-th batch."""
    told.begin(model)
    for i in range(told.steps):
        optimizer.zero_grad()
        loss = loss_of(i % BATCHES)
        loss.backward()
        optimizer.step()
        told.step(loss)


def classify(told, model, inputs, classes):
    """Plain training of a classifier of random inputs, of these shapes."""
    batches = [torch.randn(*inputs) for _ in range(BATCHES)]
    targets = [torch.randint(classes, inputs[:1]) for _ in range(BATCHES)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    plain_loop(told, model, optimizer, lambda i: F.cross_entropy(model(batches[i]), targets[i]))


def texts(batch=4, length=128):
    return [torch.randint(WORDS, (batch, length)) for _ in range(BATCHES)]


def adamw(model):
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)


class Texts(torch.utils.data.Dataset):
    """Random tokens, as many texts as a training asks for."""

    def __init__(self, count):
        self.tokens = torch.randint(WORDS, (count, 128))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return {"input_ids": self.tokens[i], "labels": self.tokens[i]}


# ---- no library ----

def policy_gradient(told):
    import libraries
    model = libraries.ActorCritic(64, 512, 16)
    training = libraries.PolicyGradient(model, torch.optim.Adam(model.parameters(), lr=3e-4), 128, 64, "cpu")
    told.begin(model)
    for _ in range(told.steps):
        told.step(training.step())


# ---- transformers, peft, accelerate ----

def llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(hidden_size=768, intermediate_size=2048, num_hidden_layers=2, num_attention_heads=4,
                                        vocab_size=WORDS, use_cache=False)).to(torch.bfloat16)


def hf_llama(told):
    model, batches = llama(), texts()
    plain_loop(told, model, adamw(model), lambda i: model(input_ids=batches[i], labels=batches[i]).loss)


def peft_lora(told):
    import peft
    model = peft.get_peft_model(llama().float(), peft.LoraConfig(
        r=8, lora_alpha=8, lora_dropout=0.0, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    batches = texts()
    plain_loop(told, model, adamw(model), lambda i: model(input_ids=batches[i], labels=batches[i]).loss)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=512, n_head=4, vocab_size=WORDS, n_positions=128, use_cache=False))


def hf_trainer(told):
    """transformers' Trainer, with checkpoints of the blocks, two batches a step."""
    import dataclasses

    import transformers

    class Trainer(transformers.Trainer):
        def training_step(self, *arguments, **named):
            loss = super().training_step(*arguments, **named)
            told.loss(loss)
            return loss

    class Steps(transformers.TrainerCallback):
        def on_step_end(self, *_, **__):
            told.step()

    model = gpt2()
    known = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder, max_steps=told.steps, per_device_train_batch_size=2, gradient_accumulation_steps=2, gradient_checkpointing=True,
            report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
            **{"use_cpu" if "use_cpu" in known else "no_cuda": True})
        told.begin(model)
        Trainer(model, arguments, train_dataset=Texts(4 * told.steps), callbacks=[Steps()]).train()


def accelerate_accumulation(told):
    """Four batches a step."""
    from accelerate import Accelerator
    from transformers import BertConfig, BertForMaskedLM
    model = BertForMaskedLM(BertConfig(num_hidden_layers=1, hidden_size=512, num_attention_heads=4, intermediate_size=1024,
                                       vocab_size=WORDS))
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    loader = torch.utils.data.DataLoader(Texts(16 * told.steps), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, adamw(model), loader)
    told.begin(model)
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            told.step(loss)


# ---- timm, torchvision, torch_geometric, torchrec, torchtune ----

def timm_vit(told):
    from timm.models.vision_transformer import VisionTransformer
    classify(told, VisionTransformer(embed_dim=192, num_heads=3, depth=2), (8, 3, 224, 224), 1000)


def timm_convnext(told):
    from timm.models.convnext import ConvNeXt
    classify(told, ConvNeXt(depths=(1, 1, 2, 1), dims=(96, 192, 384, 768)), (8, 3, 128, 128), 1000)


def torchvision_resnet(told):
    import torchvision
    classify(told, torchvision.models.resnet18(), (8, 3, 96, 96), 1000)


def pyg_graph(told):
    import libraries
    model = libraries.Graph(256, 2)
    graphs = [(torch.randn(4000, 256), torch.randint(4000, (2, 16000)), torch.randint(40, (4000,))) for _ in range(BATCHES)]
    plain_loop(told, model, adamw(model), lambda i: F.cross_entropy(model(*graphs[i][:2]), graphs[i][2]))


def torchrec_dlrm(told):
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
    from torchrec.models.dlrm import DLRM, DLRMTrain
    batch, keys = 2048, ["user", "item", "shop"]
    tables = [EmbeddingBagConfig(name=key, embedding_dim=64, num_embeddings=2000, feature_names=[key]) for key in keys]
    model = DLRMTrain(DLRM(EmbeddingBagCollection(tables=tables, device=torch.device("cpu")), 256, [512, 64], [512, 256, 1]))

    class Batch:
        def __init__(self):
            self.dense_features, self.labels = torch.randn(batch, 256), torch.randint(2, (batch,))
            self.sparse_features = KeyedJaggedTensor.from_lengths_sync(
                keys, torch.randint(2000, (len(keys) * batch * 4,)), torch.full((len(keys) * batch,), 4))

    batches = [Batch() for _ in range(BATCHES)]
    plain_loop(told, model, adamw(model), lambda i: model(batches[i])[0])


def torchtune_llama(told):
    from torchtune.models.llama3 import llama3
    model = llama3(vocab_size=WORDS, num_layers=2, num_heads=4, num_kv_heads=2, embed_dim=512, max_seq_len=128,
                   intermediate_dim=1024)
    batches = texts()

    def loss_of(i):
        logits = model(batches[i][:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), batches[i][:, 1:].flatten())
    plain_loop(told, model, adamw(model), loss_of)


# ---- Lightning ----

def fit(told, model, count, **options):
    """By Lightning's Trainer, of `count` batches."""
    import lightning
    trainer = lightning.Trainer(accelerator="cpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, **options)
    told.begin(model)
    batches = pictures()
    trainer.fit(model, torch.utils.data.DataLoader([batches[i % BATCHES] for i in range(count)], batch_size=None))


def pictures():
    return [(torch.randn(1024, 256), torch.randint(10, (1024,))) for _ in range(BATCHES)]


def network(inside, outside):
    return nn.Sequential(nn.Linear(inside, 512), nn.LeakyReLU(0.2), nn.Linear(512, 512), nn.LeakyReLU(0.2), nn.Linear(512, outside))


def lightning_automatic(told):
    """Automatic optimization, two batches a step."""
    import lightning

    class Classifier(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network(256, 10)

        def training_step(self, batch, index):
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            told.loss(loss.detach())
            return loss

        def on_train_batch_end(self, outputs, batch, index):
            if index % 2:
                told.step()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    fit(told, Classifier(), 2 * told.steps, accumulate_grad_batches=2)


def lightning_gan(told):
    """Manual optimization: two networks against each other, each with an optimizer of its own."""
    import lightning

    class Gan(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.generator, self.critic = network(64, 256), network(256, 1)

        def training_step(self, batch, index):
            first, second = self.optimizers()
            real = batch[0]
            made = self.generator(torch.randn(len(real), 64))
            first.zero_grad()
            self.manual_backward(F.softplus(-self.critic(made)).mean())
            first.step()
            second.zero_grad()
            loss = (F.softplus(self.critic(made.detach())) + F.softplus(-self.critic(real))).mean()
            self.manual_backward(loss)
            second.step()
            told.step(loss)

        def configure_optimizers(self):
            return [torch.optim.Adam(self.generator.parameters(), lr=2e-4), torch.optim.Adam(self.critic.parameters(), lr=2e-4)]

    fit(told, Gan(), told.steps)


# ---- several processes ----

def deepspeed_zero(stage):
    """A function that trains with this stage of ZeRO; one rank of as many as torchrun has started, over gloo."""
    def train(told):
        import deepspeed
        deepspeed.init_distributed("gloo")
        model = network(256, 10)
        told.begin(model)  # before ZeRO-3 hangs what gathers a module's parameters on its calls: that is in their time
        engine, *_ = deepspeed.initialize(model=model, config={
            "train_micro_batch_size_per_gpu": 1024, "gradient_accumulation_steps": 2, "zero_optimization": {"stage": stage},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}}})
        batches = pictures()
        for i in range(2 * told.steps):
            x, y = batches[i % BATCHES]
            loss = F.cross_entropy(engine(x), y)
            engine.backward(loss)
            if i % 2:
                told.begins.append(time.time_ns())
            engine.step()
            if i % 2:
                told.step(loss)
    return train


def ray_train(told):
    """Two workers with DistributedDataParallel; what the first says is printed here."""
    import ray
    from ray import train
    from ray.train.torch import TorchTrainer

    steps, watched, here = told.steps, told.watched, str(pathlib.Path(__file__).parent)
    folder = tempfile.mkdtemp()

    def work(config):
        sys.path.insert(0, here)
        from library_train import Told, adamw, network, pictures, plain_loop
        torch.manual_seed(5)
        torch.set_num_threads(1)
        own = Told(steps, watched)
        model = train.torch.prepare_model(network(256, 10))
        batches = pictures()
        plain_loop(own, model, adamw(model), lambda i: F.cross_entropy(model(batches[i][0]), batches[i][1]))
        if train.get_context().get_world_rank() == 0:
            pathlib.Path(folder, "told").write_text(own.line())

    TorchTrainer(work, scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
                 run_config=train.RunConfig(storage_path=folder)).fit()
    ray.shutdown()
    told.line = lambda: pathlib.Path(folder, "told").read_text()


TRAININGS = {
    "policy-gradient": policy_gradient, "hf-llama": hf_llama, "hf-trainer": hf_trainer, "peft-lora": peft_lora,
    "accelerate-accumulation": accelerate_accumulation, "timm-vit": timm_vit, "timm-convnext": timm_convnext,
    "torchvision-resnet": torchvision_resnet, "pyg-graph": pyg_graph, "torchrec-dlrm": torchrec_dlrm,
    "torchtune-llama": torchtune_llama, "lightning-automatic": lightning_automatic, "lightning-gan": lightning_gan,
    "deepspeed-zero1": deepspeed_zero(1), "deepspeed-zero2": deepspeed_zero(2), "deepspeed-zero3": deepspeed_zero(3),
    "ray-train": ray_train,
}


def ranks(training):
    """Of DeepSpeed's trainings torchrun starts two ranks, of which the first prints."""
    if training.startswith("deepspeed") and "RANK" not in os.environ:
        os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", *sys.argv])


def main():
    ranks(sys.argv[1])
    torch.manual_seed(5)
    torch.set_num_threads(1)
    told = Told(int(sys.argv[2]), "by-hand" in sys.argv)
    with contextlib.redirect_stdout(sys.stderr):
        TRAININGS[sys.argv[1]](told)
    if int(os.environ.get("RANK", 0)) == 0:
        print(told.line(), flush=True)


if __name__ == "__main__":
    main()
