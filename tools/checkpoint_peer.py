"""Saving and reading of checkpoints by torch.distributed.checkpoint: GPT-2 with AdamW, replicated (DDP) or sharded.

  torchrun --nproc-per-node 2 checkpoint_peer.py ddp|fsdp2 DIRECTORY --hf-config '{...}' --batch 2 --length 128
                                                 --steps 5 --repetitions 3

The measures and their names are the same as in bench_checkpoint; rank 0 prints one JSON line. Started by
compare_checkpoints.py.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from transformers import GPT2Config, GPT2LMHeadModel


class Job:
    def __init__(self, options):
        self.options = options
        torch.manual_seed(0)
        model = GPT2LMHeadModel(GPT2Config(**json.loads(options.hf_config))).train()
        if options.peer == "ddp":
            self.model = torch.nn.parallel.DistributedDataParallel(model)
        else:
            from torch.distributed.fsdp import fully_shard
            for block in model.transformer.h:
                fully_shard(block)
            self.model = fully_shard(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        ranks = dist.get_world_size()
        self.ids = torch.randint(0, model.config.vocab_size, (max(1, options.batch // ranks), options.length))
        self.copies = dist.new_group(backend="gloo")  # for the planning of saves in the background

    def train(self, steps):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(steps):
            self.model(input_ids=self.ids, labels=self.ids, use_cache=False).loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        dist.barrier()
        return time.perf_counter() - start

    def state(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def any(self, mine):
        flag = torch.tensor(int(mine))
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag)

    def save_while_training(self, folder, plain):
        dist.barrier()
        begin = start = time.perf_counter()
        stall, steps = 0.0, 0
        saving = dcp.async_save(self.state(), checkpoint_id=folder, process_group=self.copies)
        copy, ended = time.perf_counter() - begin, []
        saving.add_done_callback(lambda _: ended.append(time.perf_counter() - begin))
        done = False
        while not done:
            self.train(1)
            done = not self.any(not saving.done())
            now = time.perf_counter()
            stall += now - start - plain
            start = now
            steps += 1
        saving.result()
        return {"plain_step_seconds": plain, "copy_seconds": copy, "stall_seconds": stall,
                "steps_until_durable": steps, "durable_seconds": ended[0]}

    def save_alone(self, folder):
        dist.barrier()
        start = time.perf_counter()
        dcp.async_save(self.state(), checkpoint_id=folder, process_group=self.copies).result()
        dist.barrier()
        return time.perf_counter() - start

    def read(self, folder):
        if dist.get_rank() == 0:
            for file in pathlib.Path(folder).iterdir():
                with open(file, "rb") as opened:
                    os.fsync(opened.fileno())
                    os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        dist.barrier()
        start = time.perf_counter()
        state = self.state()
        dcp.load(state, checkpoint_id=folder)
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"],
                       optim_state_dict=state["optimizer"])
        dist.barrier()
        return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=["ddp", "fsdp2"])
    parser.add_argument("directory")
    parser.add_argument("--hf-config", required=True)
    for name in ("batch", "length", "steps", "repetitions"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    job = Job(options)
    job.train(2)
    first = dist.get_rank() == 0
    count = 0

    def folder():
        nonlocal count
        if first and count:  # as many as bench_checkpoint keeps
            shutil.rmtree(os.path.join(options.directory, f"saved-{count}"))
        dist.barrier()
        count += 1
        return os.path.join(options.directory, f"saved-{count}")

    job.save_alone(folder())
    line = {"program": f"torch.distributed.checkpoint ({options.peer})"}
    for _ in range(options.repetitions):
        plain = statistics.median(job.train(1) for _ in range(options.steps))
        saved = folder()
        for name, value in job.save_while_training(saved, plain).items():
            line.setdefault(name, []).append(value)
        saved = folder()
        line.setdefault("idle_seconds", []).append(job.save_alone(saved))
        line.setdefault("read_seconds", []).append(job.read(saved))
    line["bytes"] = sum(file.stat().st_size for file in pathlib.Path(saved).iterdir())
    if first:
        print(json.dumps(line), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
