"""Trainings of architectures on which nothing of the probe has been tried: accuracy.py asks Nsight Compute about each of them once,
when all else is done. Each is of its own library, as its users write it."""
import torch
from torch import nn

from architectures import FromTo, Logits, classifier
from libraries import autocast, texts
from training import BATCHES, Training


# ---- torchvision, torchaudio, timm ----

def _hrnet(device, small, batch):
    import timm
    return classifier(timm.create_model("hrnet_w18_small_v2"), device, batch or (2 if small else 48), 224, small=small)


class Flow(nn.Module):
    """Where pixels went, refined again and again."""

    def __init__(self, model, times):
        super().__init__()
        self.model = model
        self.times = times

    def forward(self, before, after):
        return torch.stack(self.model(before, after, num_flow_updates=self.times))


def _raft(device, small, batch):
    import torchvision
    batch, height, width, times = (batch or 1, 128, 128, 2) if small else (batch or 8, 368, 496, 12)
    model = Flow(torchvision.models.optical_flow.raft_small(), times).to(device)
    batches = [(tuple(torch.rand(batch, 3, height, width, device=device) * 2 - 1 for _ in range(2)),
                torch.randn(batch, 2, height, width, device=device)) for _ in range(BATCHES)]
    return Training(model, torch.optim.AdamW(model.parameters(), lr=4e-4), lambda flows, target: (flows - target).abs().mean(), batches)


def _demucs(device, small, batch):
    import torchaudio
    batch, length = (batch or 1, 22050) if small else (batch or 4, 220500)
    sizes = {"channels": 8, "nfft": 1024, "depth": 5} if small else {"nfft": 4096, "depth": 6}
    model = torchaudio.models.HDemucs(sources=["drums", "bass", "other", "vocals"], **sizes).to(device)
    batches = [((torch.randn(batch, 2, length, device=device),), torch.randn(batch, 4, 2, length, device=device)) for _ in range(BATCHES)]
    return Training(model, torch.optim.Adam(model.parameters(), lr=3e-4), nn.L1Loss(), batches)


# ---- transformers ----

def _own_loss(output, _):
    return output


def _modernbert(device, small, batch):
    from transformers import ModernBertConfig, ModernBertForMaskedLM
    words, length, batch = (512, 64, batch or 2) if small else (50368, 1024, batch or 16)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4} if small else \
        {"hidden_size": 768, "intermediate_size": 1152, "num_hidden_layers": 14, "num_attention_heads": 12}
    config = ModernBertConfig(**sizes, vocab_size=words, pad_token_id=0, bos_token_id=1, cls_token_id=1, eos_token_id=2, sep_token_id=2,
                              attn_implementation="sdpa", reference_compile=False)
    model = FromTo(ModernBertForMaskedLM(config), "input_ids").to(device)
    batches = []
    for _ in range(BATCHES):
        tokens = torch.randint(3, words, (batch, length), device=device)
        batches.append(((tokens, torch.where(torch.rand(batch, length, device=device) < 0.3, tokens, -100)), None))
    return Training(model, torch.optim.AdamW(model.parameters(), lr=8e-4), _own_loss, batches, autocast(device))


def _qwen(device, small, batch):
    from transformers import Qwen3Config, Qwen3ForCausalLM
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
             "head_dim": 16, "vocab_size": 512} if small else {
                 "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 10, "num_attention_heads": 16,
                 "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 32768}
    model = Qwen3ForCausalLM(Qwen3Config(**sizes, use_cache=False)).to(device, torch.bfloat16)
    return texts(device, model, sizes["vocab_size"], batch or (2 if small else 8), 32 if small else 1024,
                 torch.optim.AdamW(model.parameters(), lr=1e-5))


class Series(nn.Module):
    """A forecast of many series at once, by its own loss."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, past, future):
        return self.model(past_values=past, future_values=future).loss


def _patchtst(device, small, batch):
    from transformers import PatchTSTConfig, PatchTSTForPrediction
    channels, past, future, batch = (3, 64, 16, batch or 2) if small else (21, 512, 96, batch or 128)
    sizes = {"d_model": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "ffn_dim": 32} if small else \
        {"d_model": 128, "num_attention_heads": 16, "num_hidden_layers": 3, "ffn_dim": 256}
    model = Series(PatchTSTForPrediction(PatchTSTConfig(num_input_channels=channels, context_length=past, prediction_length=future,
                                                        patch_length=16, patch_stride=8, **sizes))).to(device)
    batches = [((torch.randn(batch, past, channels, device=device), torch.randn(batch, future, channels, device=device)), None)
               for _ in range(BATCHES)]
    return Training(model, torch.optim.Adam(model.parameters(), lr=1e-4), _own_loss, batches)


def _dino(device, small, batch):
    from transformers import Dinov2Config, Dinov2ForImageClassification
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 56} if small else \
        {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "image_size": 224}
    model = Logits(Dinov2ForImageClassification(Dinov2Config(**sizes, patch_size=14, num_labels=1000))).to(device)
    batch, size = batch or (2 if small else 64), sizes["image_size"]
    batches = [((torch.randn(batch, 3, size, size, device=device),), torch.randint(1000, (batch,), device=device)) for _ in range(BATCHES)]
    return Training(model, torch.optim.AdamW(model.parameters(), lr=1e-4), nn.CrossEntropyLoss(), batches, autocast(device))


def _mamba(device, small, batch):
    from transformers import Mamba2Config, Mamba2ForCausalLM
    sizes = {"hidden_size": 64, "num_heads": 4, "head_dim": 32, "state_size": 16, "num_hidden_layers": 1, "vocab_size": 512,
             "chunk_size": 16} if small else {
                 "hidden_size": 768, "num_heads": 24, "head_dim": 64, "state_size": 64, "num_hidden_layers": 6, "vocab_size": 32000,
                 "chunk_size": 128}
    model = Mamba2ForCausalLM(Mamba2Config(**sizes, n_groups=1, use_cache=False)).to(device)
    return texts(device, model, sizes["vocab_size"], batch or (2 if small else 4), 32 if small else 512,
                 torch.optim.AdamW(model.parameters(), lr=1e-4))


# ---- torch_geometric ----

class Attention(nn.Module):
    """Each node weighs what its neighbours say (GATv2)."""

    def __init__(self, features, wide, heads, layers, classes):
        super().__init__()
        from torch_geometric.nn import GATv2Conv
        sizes = [features] + [wide * heads] * (layers - 1)
        self.convs = nn.ModuleList(GATv2Conv(size, wide, heads=heads) for size in sizes)
        self.out = nn.Linear(wide * heads, classes)

    def forward(self, x, edges):
        for conv in self.convs:
            x = nn.functional.elu(conv(x, edges))
        return self.out(x)


def _gat(device, small, batch):
    features, wide, heads, layers, nodes, edges = (16, 8, 2, 1, 40, 200) if small else (128, 64, 4, 3, 32768, 524288)
    model = Attention(features, wide, heads, layers, 40).to(device)
    batches = [((torch.randn(nodes, features, device=device), torch.randint(nodes, (2, edges), device=device)),
                torch.randint(40, (nodes,), device=device)) for _ in range(BATCHES)]
    return Training(model, torch.optim.Adam(model.parameters(), lr=5e-3), nn.CrossEntropyLoss(), batches)


TRAININGS = {"timm-hrnet": _hrnet, "torchvision-raft": _raft, "torchaudio-demucs": _demucs, "hf-modernbert": _modernbert,
             "hf-qwen": _qwen, "hf-patchtst": _patchtst, "hf-dino": _dino, "hf-mamba": _mamba, "pyg-gat": _gat}
