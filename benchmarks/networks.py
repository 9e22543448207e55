"""Networks in PyTorch, from small ones for predictions to those of MLPerf. Each function returns a module, its inputs
and, for training, the loss of its output.

    deepbench trace benchmarks/networks.py:resnet --set depth=50,batch=8 --train -o resnet50.suite

They are written from the papers' descriptions, with the sizes that MLPerf's references have.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import nn
from torch.nn import functional


def _classes(outputs: int, batch: int):
    target = torch.randint(outputs, (batch,))
    return lambda y: functional.cross_entropy(y, target)


# ---- networks of dense layers


def mlp(width=2048, layers=4, batch=256):
    """Layers with ReLU, as in an autoencoder or the top of a recommender."""
    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*parts, nn.Linear(width, 1000)), torch.randn(batch, width), _classes(1000, batch)


# ---- images


class Bottleneck(nn.Module):
    """1 × 1, 3 × 3 (with the stride, as in version 1.5) and 1 × 1."""

    expansion = 4

    def __init__(self, inputs, width, stride=1):
        super().__init__()
        outputs = width * self.expansion
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class Basic(nn.Module):
    """Two convolutions of 3 × 3."""

    expansion = 1

    def __init__(self, inputs, width, stride=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride > 1 or inputs != width:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


LAYERS = {18: (Basic, (2, 2, 2, 2)), 34: (Basic, (3, 4, 6, 3)), 50: (Bottleneck, (3, 4, 6, 3))}


class ResNet(nn.Module):
    """He et al., "Deep residual learning for image recognition", 2015."""

    def __init__(self, depth=50, classes=1000):
        super().__init__()
        kind, counts = LAYERS[depth]
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        inputs = 64
        for stage, count in enumerate(counts):
            blocks = []
            for i in range(count):
                width = 64 * 2**stage
                blocks.append(kind(inputs, width, 2 if stage and not i else 1))
                inputs = width * kind.expansion
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(inputs, classes)

    def features(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.layer4(self.layer3(self.layer2(self.layer1(x))))

    def forward(self, x):
        return self.fc(self.avgpool(self.features(x)).flatten(1))


def resnet(depth=50, image=224, batch=8):
    """ResNet v1.5."""
    return ResNet(depth), torch.randn(batch, 3, image, image), _classes(1000, batch)


def vgg(image=128, batch=8):
    """VGG-11 (Simonyan and Zisserman, 2014), with narrower dense layers."""
    parts, inputs = [], 3
    for width in (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool"):
        if width == "pool":
            parts.append(nn.MaxPool2d(2))
        else:
            parts += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = width
    side = image // 32
    head = [nn.Flatten(), nn.Linear(512 * side * side, 2048), nn.ReLU(), nn.Linear(2048, 1000)]
    return nn.Sequential(*parts, *head), torch.randn(batch, 3, image, image), _classes(1000, batch)


def mobilenet(image=160, batch=16):
    """MobileNet v1 (Howard et al., 2017): depthwise and 1 × 1 convolutions."""

    def separable(inputs, outputs, stride):
        return [
            *(nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False), nn.BatchNorm2d(inputs), nn.ReLU6()),
            *(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU6()),
        ]

    parts = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()]
    inputs = 32
    for outputs, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2)):
        parts += separable(inputs, outputs, stride)
        inputs = outputs
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000)]
    return nn.Sequential(*parts, *head), torch.randn(batch, 3, image, image), _classes(1000, batch)


class Detector(nn.Module):
    """A single-shot detector (Liu et al., 2015) on the features of a ResNet, with six scales."""

    def __init__(self, depth=34, classes=81, anchors=6):
        super().__init__()
        self.backbone = ResNet(depth)
        inputs = self.backbone.fc.in_features
        widths = (inputs, 512, 256, 256)
        self.extra = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b // 2, 1), nn.ReLU(), nn.Conv2d(b // 2, b, 3, 2, 1), nn.ReLU())
            for a, b in itertools.pairwise(widths)
        )
        self.boxes = nn.ModuleList(nn.Conv2d(width, 4 * anchors, 3, padding=1) for width in widths)
        self.classes = nn.ModuleList(nn.Conv2d(width, classes * anchors, 3, padding=1) for width in widths)
        self.count = classes

    def forward(self, x):
        maps = [self.backbone.features(x)]
        for layer in self.extra:
            maps.append(layer(maps[-1]))
        boxes = [layer(m).flatten(2) for layer, m in zip(self.boxes, maps, strict=True)]
        classes = [
            layer(m).flatten(2).unflatten(1, (self.count, -1)).flatten(2)
            for layer, m in zip(self.classes, maps, strict=True)
        ]
        return torch.cat([b.unflatten(1, (4, -1)).flatten(2) for b in boxes], 2), torch.cat(classes, 2)


def detector(depth=18, image=256, batch=4):
    """SSD with a ResNet backbone."""
    module = Detector(depth)
    x = torch.randn(batch, 3, image, image)

    def loss(y):
        boxes, classes = y
        entropy = functional.cross_entropy(classes.transpose(1, 2).flatten(0, 1), target)
        return functional.smooth_l1_loss(boxes, torch.zeros_like(boxes)) + entropy

    places = sum(math.ceil(image / 2**level) ** 2 for level in (5, 6, 7, 8)) * 6
    target = torch.randint(81, (batch * places,))
    return module, x, loss


class UNet(nn.Module):
    """Ronneberger et al., 2015; with three dimensions the sizes of MLPerf's (Isensee et al., 2018)."""

    def __init__(self, dimensions, inputs, classes, widths):
        super().__init__()
        conv = (nn.Conv2d, nn.Conv3d)[dimensions - 2]
        transposed = (nn.ConvTranspose2d, nn.ConvTranspose3d)[dimensions - 2]
        norm = (nn.InstanceNorm2d, nn.InstanceNorm3d)[dimensions - 2]

        def block(a, b, stride=1):
            parts = [conv(a, b, 3, stride, 1, bias=False), norm(b, affine=True), nn.ReLU(inplace=True)]
            return nn.Sequential(*parts, conv(b, b, 3, 1, 1, bias=False), norm(b, affine=True), nn.ReLU(inplace=True))

        self.input = block(inputs, widths[0])
        self.down = nn.ModuleList(block(a, b, 2) for a, b in itertools.pairwise(widths))
        pairs = list(zip(widths[1:], widths, strict=False))[::-1]
        self.up = nn.ModuleList(transposed(a, b, 2, 2) for a, b in pairs)
        self.after = nn.ModuleList(block(2 * b, b) for _, b in pairs)
        self.output = conv(widths[0], classes, 1)

    def forward(self, x):
        levels = [self.input(x)]
        for layer in self.down:
            levels.append(layer(levels[-1]))
        y = levels.pop()
        for up, after in zip(self.up, self.after, strict=True):
            y = after(torch.cat([up(y), levels.pop()], 1))
        return self.output(y)


