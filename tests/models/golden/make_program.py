#!/usr/bin/env python3
"""Makes program/NAME.pt2, small exported programs, and NAME.json, what PyTorch computes with them.

words is a language model with what exported programs have in common: tied words, a table of positions, repeated
modules, a mask that is computed from the arguments, a region without gradients, dropout, and a shift of the labels.
heads has what tensor parallelism splits: fused and grouped attention, gated MLPs, per-head norms, and, between
them, products that it cannot split. fixed_heads is the same model, exported for 4 samples of 5 tokens. patches has convolutions and
products whose columns a norm needs. sections has products that make several things of unequal sizes, such as queries of
which several share a key. pairs is an encoder with a decoder: the labels are shifted in place, and biases of attention
are looked up in a table that all blocks of a side share. pictures classifies images: its samples are tensors, and its
blocks receive a row for each patch and one for the class. fixed_pictures is the same model, exported for 3 samples.
sounds is an encoder of tensors with a decoder. channels passes [batch, channels, length] from block to block, has
positions that all samples share, and a product of parameters that all blocks use.

  tests/models/golden/make_program.py        (needs torch 2.11)
"""
import json
import pathlib

import torch
from torch import nn
from torch.export import Dim

DATA = pathlib.Path(__file__).parent / "program"
WORDS, POSITIONS, FEATURES, BLOCKS = 11, 8, 4, 2
WIDTH, DROPOUT = 8, 0.1  # for heads.pt2
CHANNELS = 6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(FEATURES, bias=False)
        self.up, self.down = nn.Linear(FEATURES, 8), nn.Linear(8, FEATURES, bias=False)
        self.drop = nn.Dropout(0.0)

    def forward(self, x, shares):
        seen = shares @ self.norm(x)
        return x + self.drop(self.down(nn.functional.gelu(self.up(seen), approximate="tanh")))


class Words(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, FEATURES), nn.Embedding(POSITIONS, FEATURES)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList([Block() for _ in range(BLOCKS)])
        self.head = nn.Linear(FEATURES, WORDS, bias=False)
        self.head.weight = self.words.weight
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 0.5, 1.0]))

    def forward(self, input_ids, attention_mask, labels):
        length = input_ids.shape[1]
        with torch.no_grad():  # each position becomes the mean over itself and the positions before it
            places = torch.arange(length)
            seen = (places[None, :] <= places[:, None])[None] & attention_mask[:, None, :].bool()
            shares = seen.float() / seen.sum(-1, keepdim=True)
        x = self.drop(self.words(input_ids) + self.places(places))
        for block in self.blocks:
            x = block(x, shares)
        logits = self.head(x * self.scale)
        next_labels = nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
        loss = nn.functional.cross_entropy(logits.view(-1, WORDS), next_labels.reshape(-1), ignore_index=-100)
        return {"loss": loss, "logits": logits}


class Fused(nn.Module):
    """Attention of 3 heads whose queries, keys and values are one product, with a bias by head and distance."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(WIDTH, 3 * 6) / 3), nn.Parameter(torch.randn(3 * 6) / 3)
        self.out = nn.Linear(6, WIDTH)
        self.drop = nn.Dropout(DROPOUT)
        self.register_buffer("slopes", torch.tensor([1.0, 0.5, 0.25]))

    def forward(self, x, distances):
        batch, length, _ = x.shape
        qkv = torch.addmm(self.bias, x.view(-1, WIDTH), self.weight).view(batch, length, 3 * 6)
        q, k, v = (part.view(batch, length, -1, 2).transpose(1, 2) for part in qkv.split(6, dim=2))
        scores = q @ k.transpose(-1, -2) * 0.7 - self.slopes[None, :, None, None] * distances
        scores = torch.where(distances < 0, torch.finfo(scores.dtype).min, scores)
        seen = self.drop(torch.softmax(scores, -1)) @ v
        return self.out(seen.transpose(1, 2).reshape(batch, length, 6))


class Grouped(nn.Module):
    """Attention of 8 queries that share 2 keys and values, with per-head norms."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(WIDTH, 16), nn.Linear(WIDTH, 4, bias=False), nn.Linear(WIDTH, 4)
        self.q_norm, self.k_norm = nn.LayerNorm(2), nn.RMSNorm(2)
        self.out = nn.Linear(16, WIDTH, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        q = self.q_norm(self.q(x).view(batch, length, 8, 2)).transpose(1, 2)
        k = self.k_norm(self.k(x).view(batch, length, 2, 2)).transpose(1, 2)
        v = self.v(x).view(batch, length, 2, 2).transpose(1, 2)
        k, v = (part[:, :, None].expand(batch, 2, 4, length, 2).reshape(batch, 8, length, 2) for part in (k, v))
        k = torch.cat((-k[..., 1:], k[..., :1]), -1) + k
        seen = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=DROPOUT, is_causal=True)
        return self.out(seen.transpose(1, 2).reshape(batch, length, -1))


