"""Trainings of architectures that nothing of the probe was tried on before accuracy.py asked Nsight Compute about them once:
each of its own library, as its users write it, or of torch itself. docs/accuracy.md has what came of it."""
import torch
from torch import nn

from architectures import Logits, classifier
from libraries import autocast, texts
from training import BATCHES, Training


# ---- torch, torchvision, torchaudio, timm ----

class Recurrent(nn.Module):
    def __init__(self, words, wide, layers):
        super().__init__()
        self.embed = nn.Embedding(words, wide)
        self.lstm = nn.LSTM(wide, wide, layers, batch_first=True)
        self.head = nn.Linear(wide, words)

    def forward(self, tokens):
        return self.head(self.lstm(self.embed(tokens))[0])


def _lstm(device, small, batch):
    words, wide, layers, batch, length = (512, 32, 1, batch or 2, 8) if small else (10000, 1024, 2, batch or 64, 128)
    model = Recurrent(words, wide, layers).to(device)
    tokens = [torch.randint(words, (batch, length + 1), device=device) for _ in range(BATCHES)]
    return Training(model, torch.optim.SGD(model.parameters(), lr=0.1),
                    lambda output, target: nn.functional.cross_entropy(output.flatten(0, 1), target.flatten()),
                    [((row[:, :-1].contiguous(),), row[:, 1:].contiguous()) for row in tokens])


def _densenet(device, small, batch):
    import torchvision
    return classifier(torchvision.models.densenet121(), device, batch or (2 if small else 48), 224, small=small)


def _maxvit(device, small, batch):
    import torchvision
    return classifier(torchvision.models.maxvit_t(), device, batch or (2 if small else 32), 224, autocast(device))


def _nfnet(device, small, batch):
    import timm
    return classifier(timm.create_model("nfnet_l0"), device, batch or (2 if small else 48), 224, small=small)


def _tasnet(device, small, batch):
    import torchaudio
    batch, length = (batch or 2, 800) if small else (batch or 8, 32000)
    sizes = {"enc_num_feats": 32, "msk_num_feats": 16, "msk_num_hidden_feats": 32, "msk_num_layers": 2, "msk_num_stacks": 1}
    model = torchaudio.models.ConvTasNet(num_sources=2, **(sizes if small else {})).to(device)
    batches = [((torch.randn(batch, 1, length, device=device),), torch.randn(batch, 2, length, device=device)) for _ in range(BATCHES)]
    return Training(model, torch.optim.Adam(model.parameters(), lr=1e-3), nn.MSELoss(), batches)


# ---- transformers ----

def _segformer(device, small, batch):
    from transformers import SegformerConfig, SegformerForSemanticSegmentation
    batch, size = (batch or 2, 64) if small else (batch or 8, 512)
    sizes = {"hidden_sizes": [16, 32, 40, 64], "depths": [1, 1, 1, 1], "decoder_hidden_size": 32} if small else \
        {"hidden_sizes": [64, 128, 320, 512], "depths": [3, 4, 6, 3], "decoder_hidden_size": 768}
    model = Logits(SegformerForSemanticSegmentation(SegformerConfig(**sizes, num_labels=21))).to(device)
    batches = [((torch.randn(batch, 3, size, size, device=device),), torch.randint(21, (batch, size // 4, size // 4), device=device))
               for _ in range(BATCHES)]
    return Training(model, torch.optim.AdamW(model.parameters(), lr=6e-5), nn.CrossEntropyLoss(), batches, autocast(device))


class TwoTowers(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, pictures):
        return self.model(input_ids=tokens, pixel_values=pictures, return_loss=True).loss


def _clip(device, small, batch):
    from transformers import CLIPConfig, CLIPModel
    wide, layers, size, batch = (32, 1, 32, batch or 2) if small else (512, 8, 224, batch or 64)
    of_all = {"hidden_size": wide, "intermediate_size": 4 * wide, "num_hidden_layers": layers, "num_attention_heads": 8}
    model = TwoTowers(CLIPModel(CLIPConfig(
        text_config={**of_all, "vocab_size": 1000, "max_position_embeddings": 77, "eos_token_id": 999},
        vision_config={**of_all, "image_size": size, "patch_size": 16}, projection_dim=wide))).to(device)
    batches = [((torch.randint(999, (batch, 77), device=device), torch.randn(batch, 3, size, size, device=device)), None)
               for _ in range(BATCHES)]
    return Training(model, torch.optim.AdamW(model.parameters(), lr=1e-5), lambda output, _: output, batches, autocast(device))


def _gemma(device, small, batch):
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
             "head_dim": 32, "vocab_size": 512} if small else {
                 "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 8, "num_attention_heads": 4,
                 "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 65536}
    model = Gemma3ForCausalLM(Gemma3TextConfig(**sizes, sliding_window=256, use_cache=False)).to(device, torch.bfloat16)
    return texts(device, model, sizes["vocab_size"], batch or (2 if small else 8), 32 if small else 1024,
                 torch.optim.AdamW(model.parameters(), lr=1e-5))


# ---- torch_geometric ----

class Global(nn.Module):
    """Messages between neighbours and attention over a whole graph (GPS)."""

    def __init__(self, wide, layers):
        super().__init__()
        from torch_geometric.nn import GINConv, GPSConv
        self.convs = nn.ModuleList(
            GPSConv(wide, GINConv(nn.Sequential(nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, wide))), heads=4)
            for _ in range(layers))
        self.out = nn.Linear(wide, 1)

    def forward(self, x, edges, graph):
        for conv in self.convs:
            x = conv(x, edges, graph)
        return self.out(x)


def _global(device, small, batch):
    wide, layers, graphs, nodes, edges = (16, 1, 2, 10, 40) if small else (256, 5, batch or 64, 256, 65536)
    model = Global(wide, layers).to(device)
    batches = []
    for _ in range(BATCHES):
        graph = torch.arange(graphs, device=device).repeat_interleave(nodes)
        source = torch.randint(graphs * nodes, (edges,), device=device)
        target = source // nodes * nodes + torch.randint(nodes, (edges,), device=device)
        batches.append(((torch.randn(graphs * nodes, wide, device=device), torch.stack((source, target)), graph),
                        torch.randn(graphs * nodes, 1, device=device)))
    return Training(model, torch.optim.AdamW(model.parameters(), lr=1e-3), nn.MSELoss(), batches)


TRAININGS = {"torch-lstm": _lstm, "torchvision-densenet": _densenet, "torchvision-maxvit": _maxvit, "timm-nfnet": _nfnet,
             "torchaudio-tasnet": _tasnet, "hf-segformer": _segformer, "hf-clip": _clip, "hf-gemma": _gemma, "pyg-gps": _global}
