"""The training step of GPT-2 as PyTorch's own stack runs it, one peer per process or torchrun job.

  python pytorch_peers.py eager|compile MODEL TOKENS --batch 4 --length 256 --warmup 1 --steps 3
  torchrun --nproc-per-node 2 pytorch_peers.py ddp|ddp-zero1|fsdp2|dtensor|1f1b MODEL TOKENS ...
  python pytorch_peers.py make-model MODEL TOKENS --hf-config '{...}'      random weights and token ids, seed 0
  python pytorch_peers.py export MODEL TOKENS      MODEL/model.pt2, the same model by torch.export

Every step trains on the same batch: AdamW (fused, lr 1e-4, weight decay 0), gradients clipped to norm 1, float32; or
with --precision bf16 products in bfloat16 on float32 parameters. Rank 0 prints one JSON line. Started by
compare_pytorch.py.
"""
import argparse
import array
import json
import os
import random
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_, clip_grads_with_norm_, get_total_norm
from transformers import GPT2Config, GPT2LMHeadModel

LEARNING_RATE, MAX_NORM, NO_LABEL = 1e-4, 1.0, -100


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=0.0, fused=True)


def load_model(options):
    return GPT2LMHeadModel.from_pretrained(options.model, dtype=torch.float32).train()


def read_batch(options):
    ids = array.array("H", open(options.tokens, "rb").read())
    return torch.tensor(ids[: options.batch * options.length], dtype=torch.long).view(options.batch, options.length)


def next_tokens(ids):
    return F.pad(ids[:, 1:], (0, 1), value=NO_LABEL)


def transformers_step(model, ids, optimizer, autocast):
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], MAX_NORM)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


# Each peer returns a function that makes one step and returns the loss of the whole batch (before the update).


def one_process(options, compiled):
    model, ids = load_model(options), read_batch(options)
    optimizer = adamw(model.parameters())
    run = torch.compile(model) if compiled else model

    return lambda: transformers_step(run, ids, optimizer, options.bf16).item()


def replica_step(replica, optimizer, options, autocast):
    """A step on this rank's part of the batch."""
    ids = read_batch(options).chunk(dist.get_world_size())[dist.get_rank()]

    def step():
        mean = transformers_step(replica, ids, optimizer, autocast) / dist.get_world_size()
        dist.all_reduce(mean)
        return mean.item()

    return step


def ddp(options, make_optimizer=adamw):
    """Gradients are all-reduced in buckets during the backward pass."""
    model = load_model(options)
    replica = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, broadcast_buffers=False)
    return replica_step(replica, make_optimizer(model.parameters()), options, options.bf16)


def ddp_zero1(options):
    """The same, with each rank keeping the optimizer's state of a part of the parameters."""
    from torch.distributed.optim import ZeroRedundancyOptimizer
    return ddp(options, lambda parameters: ZeroRedundancyOptimizer(
        parameters, optimizer_class=torch.optim.AdamW, lr=LEARNING_RATE, weight_decay=0.0, fused=True))


def fsdp2(options):
    """Parameters, gradients and states in parts; each block is gathered for forward and again for backward."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if options.bf16 else \
        MixedPrecisionPolicy()
    shard = {"mesh": init_device_mesh("cpu", (dist.get_world_size(),)), "reshard_after_forward": True,
             "mp_policy": policy}
    model = load_model(options)
    for block in model.transformer.h:
        fully_shard(block, **shard)
    fully_shard(model, **shard)  # embeddings, the last norm and the tied head
    return replica_step(model, adamw(model.parameters()), options, autocast=False)


def linear_from(conv, columns=slice(None)):
    """An nn.Linear of some output columns of Hugging Face's Conv1D, whose weight is [in, out]."""
    weight, bias = conv.weight[:, columns], conv.bias[columns]
    linear = nn.Linear(*weight.shape)
    linear.load_state_dict({"weight": weight.t(), "bias": bias})
    return linear