class Gated(nn.Module):
    """A gated MLP of 7 columns whose gate has dropout, after a product whose columns a softmax needs."""

    def __init__(self):
        super().__init__()
        self.mixed, self.gate, self.up = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 7), nn.Linear(WIDTH, 7, bias=False)
        self.down, self.drop = nn.Linear(7, WIDTH), nn.Dropout(DROPOUT)

    def forward(self, x):
        x = torch.softmax(self.mixed(x), -1) * x
        return self.down(nn.functional.silu(self.drop(self.gate(x))) * self.up(x))


class HeadsBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.fused, self.grouped, self.gated = Fused(), Grouped(), Gated()
        self.drop = nn.Dropout(DROPOUT)

    def forward(self, x, distances):
        x = x + self.fused(self.first(x), distances)
        x = x + self.drop(self.grouped(self.second(x)))
        return x + self.gated(self.third(x))


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=2)
        self.blocks = nn.ModuleList([HeadsBlock()])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, input_ids, labels):
        places = torch.arange(input_ids.shape[1])
        distances = places[:, None] - places[None, :]
        x = self.words(input_ids)
        for block in self.blocks:
            x = block(x, distances)
        logits = self.head(self.norm(x))
        next_labels = nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
        loss = nn.functional.cross_entropy(logits.view(-1, WORDS), next_labels.reshape(-1), ignore_index=-100)
        return {"loss": loss, "logits": logits}


class Mixed(nn.Module):
    """Two products, each before something that needs all of its columns."""

    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(16, 64), nn.LayerNorm(64), nn.Linear(64, 16)

    def forward(self, x):
        return x + self.down(self.norm(self.up(x)))


class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 32)
        self.patch, self.norm = nn.Conv1d(1, 64, 16, stride=16), nn.LayerNorm(64)
        self.first, self.second = nn.Conv1d(64, 40, 1), nn.Conv1d(40, 16, 2)
        self.blocks = nn.ModuleList([Mixed()])
        self.head = nn.Linear(16, WORDS)

    def forward(self, input_ids, labels):
        x = self.norm(self.patch(self.words(input_ids).reshape(-1, 1, 32)).transpose(1, 2)).transpose(1, 2)
        x = self.second(nn.functional.gelu(self.first(x))).reshape(*input_ids.shape, 16)
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)
        next_labels = nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
        loss = nn.functional.cross_entropy(logits.view(-1, WORDS), next_labels.reshape(-1), ignore_index=-100)
        return {"loss": loss, "logits": logits}


def attend(q, k, v):
    return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class OneKey(nn.Module):
    """Attention of 3 queries with one key, from one product that is split twice."""

    def __init__(self):
        super().__init__()
        self.fused, self.out = nn.Linear(12, 12 + 2 * 4), nn.Linear(12, 12)

    def forward(self, x):
        q, shared = self.fused(x).split((12, 2 * 4), dim=2)
        k, v = (part.unsqueeze(1).expand(-1, 3, -1, -1) for part in shared.split((4, 4), dim=-1))
        return self.out(attend(q.view(*x.shape[:2], 3, 4).transpose(1, 2), k, v))


class Sliced(nn.Module):
    """Attention of 4 queries that share 2 keys, as slices of one product."""

    def __init__(self):
        super().__init__()
        self.fused, self.out = nn.Linear(12, 12 + 6 + 6), nn.Linear(12, 12, bias=False)

    def forward(self, x):
        qkv = self.fused(x)
        q, k, v = (part.view(*x.shape[:2], -1, 3).transpose(1, 2) for part in (qkv[..., :12], qkv[..., 12:18], qkv[..., 18:]))
        k, v = (part[:, :, None].expand(-1, -1, 2, -1, -1).reshape(x.shape[0], 4, x.shape[1], 3) for part in (k, v))
        return self.out(attend(q, k, v))


