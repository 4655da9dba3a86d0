"""Makes golden/ in this folder with transformers: python tests/transformers/make_golden.py [RUN ...] (torch 2.11,
transformers 5.23 or 5.24). Without names, makes all of it again.

    golden/CASE/model      a model directory
    golden/RUN/gradients   the complete gradient of step 1, written like a model: by Hugging Face's names. Computed in
                           float64, stored in float32.
    golden/RUN/run.json    the case, config keys laid over the model's, patterns of the trained parameters (none: all),
                           label smoothing, token ids of ten steps, and per dtype the losses and gradient norms of ten
                           AdamW steps
    golden/RUN/logits.safetensors   "length_N": logits at the last position of the first N tokens, of step 1's first
                           three samples, before any step

AdamW: lr 1e-3, constant, weight decay 0.1 by transformers.Trainer's rule, clip 1.0; dropouts 0 in train mode.
"""
import fnmatch
import json
import pathlib
import shutil
import sys
import types

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.trainer_pt_utils import LabelSmoother

GOLDEN = pathlib.Path(__file__).parent / "golden"
STEPS, BATCH, SEQUENCE = 10, 6, 17
LENGTHS = (1, 9, SEQUENCE)
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
NO_DROPOUT_OF = {"gpt_neo": {"resid_dropout": 0.0, "embed_dropout": 0.0, "attention_dropout": 0.0}}

CASES = {
    # More layers and heads than a power of two, a vocabulary that is not divisible, one embedding for both ends.
    "tied": dict(n_layer=5, n_head=6, n_embd=24, vocab_size=1009, n_positions=24),
    # Every key that affects the computation, set to a value other than its default.
    "options": dict(n_layer=3, n_head=4, n_embd=24, n_inner=40, vocab_size=67, n_positions=20, layer_norm_epsilon=1e-2,
                    activation_function="gelu", scale_attn_weights=False, scale_attn_by_inverse_layer_idx=True,
                    tie_word_embeddings=False),
    # Looks like an old file: see age().
    "old": dict(n_layer=2, n_head=3, n_embd=24, vocab_size=101, n_positions=17, tie_word_embeddings=False),
    "gptj": dict(model_type="gptj", n_layer=5, n_head=6, n_embd=24, vocab_size=1009, n_positions=24, rotary_dim=2),
    # One table for both ends, and a head with a bias; half of each head is rotated.
    "gptj_options": dict(model_type="gptj", n_layer=3, n_head=3, n_embd=24, n_inner=40, vocab_size=67, n_positions=20,
                         rotary_dim=4, layer_norm_epsilon=1e-2, activation_function="gelu", tie_word_embeddings=True),
    # Windows shorter than the sequence, in two of five blocks.
    "gpt_neo": dict(model_type="gpt_neo", num_layers=5, attention_types=[[["global", "local"], 2], [["global"], 1]],
                    num_heads=6, hidden_size=24, vocab_size=1009, max_position_embeddings=24, window_size=5),
    "gpt_neo_options": dict(model_type="gpt_neo", num_layers=2, attention_types=[[["local"], 2]], num_heads=3,
                            hidden_size=24, intermediate_size=40, vocab_size=67, max_position_embeddings=20,
                            window_size=1, layer_norm_epsilon=1e-2, activation_function="gelu",
                            tie_word_embeddings=False),
    # This one looks like an old file, too.
    "gptj_old": dict(model_type="gptj", n_layer=2, n_head=2, n_embd=16, vocab_size=51, n_positions=17, rotary_dim=8),
}
# Runs: a case, and config keys that override its own.
RUNS = {"tied": ("tied", {}), "options": ("options", {}), "old": ("old", {}),
        "relu": ("options", {"activation_function": "relu"}), "silu": ("options", {"activation_function": "silu"}),
        "tanh": ("options", {"activation_function": "tanh"}), "gptj": ("gptj", {}), "gptj_options": ("gptj_options", {}),
        "gptj_old": ("gptj_old", {}), "gpt_neo": ("gpt_neo", {}), "gpt_neo_options": ("gpt_neo_options", {}),
        "tied_frozen": ("tied", {}), "gptj_frozen": ("gptj_options", {}), "tied_smoothed": ("tied", {})}
# For runs that do not train all parameters: shell patterns of those that are trained. For runs with label smoothing: the
# factor.
TRAINABLE = {"tied_frozen": ["transformer.h.3.*", "transformer.ln_f.*"], "gptj_frozen": ["*.attn.*", "lm_head.bias"]}
LABEL_SMOOTHING = {"tied_smoothed": 0.1}


