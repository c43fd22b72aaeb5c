"""Trainings of architectures that nothing of the probe was tried on before accuracy.py asked Nsight Compute about them once:
each of its own library, as its users write it. docs/accuracy.md has what came of it."""
import torch
from torch import nn

from libraries import autocast, images, texts
from training import BATCHES, Training


def classifier(model, device, batch, size, cast=None, small=False):
    """A training of an image classifier by SGD, on random images."""
    more = (cast,) if cast else ()
    return Training(model.to(device), torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), nn.CrossEntropyLoss(),
                    images(device, batch, 64 if small else size), *more)


# ---- torchvision, torchaudio ----

def _resnext(device, small, batch):
    import torchvision
    return classifier(torchvision.models.resnext50_32x4d(), device, batch or (2 if small else 64), 224, small=small)


def _swin(device, small, batch):
    import torchvision
    return classifier(torchvision.models.swin_t(), device, batch or (2 if small else 64), 224, autocast(device), small)


def _efficientnet(device, small, batch):
    import torchvision
    return classifier(torchvision.models.efficientnet_v2_s(), device, batch or (2 if small else 48), 224, autocast(device), small)


class Speech(nn.Module):
    def __init__(self, wide, layers, words):
        super().__init__()
        import torchaudio
        self.conformer = torchaudio.models.Conformer(80, 4, wide, layers, 31)
        self.head = nn.Linear(80, words)

    def forward(self, features, lengths):
        return self.head(self.conformer(features, lengths)[0])


def _conformer(device, small, batch):
    batch, length, words = batch or (2 if small else 16), 40 if small else 800, 128
    model = Speech(64 if small else 1024, 1 if small else 8, words).to(device)
    batches = [((torch.randn(batch, length, 80, device=device), torch.full((batch,), length, device=device)),
                torch.randint(words, (batch, length), device=device)) for _ in range(BATCHES)]
    return Training(model, torch.optim.AdamW(model.parameters(), lr=1e-4),
                    lambda output, target: nn.functional.cross_entropy(output.flatten(0, 1), target.flatten()), batches)


# ---- transformers ----

def _mixtral(device, small, batch):
    from transformers import MixtralConfig, MixtralForCausalLM
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512,
             "num_key_value_heads": 2} if small else {
                 "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 4, "num_attention_heads": 16,
                 "num_key_value_heads": 4, "vocab_size": 32000}
    model = MixtralForCausalLM(MixtralConfig(**sizes, num_local_experts=8, use_cache=False)).to(device, torch.bfloat16)
    return texts(device, model, sizes["vocab_size"], batch or (2 if small else 8), 32 if small else 1024,
                 torch.optim.AdamW(model.parameters(), lr=1e-5))


class FromTo(nn.Module):
    """A model of transformers by its own loss, of an input and the labels, by positions."""

    def __init__(self, model, name):
        super().__init__()
        self.model, self.name = model, name

    def forward(self, given, labels):
        return self.model(**{self.name: given}, labels=labels).loss


def _translation(device, model, name, given, words, length, batch):
    model = FromTo(model.to(device, torch.bfloat16), name)
    batches = [((given(), torch.randint(words, (batch, length), device=device)), None) for _ in range(BATCHES)]
    return Training(model, torch.optim.AdamW(model.parameters(), lr=1e-5), lambda output, _: output, batches)


