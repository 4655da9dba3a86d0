"""Trains the same Hugging Face directory on the same batches with transformers and with shardline, and compares.

    python tests/transformers/compare.py build/tools/shardline [--shape small|inner|124m|gptj] [--layout "D P T" ...]
        [--optim adamw_torch_fused|adam|sgd|adafactor] [--set PATH=VALUE ...] [--tokenizer]

Per layout: the losses and gradient norms of ten steps (AdamW, or --optim; constant learning rate, see OPTIMIZERS; weight
decay 0.1 by HF's rule, clip 1.0, dropout 0), the saved directory opened by transformers, and its logits against those of the model trained there. The
reference is transformers in float32, but its gradients are clipped by a norm that is computed in float64:
torch's float32 norm of a gradient of GPT-2's size is wrong in the fourth digit. "exact_" numbers are
differences from transformers in float64, and the line "transformers" shows how far its own float32 results are from it.
With --tokenizer, the "bytes" tokenizer saved next to the weights must encode every text as its UTF-8 bytes. Requires
torch, transformers and numpy.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

from make_golden import widen_attention

SHAPES = {
    "small": dict(n_layer=5, n_head=6, n_embd=48, vocab_size=1009, n_positions=64),
    "inner": dict(n_layer=3, n_head=4, n_embd=64, n_inner=100, vocab_size=515, n_positions=64, activation_function="gelu",
                  scale_attn_by_inverse_layer_idx=True, layer_norm_epsilon=1e-3, tie_word_embeddings=False),
    "124m": dict(),
    "gptj": dict(model_type="gptj", n_layer=5, n_head=6, n_embd=48, vocab_size=1009, n_positions=64, rotary_dim=4),
}
STEPS, DECAY, SEQUENCE, BATCH = 10, 0.1, 33, 8
# By the config's name: keys of the config, and the same optimizer for transformers' models.
OPTIMIZERS = {
    "adamw_torch_fused": dict(keys={"learning_rate": 1e-3},
                              make=lambda groups: torch.optim.AdamW(groups, lr=1e-3, fused=True)),
    "adam": dict(keys={"learning_rate": 1e-3}, make=lambda groups: torch.optim.Adam(groups, lr=1e-3)),
    "sgd": dict(keys={"learning_rate": 0.1, "optim_args": "momentum=0.9,nesterov=true"},
                make=lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True)),
    "adafactor": dict(keys={"learning_rate": 1e-3},
                      make=lambda groups: transformers.Adafactor(groups, lr=1e-3, scale_parameter=False,
                                                                 relative_step=False)),
}


def make_directory(shape, path):
    torch.manual_seed(1)
    config = transformers.AutoConfig.for_model(**{"model_type": "gpt2", **SHAPES[shape]}, resid_pdrop=0.0,
                                               embd_pdrop=0.0, attn_pdrop=0.0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(path)
    tokens = np.random.default_rng(5).integers(0, config.vocab_size, STEPS * BATCH * SEQUENCE).astype(np.uint16)
    tokens.tofile(os.path.join(path, "tokens.bin"))
    return model, torch.from_numpy(tokens.astype(np.int64)).view(STEPS, BATCH, SEQUENCE)


def loss_of(model, ids):
    """The model's own loss, computed in its own dtype: transformers computes it in float32."""
    if model.dtype == torch.float32:
        return model(input_ids=ids, labels=ids, use_cache=False).loss
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))


def clip(model):
    """Does the same as torch.nn.utils.clip_grad_norm_(..., 1.0), with the norm in float64; returns the norm."""
    norm = sum(p.grad.double().square().sum() for p in model.parameters()).sqrt().item()
    for parameter in model.parameters():
        parameter.grad.mul_(min(1.0, 1.0 / (norm + 1e-6)))
    return norm


def train_transformers(model, batches, optim):
    model.train()
    names = set(transformers.Trainer.get_decay_parameter_names(None, model))
    decayed = [p for n, p in model.named_parameters() if n in names]
    others = [p for n, p in model.named_parameters() if n not in names]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = OPTIMIZERS[optim]["make"](groups)
    losses, norms = [], []
    for ids in batches:
        loss = loss_of(model, ids)
        loss.backward()
        norms.append(clip(model))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return np.array(losses), np.array(norms)