class SplittableBlock(nn.Module):
    """A GPT-2 block of nn.Linear layers: parallelize_module can split neither Conv1D nor the fused query-key-value."""

    def __init__(self, block, hidden, heads):
        super().__init__()
        self.head_size = hidden // heads
        self.norm1, self.norm2 = block.ln_1, block.ln_2
        parts = [slice(i * hidden, (i + 1) * hidden) for i in range(3)]
        self.query, self.key, self.value = (linear_from(block.attn.c_attn, part) for part in parts)
        self.out = linear_from(block.attn.c_proj)
        self.up, self.down = linear_from(block.mlp.c_fc), linear_from(block.mlp.c_proj)
        self.attend, self.expand = nn.Identity(), nn.Identity()  # where one input is shared by several splits

    def forward(self, x):
        h = self.attend(self.norm1(x))
        q, k, v = (part(h).unflatten(-1, (-1, self.head_size)).transpose(1, 2)
                   for part in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.expand(self.norm2(x))), approximate="tanh"))


class SplittableGpt2(nn.Module):
    def __init__(self, hf):
        super().__init__()
        body, config = hf.transformer, hf.config
        self.tokens, self.positions, self.norm = body.wte, body.wpe, body.ln_f
        self.blocks = nn.ModuleList(SplittableBlock(b, config.n_embd, config.n_head) for b in body.h)
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def dtensor(options):
    """Megatron's split by DTensor: attention by heads, MLP by columns, embedding, head and loss by vocabulary."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, loss_parallel,
                                                   parallelize_module)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = SplittableGpt2(load_model(options))
    # As a DTensor the shared input has its gradients added before they are all-reduced: once, not three times.
    shared = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate())
    for block in model.blocks:
        parallelize_module(block, mesh, {
            "attend": shared, "query": ColwiseParallel(), "key": ColwiseParallel(), "value": ColwiseParallel(),
            "out": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()})
    parallelize_module(model, mesh, {
        "tokens": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})
    model.head.weight = model.tokens.weight
    groups = [[p for p in model.parameters() if isinstance(p, DTensor) == split] for split in (True, False)]
    optimizer = adamw([{"params": group} for group in groups])
    ids = read_batch(options)
    labels = next_tokens(ids).flatten()

    def clip():
        split, whole = (get_total_norm([p.grad for p in group]) for group in groups)
        norm = torch.hypot(split.full_tensor(), whole)
        for group in groups:
            clip_grads_with_norm_(group, MAX_NORM, norm)

    def step():
        with loss_parallel():
            loss = F.cross_entropy(model(ids).flatten(0, 1), labels)
            loss.backward()
        clip()
        optimizer.step()
        optimizer.zero_grad()
        return loss.full_tensor().item()

    return step


class Stage(nn.Module):
    """Stage 0: embeddings and the first blocks. The last stage: the other blocks, the last norm and the head."""

    def __init__(self, hf, first, blocks):
        super().__init__()
        body = hf.transformer
        self.first = first
        self.blocks = nn.ModuleList(body.h[i] for i in blocks)
        if first:
            self.tokens, self.positions = body.wte, body.wpe
        else:
            self.norm, self.head = body.ln_f, hf.lm_head
        self.tied = (self.tokens if first else self.head).weight

    def forward(self, x):
        if self.first:
            x = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        return x if self.first else self.head(self.norm(x))


def one_forward_one_backward(options):
    """Two stages of equal matrix products; the package knows neither tied weights nor a norm over stages."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    hf, rank = load_model(options), dist.get_rank()
    blocks_in_head = hf.config.vocab_size / (12 * hf.config.n_embd)  # the head's products, counted in blocks
    cut = min(hf.config.n_layer - 1, max(1, round((hf.config.n_layer + blocks_in_head) / 2)))
    module = Stage(hf, rank == 0, range(cut) if rank == 0 else range(cut, hf.config.n_layer))
    del hf
    stage = PipelineStage(module, rank, dist.get_world_size(), torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=options.microbatches, loss_fn=lambda logits, labels: F.cross_entropy(
        logits.flatten(0, 1), labels.flatten()))
    parameters = list(module.parameters())
    counted = [p for p in parameters if rank == 0 or p is not module.tied]
    optimizer = adamw(parameters)
    ids = read_batch(options)
    labels = next_tokens(ids)

    def step():
        losses = []
        if rank == 0:
            schedule.step(ids)
        else:
            schedule.step(target=labels, losses=losses)
        dist.all_reduce(module.tied.grad)
        squared = get_total_norm([p.grad for p in counted]) ** 2
        dist.all_reduce(squared)
        clip_grads_with_norm_(parameters, MAX_NORM, squared.sqrt())
        optimizer.step()
        optimizer.zero_grad()
        loss = torch.stack(losses).mean().detach() if losses else torch.zeros(())
        dist.all_reduce(loss)
        return loss.item()

    return step