class Picked(nn.Module):
    """Attention of 3 queries with one key, picked among the heads of one product."""

    def __init__(self):
        super().__init__()
        self.fused, self.out = nn.Linear(12, 5 * 4, bias=False), nn.Linear(12, 12)

    def forward(self, x):
        heads = self.fused(x).view(*x.shape[:2], 5, 4)
        q, k, v = (part.transpose(1, 2) for part in (heads[..., :-2, :], heads[..., [-2], :], heads[..., [-1], :]))
        return self.out(attend(q, k.expand(-1, 3, -1, -1), v.expand(-1, 3, -1, -1)))


class Unequal(nn.Module):
    """A gated MLP of 10 columns and another one of 5, from one product."""

    def __init__(self):
        super().__init__()
        self.fused, self.down, self.other = nn.Linear(12, 10 + 5 + 10), nn.Linear(10, 12), nn.Linear(5, 12)

    def forward(self, x):
        gate, alone, up = self.fused(x).split([10, 5, 10], dim=-1)
        return self.down(nn.functional.silu(gate) * up).add_(self.other(torch.tanh(alone)))


class SectionsBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"one": OneKey(), "sliced": Sliced(), "picked": Picked(), "unequal": Unequal()})
        self.norms = nn.ModuleDict({name: nn.LayerNorm(12) for name in self.parts})

    def forward(self, x):
        for name, part in self.parts.items():
            x = x + part(self.norms[name](x))
        return x


class Sections(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.blocks = nn.Embedding(WORDS, 12), nn.ModuleList([SectionsBlock()])
        self.head = nn.Linear(12, WORDS)

    def forward(self, input_ids, labels):
        x = self.words(input_ids)
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)
        next_labels = nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
        loss = nn.functional.cross_entropy(logits.view(-1, WORDS), next_labels.reshape(-1), ignore_index=-100)
        return {"loss": loss, "logits": logits}


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(FEATURES, FEATURES, bias=False) for _ in range(3))

    def forward(self, x, memory, mask, dropout):
        heads = [part.unflatten(-1, (2, 2)).transpose(1, 2) for part in (self.q(x), self.k(memory), self.v(memory))]
        return nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask, dropout_p=dropout).transpose(1, 2).flatten(2)


class Side(nn.Module):
    """A block of the encoder or, with `crosses`, of the decoder."""
    def __init__(self, crosses, dropout):
        super().__init__()
        self.own, self.cross = Attention(), Attention() if crosses else None
        self.norm, self.up = nn.LayerNorm(FEATURES), nn.Linear(FEATURES, FEATURES)
        self.dropout = dropout

    def forward(self, x, mask, memory=None, memory_mask=None):
        x = x + self.own(self.norm(x), self.norm(x), mask, self.dropout)
        if memory is not None:
            x = x + self.cross(x, memory, memory_mask, self.dropout)
        return x + nn.functional.dropout(torch.tanh(self.up(x)), self.dropout)


