#!/usr/bin/env python3
"""Makes program/NAME.pt2, small exported programs that were once handled wrongly or must be refused.

window     a mask that hides nothing in short samples, and distant tokens in longer ones
halves     an embedding table of which the head uses one half
two_means  a cross entropy of labels and a mean over all tokens
two_ids    ids that are compared with two constants; the embedding has no padding_idx
padded     the same, but the embedding has a padding_idx
two_views  a hidden state and a view of it, which the blocks change in place
counted    buffers that change, are shared, unused or not persistent, of several types, and a parameter without a use
returned   the same after run_decompositions: it returns the new buffers instead of changing them
experts    experts of which each token has two: sorted by expert, with the operator of transformers, and looked up; and a
           mask of integers

  tests/models/golden/make_hard_programs.py        (needs torch 2.11)
"""
import pathlib

import torch
from torch import nn
from torch.export import Dim

DATA = pathlib.Path(__file__).parent / "program"
WORDS, POSITIONS, FEATURES, WINDOW = 12, 24, 8, 8
functional = nn.functional


class Block(nn.Module):
    def __init__(self, window=0):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(FEATURES), nn.Linear(FEATURES, 3 * FEATURES), nn.Linear(
            FEATURES, FEATURES)
        self.window = window

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 6, 4).transpose(1, 2).split(2, 1)
        place = torch.arange(length)
        ahead = place[:, None] - place[None]
        mask = (ahead >= 0) & (ahead < self.window) if self.window else None
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x + self.out(seen.transpose(1, 2).reshape(batch, length, FEATURES))


