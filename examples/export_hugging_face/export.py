"""Exports a causal language model of transformers as a program: python3 export.py DIRECTORY_OR_NAME"""
import sys

import torch
from torch.export import Dim, export, save
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(sys.argv[1]).train()
ids = torch.randint(model.config.vocab_size, (3, 10))
inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}
sizes = {name: {0: Dim.AUTO, 1: Dim.AUTO} for name in inputs}
save(export(model, (), {**inputs, "use_cache": False}, strict=False, dynamic_shapes={**sizes, "use_cache": None}), "model.pt2")