class Pairs(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.words = nn.Embedding(WORDS, FEATURES)
        self.near = nn.Embedding(5, 2)  # biases of two heads by distance
        self.encoder = nn.ModuleList([Side(False, dropout) for _ in range(2)])
        self.middle = nn.LayerNorm(FEATURES)
        self.decoder = nn.ModuleList([Side(True, dropout) for _ in range(3)])
        self.head = nn.Linear(FEATURES, WORDS, bias=False)
        self.head.weight = self.words.weight

    def bias(self, length):
        places = torch.arange(length)
        return self.near((places[None] - places[:, None]).clamp(-2, 2) + 2).permute(2, 0, 1)[None]

    def forward(self, input_ids, attention_mask, labels):
        seen = attention_mask[:, None, None, :].bool()
        x, bias = self.words(input_ids), self.bias(input_ids.shape[1])
        for block in self.encoder:
            x = block(x, torch.where(seen, bias, torch.finfo(x.dtype).min))
        memory = self.middle(x)
        shifted = labels.new_zeros(labels.shape)
        shifted[..., 1:] = labels[..., :-1].clone()
        shifted[..., 0] = 1
        shifted.masked_fill_(shifted == -100, 0)
        y, bias = self.words(shifted), self.bias(labels.shape[1])
        later = torch.ones(labels.shape[1], labels.shape[1], dtype=torch.bool).triu(1)
        for block in self.decoder:
            y = block(y, bias.masked_fill(later, torch.finfo(x.dtype).min), memory, seen)
        logits = self.head(y)
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class Pictures(nn.Module):
    CLASSES = 3

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(2, FEATURES, 2, stride=2)
        self.kind, self.places = nn.Parameter(torch.randn(1, 1, FEATURES)), nn.Parameter(torch.randn(1, 5, FEATURES))
        self.blocks = nn.ModuleList([Side(False, 0.0) for _ in range(BLOCKS)])
        self.head = nn.Linear(FEATURES, self.CLASSES)

    def forward(self, pixel_values, labels):
        x = self.patch(pixel_values).flatten(2).transpose(1, 2)
        x = torch.cat((self.kind.expand(x.shape[0], -1, -1), x), 1) + self.places
        for block in self.blocks:
            x = block(x, None)
        logits = self.head(x[:, 0])
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Sounds(nn.Module):
    def __init__(self):
        super().__init__()
        self.filters = nn.Conv1d(3, FEATURES, 3, stride=2, padding=1)
        self.places, self.words = nn.Embedding(5, FEATURES), nn.Embedding(WORDS, FEATURES)
        self.encoder = nn.ModuleList([Side(False, 0.0) for _ in range(2)])
        self.middle = nn.LayerNorm(FEATURES)
        self.decoder = nn.ModuleList([Side(True, 0.0) for _ in range(2)])
        self.head = nn.Linear(FEATURES, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, input_features, labels):
        x = nn.functional.gelu(self.filters(input_features)).permute(0, 2, 1) + self.places(torch.arange(5))
        for block in self.encoder:
            x = block(x, None)
        memory = self.middle(x)
        shifted = labels.new_zeros(labels.shape)
        shifted[..., 1:] = labels[..., :-1].clone()
        shifted[..., 0] = 1
        y = self.words(shifted.masked_fill_(shifted == -100, 0))
        later = torch.ones(labels.shape[1], labels.shape[1], dtype=torch.bool).tril()
        for block in self.decoder:
            y = block(y, later, memory)
        logits = self.head(y)
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class ChannelBlock(nn.Module):
    """Computes each token from itself and the two tokens before it."""

    def __init__(self):
        super().__init__()
        self.near, self.down = nn.Conv1d(CHANNELS, 8, 3), nn.Conv1d(8, CHANNELS, 1)

    def forward(self, x, table):
        near = torch.tanh(self.near(nn.functional.pad(x, (2, 0))))
        return x + self.down(near) * table.sum(0)[None, :, None]


class Channels(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, CHANNELS), nn.Embedding(POSITIONS, CHANNELS)
        self.left, self.right = nn.Parameter(torch.randn(4, 3) / 2), nn.Parameter(torch.randn(3, CHANNELS) / 2)
        self.blocks = nn.ModuleList([ChannelBlock() for _ in range(BLOCKS)])
        self.head = nn.Linear(CHANNELS, WORDS)

    def forward(self, input_ids, attention_mask, position_ids, labels):
        x = ((self.words(input_ids) + self.places(position_ids)) * attention_mask[:, :, None]).transpose(1, 2)
        table = self.left @ self.right
        for block in self.blocks:
            x = block(x, table)
        logits = self.head(x.transpose(1, 2))
        next_labels = nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
        loss = nn.functional.cross_entropy(logits.reshape(-1, WORDS), next_labels.reshape(-1), ignore_index=-100)
        return {"loss": loss, "logits": logits}


def exported(make, arguments, sizes=None):
    """The program of a model, traced with these arguments by name; sizes: for each argument,
    how many of its leading dimensions may vary, or which ones; None: two."""
    torch.manual_seed(1)
    model = make().train()
    rows = tuple({i: Dim.AUTO for i in (range(which) if isinstance(which, int) else which)}
                 for which in sizes or [2] * len(arguments))
    program = torch.export.export(model, tuple(arguments.values()), dynamic_shapes=rows)
    for node in (node for module in program.graph_module.modules() for node in module.graph.nodes):
        for key in ("stack_trace", "source_fn_stack", "torch_fn"):
            node.meta.pop(key, None)  # paths of this machine
    return program


def make_pairs():
    torch.manual_seed(1)
    ids = torch.randint(WORDS, (3, 5))
    arguments = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.randint(WORDS, (3, 4))}
    program = exported(lambda: Pairs(0.0), arguments)
    torch.export.save(program, DATA / "pairs.pt2")
    module = program.module()
    torch.manual_seed(2)
    sources = [torch.randint(WORDS, (length,)).tolist() for length in (6, 3, 4)]
    targets = [torch.randint(WORDS, (length,)).tolist() for length in (2, 5, 3)]
    padded = lambda rows, filler: torch.tensor([row + [filler] * (max(map(len, rows)) - len(row)) for row in rows])
    mask = padded([[1] * len(row) for row in sources], 0)
    result = module(padded(sources, 0), mask, padded(targets, -100))
    result["loss"].backward()
    (DATA / "pairs.json").write_text(json.dumps(
        {"sources": sources, "targets": targets, "loss": result["loss"].item(),
         "first_logits": result["logits"][:, 0].tolist(),
         "gradients": {name: parameter.grad.flatten().tolist() for name, parameter in module.named_parameters()}}) + "\n")