def train_shardline(program, directory, layout, out, optim, settings, tokenizer):
    d, p, t = layout
    config = {
        "model": {"path": directory},
        "data": {"train": os.path.join(directory, "tokens.bin"), "format": "tokens", "sequence_length": SEQUENCE,
                 "shuffle": False, **({"tokenizer": "bytes"} if tokenizer else {})},
        "training": {"global_batch_size": BATCH, "max_steps": STEPS, "weight_decay": DECAY,
                     "lr_scheduler_type": "constant", "max_grad_norm": 1.0, "optim": optim, **OPTIMIZERS[optim]["keys"]},
        "smp_options": {"pipeline_parallel_degree": p, "tensor_parallel_degree": t, "microbatches": 2, "ddp": True},
        "mpi_options": {"processes_per_host": d * p * t},
        "output_dir": out,
    }
    path = os.path.join(directory, "run.json")
    with open(path, "w") as f:
        json.dump(config, f)
    sets = [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run([program, "train", path, *sets], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"shardline failed ({done.returncode}):\n{done.stdout}\n{done.stderr}")
    rows = [json.loads(line) for line in open(os.path.join(out, "metrics.jsonl"))]
    rows = [row for row in rows if "loss" in row]  # the others are evaluations
    return np.array([r["loss"] for r in rows]), np.array([r["grad_norm"] for r in rows])


def byte_tokenizer_differences(directory):
    """Returns the texts whose ids are not their bytes, or that are not restored, with the tokenizer as transformers
    opens it."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    rng = np.random.default_rng(7)
    planes = [(1, 0x80), (0x80, 0x800), (0x800, 0xD800), (0xE000, 0x10000), (0x10000, 0x110000)]  # all but surrogates
    texts = ["", " ", "a b", "\r\n\t\0", "don't 123  x", "<|endoftext|>", "e\u0301 \u00e9 \ufb01 \U0001f3fd\u200d", "\u2028"]
    for _ in range(2000):
        texts.append("".join(chr(rng.integers(*planes[rng.integers(5)])) for _ in range(rng.integers(1, 40))))
    wrong = [t for t in texts if tokenizer(t)["input_ids"] != list(t.encode())]
    return wrong + [t for t in texts if tokenizer.decode(list(t.encode())) != t]


def checkpoint_is_opened(directory, saved):
    """Whether transformers opens the last checkpoint as the model that was saved, and reads the state of its
    trainer."""
    opened = transformers.AutoModelForCausalLM.from_pretrained(directory).state_dict()
    state = transformers.TrainerState.load_from_json(os.path.join(directory, "trainer_state.json"))
    return state.global_step == STEPS and all(torch.equal(value, opened[name]) for name, value in saved.state_dict().items())


def distances(run, reference, prefix=""):
    """Largest relative differences of (losses, norms): over all steps, and of the first step."""
    (losses, norms), (other_losses, other_norms) = run, reference
    loss, norm = np.abs(losses - other_losses) / other_losses, np.abs(norms - other_norms) / other_norms
    return {prefix + "first_loss": float(loss[0]), prefix + "loss": float(loss.max()),
            prefix + "first_norm": float(norm[0]), prefix + "norm": float(norm.max())}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--optim", choices=OPTIMIZERS, default="adamw_torch_fused")
    parser.add_argument("--layout", nargs="*", default=["1 1 1", "1 2 2", "2 1 1", "1 1 4", "1 3 1", "2 2 2"])
    parser.add_argument("--set", nargs="*", default=[], help="config settings, as of the program")
    parser.add_argument("--tokenizer", action="store_true", help="check the saved tokenizer too (shapes small and inner)")
    args = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        directory = os.path.join(scratch, "model")
        model, batches = make_directory(args.shape, directory)
        wide = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float64)
        widen_attention(wide)
        exact = train_transformers(wide, batches, args.optim)
        del wide
        reference = train_transformers(model, batches, args.optim)
        print(json.dumps({"layout": "transformers", **distances(reference, exact, "exact_")}), flush=True)
        model.eval()
        for layout in args.layout:
            out = os.path.join(scratch, "out" + layout.replace(" ", "-"))
            ours = train_shardline(args.program, directory, [int(x) for x in layout.split()], out, args.optim,
                                   args.set, args.tokenizer)
            saved = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
            with torch.no_grad():
                logits = (saved(batches[0]).logits - model(batches[0]).logits).abs().max().item()
            row = {"layout": layout, **distances(ours, reference), **distances(ours, exact, "exact_"), "saved_logits": logits}
            if args.tokenizer:
                row["tokenizer"] = len(byte_tokenizer_differences(out))
            row["checkpoint"] = checkpoint_is_opened(os.path.join(out, f"checkpoint-{STEPS}"), saved)
            row["ok"] = (row["loss"] <= 5e-6 and row["first_norm"] <= 1e-5 and row["checkpoint"] and
                         not row.get("tokenizer"))
            failed |= not row["ok"]
            shutil.rmtree(out)
            print(json.dumps(row), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
