#!/usr/bin/env python3
"""Measures shardline's checkpoints against torch.distributed.checkpoint and a plain copy, alternating, on one disk.

Both save GPT-2 (124M parameters) with AdamW's states on two ranks in the background while they train, then alone, and
read the checkpoint again from a cold page cache. `dd` writes the same number of zero bytes with fsync. In every round
each program runs once; the table has medians over all repetitions, and the lowest and highest value.

  tools/compare_checkpoints.py --bench build-test/tools/bench_checkpoint [--peers ddp,fsdp2] [--rounds 3]
                               [--directory DIR] [--small] [--out results.jsonl]

Needs torch and transformers in the Python that runs it, and 6 GiB on the disk of --directory (here by default).
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SMALL = {"n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 1000, "n_positions": 128}
LAYOUTS = {  # shardline's; the first one is compared with the peers, the others read what it saved
    "D=2 ZeRO-1": {"ddp": True, "shard_optimizer_state": True},
    "P=2": {"pipeline_parallel_degree": 2},
    "T=2": {"tensor_parallel_degree": 2},
}


class Programs:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.shape = SMALL if options.small else {}
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "GLOO_SOCKET_IFNAME": "lo"}

    def run(self, command):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=3600,
                              env=self.environment)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\nfailed with {done.returncode}:\n{done.stderr[-3000:]}")
        return json.loads(done.stdout.strip().splitlines()[-1])

    def empty(self, name):
        shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.folder / name).mkdir()
        return self.folder / name

    def ours(self, layout, *arguments):
        config = {
            "model": {"config": {"model_type": "gpt2", **self.shape}},
            "data": {"train": "random", "format": "tokens", "sequence_length": self.options.length},
            "training": {"global_batch_size": self.options.batch, "learning_rate": 1e-4},
            "smp_options": LAYOUTS[layout],
            "mpi_options": {"processes_per_host": 2},
            "runtime": {"device": "cpu", "threads_per_rank": 1},
            "output_dir": str(self.folder / "out"),
        }
        file = self.folder / "config.json"
        file.write_text(json.dumps(config))
        return self.run([self.options.bench, file, "--directory", self.folder / "ours", *arguments])

    def save_ours(self):
        self.empty("ours")
        return self.ours(next(iter(LAYOUTS)), "--steps", self.options.steps, "--repetitions", self.options.repetitions)

    def read_ours(self, layout):
        newest = (self.folder / "ours/newest").read_text().strip()
        return self.ours(layout, "--read", self.folder / "ours" / newest, "--repetitions", self.options.repetitions)

    def peer(self, name):
        return self.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", 2, "--rdzv-backend", "c10d",
                         "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1", HERE / "checkpoint_peer.py",
                         name, self.empty("peer"), "--hf-config", json.dumps(self.shape), "--batch", self.options.batch,
                         "--length", self.options.length, "--steps", self.options.steps, "--repetitions",
                         self.options.repetitions])

    def plain_copy(self, size):
        """The seconds that dd takes to write and sync `size` bytes."""
        seconds = []
        for _ in range(self.options.repetitions):
            file = self.empty("dd") / "zeros"
            start = time.perf_counter()
            subprocess.run(["dd", "if=/dev/zero", f"of={file}", "bs=4M", f"count={size >> 22}", "conv=fsync"],
                           check=True, stderr=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - start)
        self.empty("dd")
        return {"program": "dd", "bytes": size >> 22 << 22, "idle_seconds": seconds}


def spread(values, form):
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, type=pathlib.Path)
    parser.add_argument("--peers", default="ddp,fsdp2", type=lambda text: text.split(","))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5, help="steps without a checkpoint before each one")
    parser.add_argument("--repetitions", type=int, default=2, help="checkpoints of each program in a round")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--directory", default=".")
    parser.add_argument("--small", action="store_true", help="a tiny model: tests the script")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    rows = {}
    os.makedirs(options.directory, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="checkpoints-") as folder:
        programs = Programs(options, pathlib.Path(folder))
        for number in range(options.rounds):
            results = [programs.save_ours()]
            results += [{**programs.read_ours(layout), "program": f"shardline, read with {layout}"} for layout in LAYOUTS]
            results.append(programs.plain_copy(results[0]["bytes"]))
            results += [programs.peer(name) for name in options.peers]
            for result in results:
                row = rows.setdefault(result["program"], {"bytes": result.get("bytes", results[0]["bytes"])})
                for key, value in result.items():
                    if key.endswith("_seconds"):
                        row.setdefault(key, []).extend(value)
                if options.out:
                    with options.out.open("a") as out:
                        out.write(json.dumps({"round": number, **result}) + "\n")
    print("| program | written while idle, GB/s | step, s | copy, s | stall, s | durable after, s | read, s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, row in rows.items():
        rate = [row["bytes"] / 1e9 / seconds for seconds in row.get("idle_seconds", [])]
        cells = [spread(rate, ".2f") if rate else ""]
        cells += [spread(row[key], ".2f") if key in row else ""
                  for key in ("plain_step_seconds", "copy_seconds", "stall_seconds", "durable_seconds", "read_seconds")]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