class Model(nn.Module):
    def __init__(self, window=0, padding=None, labels=WORDS):
        super().__init__()
        self.words = nn.Embedding(WORDS, FEATURES, padding_idx=padding)
        self.places = nn.Embedding(POSITIONS, FEATURES)
        self.blocks = nn.ModuleList([Block(window) for _ in range(2)])
        self.head = nn.Linear(FEATURES, labels)

    def embedded(self, ids):
        return self.words(ids) + self.places(torch.arange(ids.shape[1]))

    def logits(self, ids):
        x = self.embedded(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def forward(self, input_ids, labels):
        return self.with_loss(self.logits(input_ids), labels)

    @staticmethod
    def with_loss(logits, labels):
        return {"loss": functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class Halves(Model):
    def logits(self, ids):
        x = self.embedded(ids)
        for block in self.blocks:
            x = block(x)
        return functional.pad(x @ self.words.weight[:WORDS // 2].T, (0, WORDS - WORDS // 2))


class TwoMeans(Model):
    def forward(self, input_ids, labels):
        made = super().forward(input_ids, labels)
        made["loss"] = made["loss"] + 0.5 * functional.mse_loss(made["logits"], torch.zeros_like(made["logits"]))
        return made


class TwoIds(Model):
    def embedded(self, ids):
        x = super().embedded(ids)
        share = (ids == 2).sum() / (ids != 1).sum()
        return x * (1 - share)


class InPlace(Block):
    def forward(self, x):
        x += super().forward(x)
        return x


class TwoViews(Model):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([InPlace() for _ in range(2)])

    def logits(self, ids):
        x = self.embedded(ids) * 0.5
        first = x[:, :, :]
        for block in self.blocks:
            x = block(x)
        return self.head(x + first)


class Scaled(Block):
    def __init__(self, flags):
        super().__init__()
        self.register_buffer("flags", flags)

    def forward(self, x):
        return torch.where(self.flags, super().forward(x), x)


class Counted(Model):
    def __init__(self):
        super().__init__()
        flags = torch.arange(FEATURES) % 3 > 0
        self.blocks = nn.ModuleList([Scaled(flags) for _ in range(2)])
        self.register_buffer("steps", torch.tensor(0))
        self.register_buffer("share", torch.linspace(1, 2, FEATURES))
        self.register_buffer("before", torch.zeros(FEATURES))
        self.register_buffer("fixed", torch.full((FEATURES,), 0.5), persistent=False)
        self.register_buffer("odd", torch.tensor([1, 2, 3], dtype=torch.uint8))
        self.spare = nn.Linear(3, 2)

    def embedded(self, ids):
        self.steps.add_(1)
        self.before.copy_(self.share)
        self.share.mul_(0.5)
        return super().embedded(ids) * self.fixed + self.share + self.before / self.steps


@torch.library.custom_op("transformers::grouped_mm_fallback", mutates_args=())
def grouped_mm(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError


@grouped_mm.register_fake
def _(input, weight, offs):
    return input.new_empty(input.shape[0], weight.shape[2])


class Experts(nn.Module):
    """As in transformers: sorted by expert, with gates and values in turns, or with a matrix for each token."""
    EXPERTS, COLUMNS, CHOSEN = 3, 5, 2

    def __init__(self, is_sorted):
        super().__init__()
        self.is_sorted = is_sorted
        self.router = nn.Linear(FEATURES, self.EXPERTS)
        self.gated = nn.Parameter(torch.empty(self.EXPERTS, 2 * self.COLUMNS, FEATURES))
        self.bias = nn.Parameter(torch.empty(self.EXPERTS, 2 * self.COLUMNS))
        self.out = nn.Parameter(torch.empty(self.EXPERTS, FEATURES, self.COLUMNS))

    def forward(self, x):
        tokens = x.flatten(0, 1)
        shares, experts = self.router(tokens).softmax(-1).topk(self.CHOSEN)
        y = self.of_sorted(tokens, experts.flatten()) if self.is_sorted else self.of_looked_up(tokens, experts.flatten())
        y = y * shares.flatten()[:, None]
        return x + y.view(tokens.shape[0], self.CHOSEN, FEATURES).sum(1).view(x.shape)

    def of_sorted(self, tokens, experts):
        experts, order = experts.sort()
        ends = torch.histc(experts.float(), self.EXPERTS, 0, self.EXPERTS - 1).cumsum(0, dtype=torch.int32)
        y = torch.ops.transformers.grouped_mm_fallback(tokens[order // self.CHOSEN], self.gated.mT, ends)
        y = y + self.bias[experts]
        y = torch.ops.transformers.grouped_mm_fallback(y[:, ::2].sigmoid() * y[:, 1::2], self.out.transpose(1, 2), ends)
        places = torch.empty_like(order)
        places[order] = torch.arange(order.shape[0])
        return y[places]

    def of_looked_up(self, tokens, experts):
        y = torch.bmm(self.gated[experts], tokens.repeat_interleave(self.CHOSEN, 0)[:, :, None])[:, :, 0]
        gates, values = (y + self.bias[experts]).chunk(2, -1)
        return torch.bmm(self.out[experts], (gates.sigmoid() * values)[:, :, None])[:, :, 0]


class WithExperts(Model):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Experts(is_sorted=True), Experts(is_sorted=False)])

    def embedded(self, ids):
        return super().embedded(ids) * (ids != 2).long()[:, :, None]


def export(model, name, is_decomposed=False):
    torch.manual_seed(3)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    model.train()
    ids = torch.randint(3, WORDS, (3, 10))
    arguments = {"input_ids": ids, "labels": torch.randint(0, model.head.out_features, (3, 10))}
    sizes = {name: {0: Dim.AUTO, 1: Dim.AUTO} for name in arguments}
    program = torch.export.export(model, (), arguments, dynamic_shapes=sizes, strict=False)
    if is_decomposed:
        program = program.run_decompositions({})
    torch.export.save(program, DATA / f"{name}.pt2")


if __name__ == "__main__":
    export(Model(window=WINDOW), "window")
    export(Halves(), "halves")
    export(TwoMeans(labels=5), "two_means")
    export(TwoIds(), "two_ids")
    export(TwoIds(padding=1), "padded")
    export(TwoViews(), "two_views")
    export(Counted(), "counted")
    export(Counted(), "returned", is_decomposed=True)
    export(WithExperts(), "experts")
