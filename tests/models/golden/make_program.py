#!/usr/bin/env python3
"""Makes program/words.pt2, a small exported program, and words.json, what PyTorch computes with it.

The program is a language model with what exported programs have in common: tied words, a table of positions, repeated
modules, a mask that is computed from the arguments, a region without gradients, dropout, and a shift of the labels.

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


def exported(dropout):
    torch.manual_seed(1)
    model = Words(dropout).train()
    ids = torch.randint(WORDS, (3, 5))
    rows = {0: Dim.AUTO, 1: Dim.AUTO}
    # Labels are another tensor than ids, or the program looks up the labels.
    arguments = (ids, torch.ones_like(ids), ids.clone())
    program = torch.export.export(model, arguments, dynamic_shapes=(rows, rows, rows))
    for node in (node for module in program.graph_module.modules() for node in module.graph.nodes):
        for key in ("stack_trace", "source_fn_stack", "torch_fn"):
            node.meta.pop(key, None)  # paths of this machine
    return program


def main():
    DATA.mkdir(exist_ok=True)
    program = exported(0.0)
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
