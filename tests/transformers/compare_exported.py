"""Trains exported programs (.pt2) with PyTorch and with shardline on the same batches, and compares.

    python tests/transformers/compare_exported.py build/tools/shardline [--model gpt2 ...] [--layout "D P T" ...]

Small random models of transformers are exported in training mode with dynamic sizes. Per model, layout and dtype: the
losses and gradient norms of ten steps of AdamW (see compare.py) against those of the same program in PyTorch; the saved
model.pt2, opened by torch.export.load, and its logits against those of the program trained there; the names in
model.safetensors; and what tensor parallelism splits. In float64, both compute in float64 throughout. Needs torch 2.11, transformers, numpy, safetensors.
"""
import argparse
import json
import os
import shutil
import sys
import tempfile
import types

import numpy as np
import torch
import transformers
from safetensors import safe_open
from torch.export import Dim

from compare import BATCH, DECAY, SEQUENCE, STEPS, clip, distances, train_shardline

WORDS = 211
MODELS = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=WORDS, n_positions=64, n_embd=48, n_layer=4, n_head=6, attn_pdrop=0.0, embd_pdrop=0.0,
        resid_pdrop=0.0, bos_token_id=0, eos_token_id=0)),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=48, intermediate_size=80, num_hidden_layers=4, num_attention_heads=6,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0)),
    "opt": lambda: transformers.OPTForCausalLM(transformers.OPTConfig(
        vocab_size=WORDS, hidden_size=48, word_embed_proj_dim=48, ffn_dim=96, num_hidden_layers=3,
        num_attention_heads=6, max_position_embeddings=64, dropout=0.0, attention_dropout=0.0, pad_token_id=1)),
    "gpt_neo": lambda: transformers.GPTNeoForCausalLM(transformers.GPTNeoConfig(
        vocab_size=WORDS, hidden_size=48, num_layers=4, attention_types=[[["global", "local"], 2]], num_heads=6,
        window_size=8, max_position_embeddings=64, attention_dropout=0.0, embed_dropout=0.0, resid_dropout=0.0,
        bos_token_id=0, eos_token_id=0)),
    "gpt_neox": lambda: transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(
        vocab_size=WORDS, hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=6,
        max_position_embeddings=64, hidden_dropout=0.0, attention_dropout=0.0, bos_token_id=0, eos_token_id=0)),
    "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(
        vocab_size=WORDS, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=0)),
}
LIMITS = {"float32": 5e-6, "float64": 1e-11}  # of losses


def export(name, directory):
    torch.manual_seed(1)
    model = MODELS[name]().train()
    ids = torch.randint(WORDS, (3, 10))
    rows = {0: Dim.AUTO, 1: Dim.AUTO}
    arguments = dict(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids.clone())
    program = torch.export.export(model, (), {**arguments, "use_cache": False},
                                  dynamic_shapes={**{key: rows for key in arguments}, "use_cache": None}, strict=False)
    path = os.path.join(directory, "program.pt2")
    torch.export.save(program, path)
    tokens = np.random.default_rng(5).integers(0, WORDS, STEPS * BATCH * SEQUENCE).astype(np.uint16)
    tokens.tofile(os.path.join(directory, "tokens.bin"))
    return path, torch.from_numpy(tokens.astype(np.int64)).view(STEPS, BATCH, SEQUENCE)


def module_of(path, dtype):
    """The program of an archive, which computes in this dtype throughout."""
    module = torch.export.load(path).module()
    if dtype == torch.float64:
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.dtype == torch.float32:
                tensor.data = tensor.data.double()
        wider = lambda value: torch.float64 if value is torch.float32 else value
        for part in module.modules():
            if isinstance(part, torch.fx.GraphModule):
                for node in part.graph.nodes:
                    node.args = torch.fx.node.map_aggregate(node.args, wider)
                    node.kwargs = torch.fx.node.map_aggregate(node.kwargs, wider)
                part.recompile()
    return module


def run(module, ids):
    return module(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids, use_cache=False)


def train_pytorch(module, batches):
    run(module, batches[0]).loss.backward()
    used = [p for p in module.parameters() if p.grad is not None]  # of tied parameters, the program uses one
    groups = [{"params": [p for p in used if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in used if p.dim() <= 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, fused=True)
    losses, norms = [], []
    for ids in batches:
        optimizer.zero_grad()
        loss = run(module, ids).loss
        loss.backward()
        norms.append(clip(types.SimpleNamespace(parameters=lambda: used)))
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses), np.array(norms)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--model", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--layout", nargs="*", default=["1 1 1", "2 1 1", "1 2 1", "1 1 2", "1 2 2", "2 1 2"])
    args = parser.parse_args()
    failed = False
    for name in args.model:
        with tempfile.TemporaryDirectory() as scratch:
            path, batches = export(name, scratch)
            for dtype in LIMITS:
                module = module_of(path, getattr(torch, dtype))
                reference = train_pytorch(module, batches)
                for layout in args.layout:
                    out = os.path.join(scratch, "out")
                    settings = [f"model.path={path}", f"runtime.dtype={dtype}", "smp_options.optimize=speed"]
                    ours = train_shardline(args.program, scratch, [int(x) for x in layout.split()], out,
                                           "adamw_torch_fused", settings, False)
                    saved = module_of(os.path.join(out, "model.pt2"), getattr(torch, dtype))
                    with torch.no_grad():
                        logits = (run(saved, batches[0]).logits - run(module, batches[0]).logits).abs().max().item()
                    with safe_open(os.path.join(out, "model.safetensors"), "pt") as file:
                        unknown = sorted(set(file.keys()) - set(dict(module.named_parameters(remove_duplicate=False))))
                    with open(os.path.join(out, "plan.json")) as file:
                        tensor_parallel = json.load(file)["tensor_parallel"]
                    row = {"model": name, "dtype": dtype, "layout": layout, **distances(ours, reference),
                           "saved_logits": logits, "unknown_names": unknown, "tensor_parallel": tensor_parallel}
                    row["ok"] = row["loss"] <= LIMITS[dtype] and row["first_norm"] <= 1e-5 and not unknown
                    failed |= not row["ok"]
                    shutil.rmtree(out)
                    print(json.dumps(row), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