def unet(image=128, batch=2, width=32):
    """A U-Net for images."""
    module = UNet(2, 3, 4, [width * 2**i for i in range(5)])
    target = torch.randint(4, (batch, image, image))
    return module, torch.randn(batch, 3, image, image), lambda y: functional.cross_entropy(y, target)


def unet3d(image=128, batch=2):
    """MLPerf's 3D U-Net."""
    module = UNet(3, 1, 3, (32, 64, 128, 256, 320, 320))
    target = torch.randint(3, (batch, image, image, image))
    return module, torch.randn(batch, 1, image, image, image), lambda y: functional.cross_entropy(y, target)


# ---- language


class Words(nn.Module):
    """Predicts words with recurrent layers."""

    def __init__(self, cell, words, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = getattr(nn, cell)(width, width, layers)
        self.output = nn.Linear(width, words)

    def forward(self, x):
        return self.output(self.layers(self.embedding(x))[0]).flatten(0, 1)


def words(cell="LSTM", width=650, layers=2, batch=20, steps=35, vocabulary=10000):
    """A language model of recurrent layers (Zaremba et al., 2014)."""
    target = torch.randint(vocabulary, (steps * batch,))
    x = torch.randint(vocabulary, (steps, batch))
    return Words(cell, vocabulary, width, layers), x, lambda y: functional.cross_entropy(y, target)


class Attention(nn.Module):
    """Self-attention with grouped heads."""

    def __init__(self, width, heads, kv_heads, is_causal, bias):
        super().__init__()
        self.heads, self.kv_heads, self.size, self.is_causal = heads, kv_heads, width // heads, is_causal
        self.q = nn.Linear(width, width, bias=bias)
        self.k = nn.Linear(width, kv_heads * self.size, bias=bias)
        self.v = nn.Linear(width, kv_heads * self.size, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x):
        def split(y, heads):
            return y.unflatten(-1, (heads, self.size)).transpose(1, 2)

        q, k, v = split(self.q(x), self.heads), split(self.k(x), self.kv_heads), split(self.v(x), self.kv_heads)
        y = functional.scaled_dot_product_attention(
            q, k, v, is_causal=self.is_causal, enable_gqa=self.heads != self.kv_heads
        )
        return self.out(y.transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    """A layer of BERT: normalization after the sum."""

    def __init__(self, width, heads, inner):
        super().__init__()
        self.attention = Attention(width, heads, heads, False, True)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.ffn1, self.ffn2 = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.ffn2(functional.gelu(self.ffn1(x))))


class Bert(nn.Module):
    """BERT (Devlin et al., 2018) with both tasks of its pretraining."""

    def __init__(self, width=1024, layers=24, words=30522, positions=512, masked=76):
        super().__init__()
        self.word, self.position = nn.Embedding(words, width), nn.Embedding(positions, width)
        self.kind, self.norm = nn.Embedding(2, width), nn.LayerNorm(width)
        self.layers = nn.ModuleList(EncoderLayer(width, width // 64, 4 * width) for _ in range(layers))
        self.pooler, self.next = nn.Linear(width, width), nn.Linear(width, 2)
        self.transform, self.transform_norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(words))
        self.masked = masked

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device).expand_as(x)
        y = self.norm(self.word(x) + self.position(places) + self.kind(torch.zeros_like(x)))
        for layer in self.layers:
            y = layer(y)
        chosen = y[:, : self.masked].reshape(-1, y.shape[2])
        hidden = self.transform_norm(functional.gelu(self.transform(chosen)))
        logits = functional.linear(hidden, self.word.weight, self.bias)
        return logits, self.next(torch.tanh(self.pooler(y[:, 0])))


def bert(width=1024, layers=24, sequence=512, batch=24, words=30522, masked=76):
    """BERT-large by default."""
    module = Bert(width, layers, words, 512, masked)
    x = torch.randint(words, (batch, sequence))
    target, other = torch.randint(words, (batch * masked,)), torch.randint(2, (batch,))

    def loss(y):
        return functional.cross_entropy(y[0], target) + functional.cross_entropy(y[1], other)

    return module, x, loss


class DecoderLayer(nn.Module):
    """A layer of Llama without rotary positions: RMS normalization, grouped heads and a gated feed-forward layer."""

    def __init__(self, width, heads, kv_heads, inner):
        super().__init__()
        self.attention = Attention(width, heads, kv_heads, True, False)
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """Predicts the next word."""

    def __init__(self, width, layers, heads, kv_heads, inner, words):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.Sequential(*(DecoderLayer(width, heads, kv_heads, inner) for _ in range(layers)))
        self.norm, self.output = nn.RMSNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x):
        return self.output(self.norm(self.layers(self.embedding(x)))).flatten(0, 1)


