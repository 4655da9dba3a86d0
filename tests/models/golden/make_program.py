#!/usr/bin/env python3
"""Makes program/NAME.pt2, small exported programs, and NAME.json, what PyTorch computes with them.

words is a language model with what exported programs have in common: tied words, a table of positions, repeated
modules, a mask that is computed from the arguments, a region without gradients, dropout, and a shift of the labels.
pairs is an encoder with a decoder: the labels are shifted in place, and biases of attention are looked up in a table
that all blocks of a side share.

  tests/models/golden/make_program.py        (needs torch 2.11)
"""
import json
import pathlib

import torch
from torch import nn
from torch.export import Dim

DATA = pathlib.Path(__file__).parent / "program"
WORDS, POSITIONS, FEATURES, BLOCKS = 11, 8, 4, 2


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
        with torch.no_grad():  # each position sees the mean of itself and those before
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


def exported(make, dropout):
    torch.manual_seed(1)
    model = make(dropout).train()
    ids = torch.randint(WORDS, (3, 5))
    rows = {0: Dim.AUTO, 1: Dim.AUTO}
    # Labels are another tensor than ids, or the program looks up the labels.
    labels = ids.clone() if make is Words else torch.randint(WORDS, (3, 4))
    arguments = (ids, torch.ones_like(ids), labels)
    program = torch.export.export(model, arguments, dynamic_shapes=(rows, rows, rows))
    for node in (node for module in program.graph_module.modules() for node in module.graph.nodes):
        for key in ("stack_trace", "source_fn_stack", "torch_fn"):
            node.meta.pop(key, None)  # paths of this machine
    return program


def make_pairs():
    program = exported(Pairs, 0.0)
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


def main():
    DATA.mkdir(exist_ok=True)
    make_pairs()
    program = exported(Words, 0.0)
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