def _t5(device, small, batch):
    from transformers import T5Config, T5ForConditionalGeneration
    words, batch, length = (512, batch or 2, 16) if small else (32128, batch or 16, 512)
    sizes = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4} if small else {
        "d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 8, "num_heads": 12}
    model = T5ForConditionalGeneration(T5Config(**sizes, vocab_size=words, feed_forward_proj="gated-gelu", use_cache=False,
                                                decoder_start_token_id=0))
    return _translation(device, model, "input_ids", lambda: torch.randint(words, (batch, length), device=device), words,
                        length // 2, batch)


def _whisper(device, small, batch):
    from transformers import WhisperConfig, WhisperForConditionalGeneration
    words, batch, frames = (512, batch or 2, 100) if small else (51865, batch or 8, 3000)
    wide, layers = (64, 1) if small else (512, 6)
    model = WhisperForConditionalGeneration(WhisperConfig(
        vocab_size=words, d_model=wide, encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=4 * wide, decoder_ffn_dim=4 * wide, max_source_positions=frames // 2,
        use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1))
    return _translation(device, model, "input_features",
                        lambda: torch.randn(batch, 80, frames, device=device, dtype=torch.bfloat16), words, 16 if small else 256,
                        batch)


# ---- diffusers ----

class Denoiser(nn.Module):
    def __init__(self, unet):
        super().__init__()
        self.unet = unet

    def forward(self, noisy, times):
        return self.unet(noisy, times).sample


def _diffusion(device, small, batch):
    from diffusers import UNet2DModel
    size, wide, batch = (32, (32, 64), batch or 2) if small else (64, (128, 256, 384, 512), batch or 32)
    down = ("DownBlock2D",) * (len(wide) - 1) + ("AttnDownBlock2D",)
    up = ("AttnUpBlock2D",) + ("UpBlock2D",) * (len(wide) - 1)
    model = Denoiser(UNet2DModel(sample_size=size, block_out_channels=wide, down_block_types=down, up_block_types=up)).to(device)
    batches = [((torch.randn(batch, 3, size, size, device=device), torch.randint(1000, (batch,), device=device)),
                torch.randn(batch, 3, size, size, device=device)) for _ in range(BATCHES)]
    return Training(model, torch.optim.AdamW(model.parameters(), lr=1e-4), nn.MSELoss(), batches, autocast(device))


# ---- e3nn ----

class Equivariant(nn.Module):
    """Messages along the edges of a graph by tensor products with spherical harmonics, and gates: what NequIP is made of."""

    def __init__(self, wide, layers):
        super().__init__()
        from e3nn import o3
        self.inner = o3.Irreps(f"{wide}x0e + {wide}x1o")
        self.harmonics = o3.Irreps.spherical_harmonics(2)
        self.embed = o3.Linear(o3.Irreps(f"{wide}x0e"), self.inner)
        self.mix = nn.ModuleList(o3.Linear(self.inner, self.inner) for _ in range(layers))
        self.products = nn.ModuleList(o3.FullyConnectedTensorProduct(self.inner, self.harmonics, self.inner,
                                                                     shared_weights=True) for _ in range(layers))
        self.out = o3.Linear(self.inner, o3.Irreps("1x0e"))

    def forward(self, x, places, edges):
        from e3nn import o3
        source, target = edges
        way = o3.spherical_harmonics(self.harmonics, places[source] - places[target], normalize=True,
                                     normalization="component")
        x = self.embed(x)
        for mix, product in zip(self.mix, self.products):
            message = product(x[source], way)
            x = mix(x + torch.zeros_like(x).index_add_(0, target, message) / 4)
        return self.out(x).sum(0)


def _equivariant(device, small, batch):
    wide, layers, nodes, edges = (4, 1, 20, 60) if small else (32, 3, batch or 4000, 40000)
    model = Equivariant(wide, layers).to(device)
    batches = [((torch.randn(nodes, wide, device=device), torch.randn(nodes, 3, device=device),
                 torch.randint(nodes, (2, edges), device=device)), torch.randn(1, device=device)) for _ in range(BATCHES)]
    return Training(model, torch.optim.Adam(model.parameters(), lr=1e-3), nn.MSELoss(), batches)


# ---- for a second evaluation ----

def _video(device, small, batch):
    import torchvision
    batch, frames, size = batch or (2 if small else 16), (4 if small else 8), (32 if small else 112)
    model = torchvision.models.video.r3d_18().to(device)
    batches = [((torch.randn(batch, 3, frames, size, size, device=device),), torch.randint(400, (batch,), device=device))
               for _ in range(BATCHES)]
    return Training(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), nn.CrossEntropyLoss(), batches)


def _segmentation(device, small, batch):
    import torchvision
    batch, size = batch or (2 if small else 16), (64 if small else 256)
    model = torchvision.models.segmentation.deeplabv3_resnet50(weights_backbone=None, num_classes=21).to(device)
    batches = [((torch.randn(batch, 3, size, size, device=device),), torch.randint(21, (batch, size, size), device=device))
               for _ in range(BATCHES)]
    return Training(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
                    lambda output, target: nn.functional.cross_entropy(output["out"], target), batches, autocast(device))


def _mixer(device, small, batch):
    import timm
    return classifier(timm.create_model("mixer_s32_224" if small else "mixer_b16_224"), device, batch or (2 if small else 64), 224,
                   autocast(device))


def _regnet(device, small, batch):
    import timm
    return classifier(timm.create_model("regnety_002" if small else "regnety_016"), device, batch or (2 if small else 96), 224,
                   small=small)


def _neox(device, small, batch):
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM
    sizes = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512} if small \
        else {"hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 6, "num_attention_heads": 16, "vocab_size": 50432}
    model = GPTNeoXForCausalLM(GPTNeoXConfig(**sizes, use_cache=False)).to(device, torch.bfloat16)
    return texts(device, model, sizes["vocab_size"], batch or (2 if small else 8), 32 if small else 1024,
                 torch.optim.AdamW(model.parameters(), lr=1e-5))


class Logits(nn.Module):
    """What a model of transformers gives as logits."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, given):
        return self.model(given).logits


def _deberta(device, small, batch):
    from transformers import DebertaV2Config, DebertaV2ForTokenClassification
    words, batch, length = (512, batch or 2, 16) if small else (32000, batch or 16, 512)
    wide, layers = (64, 1) if small else (768, 4)
    model = Logits(DebertaV2ForTokenClassification(DebertaV2Config(
        vocab_size=words, hidden_size=wide, num_hidden_layers=layers, num_attention_heads=wide // 16 if small else 12,
        intermediate_size=4 * wide, relative_attention=True, position_buckets=64, pos_att_type=["p2c", "c2p"], num_labels=16))).to(device)
    batches = [((torch.randint(words, (batch, length), device=device),), torch.randint(16, (batch, length), device=device))
               for _ in range(BATCHES)]
    return Training(model, torch.optim.AdamW(model.parameters(), lr=1e-5),
                    lambda output, target: nn.functional.cross_entropy(output.flatten(0, 1), target.flatten()), batches,
                    autocast(device))


def _wav2vec(device, small, batch):
    from transformers import Wav2Vec2Config, Wav2Vec2ForSequenceClassification
    batch, length = (batch or 2, 4000) if small else (batch or 16, 64000)
    wide, layers = (48, 1) if small else (768, 4)
    model = Logits(Wav2Vec2ForSequenceClassification(Wav2Vec2Config(
        hidden_size=wide, num_hidden_layers=layers, num_attention_heads=12, intermediate_size=4 * wide, num_labels=16,
        mask_time_prob=0.0, layerdrop=0.0))).to(device)
    batches = [((torch.randn(batch, length, device=device),), torch.randint(16, (batch,), device=device)) for _ in range(BATCHES)]
    return Training(model, torch.optim.AdamW(model.parameters(), lr=1e-5), nn.CrossEntropyLoss(), batches, autocast(device))


class Attention(nn.Module):
    def __init__(self, wide, layers):
        super().__init__()
        from torch_geometric.nn import GATv2Conv
        self.convs = nn.ModuleList(GATv2Conv(wide, wide // 4, heads=4, edge_dim=8) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(wide) for _ in range(layers))
        self.out = nn.Linear(wide, 16)

    def forward(self, x, edges, of_edges):
        for conv, norm in zip(self.convs, self.norms):
            x = x + nn.functional.elu(norm(conv(x, edges, of_edges)))
        return self.out(x)


def _attention(device, small, batch):
    wide, layers, nodes, edges = (16, 2, 100, 400) if small else (256, 4, batch or 40000, 400000)
    model = Attention(wide, layers).to(device)
    batches = [((torch.randn(nodes, wide, device=device), torch.randint(nodes, (2, edges), device=device),
                 torch.randn(edges, 8, device=device)), torch.randint(16, (nodes,), device=device)) for _ in range(BATCHES)]
    return Training(model, torch.optim.Adam(model.parameters(), lr=1e-3), nn.CrossEntropyLoss(), batches)


SECOND = {"torchvision-video": _video, "torchvision-segmentation": _segmentation, "timm-mixer": _mixer, "timm-regnet": _regnet,
          "hf-neox": _neox, "hf-deberta": _deberta, "hf-wav2vec": _wav2vec, "pyg-attention": _attention}
TRAININGS = {**SECOND, "torchvision-resnext": _resnext, "torchvision-swin": _swin, "torchvision-efficientnet": _efficientnet,
             "torchaudio-conformer": _conformer, "hf-mixtral": _mixtral, "hf-t5": _t5, "hf-whisper": _whisper,
             "diffusers-unet": _diffusion, "e3nn-messages": _equivariant}