def decoder(width=512, layers=6, heads=8, kv_heads=2, inner=1536, words=8000, sequence=256, batch=4):
    """A decoder-only transformer."""
    target = torch.randint(words, (batch * sequence,))
    module = Decoder(width, layers, heads, kv_heads, inner, words)
    x = torch.randint(words, (batch, sequence))
    return module, x, lambda y: functional.cross_entropy(y, target)


class Gnmt(nn.Module):
    """GNMT (Wu et al., 2016) as in MLPerf: four layers each, the first of the encoder bidirectional."""

    def __init__(self, width, words):
        super().__init__()
        self.words = nn.Embedding(words, width)  # of both languages
        self.first = nn.LSTM(width, width, bidirectional=True)
        self.encoder = nn.ModuleList(nn.LSTM(n * width, width) for n in (2, 1, 1))
        self.attended = nn.LSTM(width, width)
        self.decoder = nn.ModuleList(nn.LSTM(2 * width, width) for _ in range(3))
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.score = nn.Parameter(torch.randn(width) / width**0.5)
        self.score_bias, self.score_scale = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.ones(1))
        self.classifier = nn.Linear(width, words)

    def forward(self, source, target):
        x = self.words(source)
        x = self.first(x)[0]
        for i, layer in enumerate(self.encoder):
            y = layer(x)[0]
            x = y if not i else y + x
        h = self.attended(self.words(target))[0]
        q, k = self.query(h).transpose(0, 1), self.key(x).transpose(0, 1)
        sums = torch.tanh(q[:, :, None] + k[:, None] + self.score_bias)
        weights = functional.softmax((sums * (self.score * self.score_scale)).sum(-1), -1)
        context = torch.bmm(weights, x.transpose(0, 1)).transpose(0, 1)
        y = h
        for i, layer in enumerate(self.decoder):
            z = layer(torch.cat([y, context], 2))[0]
            y = z if not i else z + y
        return self.classifier(y).flatten(0, 1)