def write_json(path, value):
    path.write_text(json.dumps(value) + "\n")


def randomise(model):
    """Values that every formula depends on: biases that are not zero, norms that are not one."""
    torch.manual_seed(11)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn(p.shape) * (0.2 if p.dim() > 1 else 0.1))
            if "ln_" in name and name.endswith("weight"):
                p.add_(1.0)


def scores_in_own_dtype(self, query, key, value, attention_mask=None):
    """GPTJAttention._attn without its conversion to float32."""
    scores = query @ key.transpose(-1, -2) / self.scale_attn
    weights = (scores if attention_mask is None else scores + attention_mask).softmax(-1)
    return weights @ value, weights


def neo_scores_in_own_dtype(self, query, key, value, attention_mask=None):
    """GPTNeoSelfAttention._attn without its conversion to float32."""
    length = query.size(-2)
    scores = (query @ key.transpose(-1, -2)).masked_fill(~self.bias[:, :, :length, :length], -torch.inf)
    weights = (scores if attention_mask is None else scores + attention_mask).softmax(-1)
    return weights @ value, weights


def root_in_own_dtype(query, factor):
    """DeBERTa's divisor of scores, as transformers computes it in float32."""
    return torch.tensor(query.size(-1) * factor, dtype=query.dtype).sqrt()


def with_float64(function):
    """The function, run with float64 as the type of divided integers."""
    def run(*args, **kwargs):
        torch.set_default_dtype(torch.float64)
        try:
            return function(*args, **kwargs)
        finally:
            torch.set_default_dtype(torch.float32)
    return run


class Float32Results(TorchDispatchMode):
    """Collects the operations that make a float32 tensor."""

    def __init__(self):
        super().__init__()
        self.operations = set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        results = operation(*args, **(kwargs or {}))
        for result in results if isinstance(results, (tuple, list)) else (results,):
            if isinstance(result, torch.Tensor) and result.dtype == torch.float32:
                self.operations.add(str(operation))
        return results


def widen_attention(model):
    """Lets a float64 model compute everything below its head in float64, and checks that it does.

    Whatever the model's dtype, transformers makes GPT-J's sines and cosines in float32, and also GPT-J's and GPT-Neo's
    scores, except in torch's own attention. This changes the gradients of make_families.py's GPT-J by up to 5e-8 (sines
    and cosines) and 1.6e-7 (scores) of their norms. DeBERTa divides by roots and logarithms in float32. The places differ between versions of transformers, and replacing
    those of another version has no effect without being an error; hence the check, which runs each model."""
    if model.dtype != torch.float64:
        return
    config = model.config
    if config.model_type == "gpt_neo":
        for block in model.base_model.h:
            block.attn.attention._attn = types.MethodType(neo_scores_in_own_dtype, block.attn.attention)
    if config.model_type == "gptj":
        angles = torch.arange(config.n_positions, dtype=torch.float64)[:, None] / 10000 ** (
            torch.arange(0, config.rotary_dim, 2, dtype=torch.float64) / config.rotary_dim)
        holders = [module for module in model.modules() if hasattr(module, "embed_positions")]
        assert holders
        for holder in holders:  # each block's attention; since version 5.24, one module of the model
            holder.embed_positions = torch.cat((angles.sin(), angles.cos()), dim=1)
        if hasattr(model.base_model.h[0].attn, "_attn"):
            for block in model.base_model.h:
                block.attn._attn = types.MethodType(scores_in_own_dtype, block.attn)
        else:  # since version 5.24
            model.set_attn_implementation("sdpa")
    if config.model_type == "deberta-v2":
        from transformers.models.deberta_v2 import modeling_deberta_v2
        modeling_deberta_v2.scaled_size_sqrt = root_in_own_dtype
        encoder = model.base_model.encoder
        encoder.get_rel_pos = with_float64(encoder.get_rel_pos)
    ids = torch.arange(3, 9).view(2, 3)
    with Float32Results() as narrow, torch.no_grad():
        model.base_model(input_ids=ids, attention_mask=torch.tensor([[1, 1, 1], [1, 1, 0]]))
    assert not narrow.operations, (config.model_type, narrow.operations)