def make_tensors(name, make, given, example, sizes, values, labels):
    """A program of samples that are tensors, with the results for some."""
    arguments = {given: torch.randn(3, *values.shape[1:]), "labels": example}
    program = exported(make, arguments, sizes)
    torch.export.save(program, DATA / f"{name}.pt2")
    module = program.module()
    result = module(values, labels)
    result["loss"].backward()
    (DATA / f"{name}.json").write_text(json.dumps(
        {"values": values.flatten().tolist(), "labels": labels.tolist(), "loss": result["loss"].item(),
         "logits": result["logits"].flatten().tolist(),
         "gradients": {name: parameter.grad.flatten().tolist() for name, parameter in module.named_parameters()
                       if parameter.grad is not None}}) + "\n")


def make_senses():
    torch.manual_seed(2)
    values, labels = torch.randn(4, 2, 4, 4), torch.tensor([2, 0, 1, 1])
    make_tensors("pictures", Pictures, "pixel_values", labels[:3], [1, 1], values, labels)
    three = {"pixel_values": values[:3], "labels": labels[:3]}
    torch.export.save(exported(Pictures, three, [0, 0]), DATA / "fixed_pictures.pt2")
    values = torch.randn(3, 3, 9)
    labels = torch.tensor([[3, 5, 1, 4], [7, 1, -100, -100], [2, 2, 9, -100]])
    make_tensors("sounds", Sounds, "input_features", torch.randint(WORDS, (3, 4)), [1, 2], values, labels)


def make_channels():
    torch.manual_seed(1)
    ids = torch.randint(WORDS, (3, 5))
    arguments = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "position_ids": torch.arange(5)[None],
                 "labels": ids.clone()}
    program = exported(Channels, arguments, [2, 2, [1], 2])
    torch.export.save(program, DATA / "channels.pt2")
    module = program.module()
    torch.manual_seed(2)
    ids = torch.randint(WORDS, (4, 6))
    result = module(ids, torch.ones_like(ids), torch.arange(6)[None], ids)
    result["loss"].backward()
    (DATA / "channels.json").write_text(json.dumps(
        {"ids": ids.tolist(), "loss": result["loss"].item(),
         "gradients": {name: parameter.grad.flatten().tolist() for name, parameter in module.named_parameters()}}) + "\n")


def main():
    DATA.mkdir(exist_ok=True)
    make_pairs()
    make_senses()
    make_channels()
    torch.manual_seed(1)
    ids = torch.randint(WORDS, (3, 5))
    # Labels are a different tensor from ids: otherwise the program would look up the labels.
    labels = ids.clone()
    for name, make in {"heads": Heads, "patches": Patches, "sections": Sections}.items():
        torch.export.save(exported(make, {"input_ids": ids, "labels": labels}), DATA / f"{name}.pt2")
    four = {"input_ids": ids[[0, 1, 2, 0]], "labels": labels[[0, 1, 2, 0]]}
    torch.export.save(exported(Heads, four, [0, 0]), DATA / "fixed_heads.pt2")
    program = exported(lambda: Words(0.0), {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels})
    torch.export.save(program, DATA / "words.pt2")
    module = program.module()
    torch.manual_seed(2)
    ids = torch.randint(WORDS, (4, 7))
    result = module(ids, torch.ones_like(ids), ids)
    result["loss"].backward()
    gradients = {name: parameter.grad.flatten().tolist() for name, parameter in module.named_parameters()}
    shorter = module(ids[:2, :3], torch.ones_like(ids[:2, :3]), ids[:2, :3])
    (DATA / "words.json").write_text(json.dumps(
        {"ids": ids.tolist(), "loss": result["loss"].item(), "last_logits": result["logits"][:, -1].tolist(),
         "gradients": gradients, "loss_of_shorter": shorter["loss"].item()}) + "\n")


if __name__ == "__main__":
    main()