def gnmt(width=1024, words=32320, steps=50, batch=128):
    """MLPerf's GNMT by default."""
    source, target = (torch.randint(words, (steps, batch)) for _ in range(2))
    wanted = torch.randint(words, (steps * batch,))
    return Gnmt(width, words), (source, target), lambda y: functional.cross_entropy(y, wanted)


# ---- speech


class Speech(nn.Module):
    """Deep Speech 2 (Amodei et al., 2015): two convolutions, bidirectional GRUs whose directions are added."""

    def __init__(self, hidden, layers, bands, padded):
        super().__init__()
        pads = [(20, 5), (10, 5)] if padded else [(0, 0), (0, 0)]
        self.conv = nn.Sequential(
            *(nn.Conv2d(1, 32, (41, 11), (2, 2), pads[0]), nn.BatchNorm2d(32), nn.Hardtanh(0, 20, inplace=True)),
            *(nn.Conv2d(32, 32, (21, 11), (2, 1), pads[1]), nn.BatchNorm2d(32), nn.Hardtanh(0, 20, inplace=True)),
        )
        height = bands
        for (pad, _), window in zip(pads, (41, 21), strict=True):
            height = (height + 2 * pad - window) // 2 + 1
        self.rnns = nn.ModuleList(
            nn.GRU(32 * height if not i else hidden, hidden, bidirectional=True) for i in range(layers)
        )
        self.norm, self.fc = nn.BatchNorm1d(hidden), nn.Linear(hidden, 29, bias=False)
        self.hidden = hidden

    def forward(self, x):
        y = self.conv(x).flatten(1, 2).permute(2, 0, 1).contiguous()
        for layer in self.rnns:
            y = layer(y)[0].unflatten(2, (2, self.hidden)).sum(2)
        steps, batch, _ = y.shape
        return self.fc(self.norm(y.flatten(0, 1))).unflatten(0, (steps, batch))


def deepspeech2(hidden=2560, layers=3, batch=8, frames=1501, bands=161, padded=0, labels=184):
    """MLPerf's reference by default."""
    module = Speech(hidden, layers, bands, padded)
    width = frames
    for pad, window, stride in (((5 if padded else 0), 11, 2), ((5 if padded else 0), 11, 1)):
        width = (width + 2 * pad - window) // stride + 1
    lengths, counts = torch.full((batch,), width), torch.full((batch,), labels)
    target = torch.randint(1, 29, (batch, labels))

    def loss(y):
        return functional.ctc_loss(functional.log_softmax(y, 2), target, lengths, counts)

    return module, torch.randn(batch, 1, bands, frames), loss


# ---- recommendation


class Recommender(nn.Module):
    """DLRM (Naumov et al., 2019) with the crossing layers of DCN v2 (Wang et al., 2021)."""

    def __init__(self, tables, bags, dim, rank, crosses, bottom, top):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, dim, mode="sum") for rows in tables)
        self.bags = bags
        width = dim * (len(tables) + 1)

        def dense(widths):
            pairs = list(itertools.pairwise(widths))
            return nn.Sequential(*(part for a, b in pairs for part in (nn.Linear(a, b), nn.ReLU())))

        self.bottom = dense((13, *bottom))
        self.v = nn.ModuleList(nn.Linear(width, rank, bias=False) for _ in range(crosses))
        self.w = nn.ModuleList(nn.Linear(rank, width) for _ in range(crosses))
        self.top, self.output = dense((width, *top)), nn.Linear(top[-1], 1)

    def forward(self, x, *indices):
        dense = self.bottom(x)
        found = [table(i) for table, i in zip(self.tables, indices, strict=True)]
        start = y = torch.cat([dense, *found], 1)
        for v, w in zip(self.v, self.w, strict=True):
            y = torch.addcmul(y, start, w(v(y)))
        return self.output(self.top(y)).flatten()


DLRM_TABLES = (
    *(40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40000000, 3067956, 405282, 10, 2209, 11938, 155, 4, 976),
    *(14, 40000000, 40000000, 40000000, 590152, 12973, 108, 36),
)
DLRM_BAGS = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)


def dlrm(batch=8192, most_rows=40000000, dim=128):
    """MLPerf's DLRM-DCNv2; `most_rows` limits the tables."""
    tables = tuple(min(rows, most_rows) for rows in DLRM_TABLES)
    module = Recommender(tables, DLRM_BAGS, dim, 512, 3, (512, 256, dim), (1024, 1024, 512, 256))
    indices = [torch.randint(rows, (batch, bag)) for rows, bag in zip(tables, DLRM_BAGS, strict=True)]
    target = torch.rand(batch).round()
    x = torch.randn(batch, 13)
    return module, (x, *indices), lambda y: functional.binary_cross_entropy_with_logits(y, target)