def age(directory, config):
    """Names of a base model next to a saved head, buffers, and weights in two files with an index."""
    tensors = load_file(directory / "model.safetensors")
    tensors = {name.removeprefix("transformer."): t for name, t in tensors.items()}
    n = config.n_positions
    for layer in range(config.n_layer):
        tensors[f"h.{layer}.attn.bias"] = torch.ones(n, n, dtype=torch.uint8).tril().view(1, 1, n, n)
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
        if config.model_type == "gptj":
            tensors[f"h.{layer}.attn.embed_positions"] = torch.zeros(n, config.rotary_dim)
    names = sorted(tensors)
    halves = {"model-00001-of-00002.safetensors": names[: len(names) // 2],
              "model-00002-of-00002.safetensors": names[len(names) // 2:]}
    for file, part in halves.items():
        save_file({name: tensors[name] for name in part}, directory / file, metadata={"format": "pt"})
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    write_json(directory / "model.safetensors.index.json",
               {"metadata": {"total_size": total}, "weight_map": {n: f for f, part in halves.items() for n in part}})
    (directory / "model.safetensors").unlink()


def make_model(case):
    directory = GOLDEN / case / "model"
    shutil.rmtree(directory, ignore_errors=True)
    keys = {"model_type": "gpt2", **CASES[case]}
    config = transformers.AutoConfig.for_model(**keys, **NO_DROPOUT_OF.get(keys["model_type"], NO_DROPOUT))
    model = transformers.AutoModelForCausalLM.from_config(config)
    randomise(model)
    model.save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    if case.endswith("old"):
        age(directory, config)


def loss_of(model, ids, smoothing):
    """The loss of transformers' Trainer, computed in the model's dtype: transformers computes it in float32."""
    if model.dtype == torch.float32:
        outputs = model(input_ids=ids, labels=ids, use_cache=False)
        if smoothing == 0:
            return outputs.loss
        return LabelSmoother(epsilon=smoothing)(outputs, ids, shift_labels=True)
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1),
                                             label_smoothing=smoothing)


def train(case, overrides, trainable, smoothing, batches, dtype):
    """Gradients of step 1, losses and norms, and logits before the first step."""
    model = transformers.AutoModelForCausalLM.from_pretrained(GOLDEN / case / "model", dtype=dtype, **overrides)
    assert model.dtype == dtype
    widen_attention(model)
    model.eval()
    with torch.no_grad():
        logits = {f"length_{n}": model(input_ids=batches[0][:3, :n]).logits[:, -1].clone() for n in LENGTHS}
    model.train()
    decayed = set(transformers.Trainer.get_decay_parameter_names(None, model))
    for n, p in model.named_parameters():
        p.requires_grad = not trainable or any(fnmatch.fnmatchcase(n, pattern) for pattern in trainable)
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW([{"params": [p for n, p in named if n in decayed], "weight_decay": 0.1},
                                   {"params": [p for n, p in named if n not in decayed], "weight_decay": 0.0}],
                                  lr=1e-3, fused=True)
    losses, norms, gradients = [], [], {}
    for ids in batches:
        loss = loss_of(model, ids, smoothing)
        loss.backward()
        gradients = gradients or {n: p.grad.clone() for n, p in named}
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return gradients, logits, losses, norms


def make_run(name, case, overrides):
    out = GOLDEN / name
    (out / "gradients").mkdir(parents=True, exist_ok=True)
    batches = torch.randint(CASES[case]["vocab_size"], (STEPS, BATCH, SEQUENCE), generator=torch.Generator().manual_seed(3))
    trainable, smoothing = TRAINABLE.get(name, []), LABEL_SMOOTHING.get(name, 0.0)
    gradients, logits, losses, norms = train(case, overrides, trainable, smoothing, batches, torch.float64)
    single, single_logits, single_losses, single_norms = train(case, overrides, trainable, smoothing, batches,
                                                                torch.float32)
    save_file({n: g.float().contiguous() for n, g in gradients.items()}, out / "gradients" / "model.safetensors")
    shutil.copy(GOLDEN / case / "model" / "config.json", out / "gradients")
    save_file({n: t.float() for n, t in logits.items()}, out / "logits.safetensors")
    write_json(out / "run.json", {
        "case": case, "config": overrides, "trainable": trainable,
        "label_smoothing": smoothing, "tokens": batches.tolist(),
        "float64": {"losses": losses, "grad_norms": norms},
        "float32": {"losses": single_losses, "grad_norms": single_norms}})
    worst = max(((single[n] - g).abs().max() / g.abs().max()).item() for n, g in gradients.items())
    print(f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f}, norm {norms[0]:.3f}; float32 against float64: gradients "
          f"{worst:.1e}, losses {max(abs(a - b) / b for a, b in zip(single_losses, losses)):.1e}")


def main():
    names = sys.argv[1:] or list(RUNS)
    for case in CASES:
        if any(RUNS[name][0] == case for name in names):
            make_model(case)
    for name in names:
        make_run(name, *RUNS[name])


if __name__ == "__main__":
    main()