def make_model(options):
    torch.manual_seed(0)
    config = GPT2Config(**json.loads(options.hf_config), resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    GPT2LMHeadModel(config).save_pretrained(options.model)
    dice = random.Random(0)
    ids = array.array("H", (dice.randrange(config.vocab_size) for _ in range(options.batch * options.length)))
    with open(options.tokens, "wb") as file:
        ids.tofile(file)


def export(options):
    ids = torch.randint(100, (3, 10))
    arguments = dict(input_ids=ids, labels=ids.clone())
    sizes = {name: {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO} for name in arguments}
    program = torch.export.export(load_model(options), (), {**arguments, "use_cache": False},
                                  dynamic_shapes={**sizes, "use_cache": None}, strict=False)
    torch.export.save(program, os.path.join(options.model, "model.pt2"))


def peak_resident():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def measure(step, options):
    """Puts barriers around each step, like bench_step: a step takes as long as its slowest rank."""
    barrier = dist.barrier if dist.is_initialized() else lambda: None
    losses, seconds = [], []
    for _ in range(options.warmup + options.steps):
        barrier()
        start = time.perf_counter()
        losses.append(step())
        barrier()
        seconds.append(time.perf_counter() - start)
    peaks = [peak_resident()]
    if dist.is_initialized():
        peaks = [None] * dist.get_world_size()
        dist.all_gather_object(peaks, peak_resident())
    return {"loss": losses, "all_step_seconds": seconds[options.warmup:], "peak_rss_bytes_per_rank": peaks}


PEERS = {
    "eager": lambda options: one_process(options, compiled=False),
    "compile": lambda options: one_process(options, compiled=True),
    "ddp": ddp,
    "ddp-zero1": ddp_zero1,
    "fsdp2": fsdp2,
    "dtensor": dtensor,
    "1f1b": one_forward_one_backward,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=["make-model", "export", *PEERS])
    parser.add_argument("model")
    parser.add_argument("tokens")
    for name, default in (("batch", 4), ("length", 256), ("warmup", 1), ("steps", 3), ("microbatches", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--hf-config", default="{}")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    options = parser.parse_args()
    options.bf16 = options.precision == "bf16"
    if options.bf16 and options.peer in ("dtensor", "1f1b"):
        parser.error(f"{options.peer} is only there in fp32")
    if options.peer == "make-model":
        return make_model(options)
    if options.peer == "export":
        return export(options)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
    result = measure(PEERS[options.peer](options), options)
    if "WORLD_SIZE" not in os.environ or dist.get_rank() == 0:
        print(json.dumps({"program": f"torch {torch.__version__}", "peer": options.peer, **result}), flush=True)
    if dist.is_initialized():
        dist.barrier()
    sys.stderr.flush()
    os._exit(0)  # without the teardown: Gloo's threads sometimes abort in it, with every result already there


if __name__ == "__main__":
    main()
