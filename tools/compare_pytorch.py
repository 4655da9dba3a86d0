#!/usr/bin/env python3
"""Measures shardline against PyTorch's own stack on the same work: one run, taking turns.

In every round each program of a case runs once: shardline's bench_step, then PyTorch, so that what the machine does
to one it does to the other; a run whose own steps differ much was disturbed and is made again. Both train the same
Hugging Face directory (GPT-2, random weights, seed 0) on the same token ids in float32, and a case whose first losses
differ has failed. Prints a markdown table; where others use the machine too, its fastest steps say most.

  tools/compare_pytorch.py [--cases one,D=2] [--rounds 5] [--steps 3] [--shape small] [--out results.jsonl]

Needs torch and transformers in the Python that runs it, g++ for torch.compile, and a built bench_step.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WARMUP = 1  # steps before the measured ones
STEADY = 1.1  # a run's slowest over its fastest step, if nothing disturbed it
LOSS_TOLERANCE = 5e-6  # relative, for each of the first two steps
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


@dataclasses.dataclass
class Shape:
    hf_config: dict  # over GPT2Config's defaults
    length: int
    batch: int = 4
    microbatches: int = 4  # with pipelines


@dataclasses.dataclass
class Case:
    ranks: int
    ours: dict  # name -> smp_options
    peers: list


SHAPES = {
    "gpt2": Shape({}, 256),
    "small": Shape({"n_layer": 4, "n_embd": 128, "n_head": 4, "vocab_size": 2000, "n_positions": 128}, 64),
}
CASES = {
    "one": Case(1, {"one process": {}}, ["eager", "compile"]),
    "D=2": Case(2, {"D=2": {"ddp": True}}, ["ddp"]),
    "T=2": Case(2, {f"T=2 {way}": {"tensor_parallel_degree": 2, "optimize": way} for way in ("speed", "memory")},
                ["dtensor"]),
    "P=2": Case(2, {f"P=2 {name}": {"pipeline_parallel_degree": 2, "pipeline": name}
                    for name in ("interleaved", "dualpipev")}, ["1f1b"]),
}


class Programs:
    """Starts both sides on one model directory and one token file."""

    def __init__(self, options, folder):
        self.options, self.shape, self.folder = options, SHAPES[options.shape], folder
        self.model, self.tokens = folder / "model", folder / "tokens.bin"
        self.run([sys.executable, HERE / "pytorch_peers.py", "make-model", self.model, self.tokens, "--hf-config",
                  json.dumps(self.shape.hf_config), *self.sizes()])

    def sizes(self):
        return ["--batch", str(self.shape.batch), "--length", str(self.shape.length)]

    def threads(self, case):
        return max(1, self.options.threads // case.ranks)

    def ours(self, case, smp_options):
        pipelined = "pipeline_parallel_degree" in smp_options
        config = {
            "model": {"path": str(self.model)},
            "data": {"train": str(self.tokens), "format": "tokens", "sequence_length": self.shape.length,
                     "shuffle": False},
            "training": {"global_batch_size": self.shape.batch, "learning_rate": 1e-4, "lr_scheduler_type": "constant",
                         "weight_decay": 0.0, "max_grad_norm": 1.0, "save_strategy": "no"},
            "smp_options": {"microbatches": self.shape.microbatches if pipelined else 1, **smp_options},
            "mpi_options": {"processes_per_host": case.ranks},
            "runtime": {"device": "cpu", "threads_per_rank": self.threads(case)},
            "output_dir": str(self.folder / "out"),
        }
        file = self.folder / "config.json"
        file.write_text(json.dumps(config))
        result = self.measured([self.options.bench_step, file, "--warmup", str(WARMUP), "--steps",
                                str(self.options.steps), *self.options.bench_option],
                               {"OMP_NUM_THREADS": str(self.threads(case))})
        return {**result, "peak_rss_bytes": sum(result["peak_rss_bytes_per_rank"])}

    def peer(self, case, name):
        launcher = [] if case.ranks == 1 else [
            "-m", "torch.distributed.run", "--nproc-per-node", str(case.ranks), "--rdzv-backend", "c10d",
            "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
        memory = KEEP_MEMORY if self.options.keep_memory else {}
        return self.measured([sys.executable, *launcher, HERE / "pytorch_peers.py", name, self.model, self.tokens,
                              *self.sizes(), "--microbatches", str(self.shape.microbatches), "--warmup", str(WARMUP),
                              "--steps", str(self.options.steps)],
                             {"OMP_NUM_THREADS": str(self.threads(case)), "GLOO_SOCKET_IFNAME": "lo", **memory})

    def measured(self, command, environment):
        """The JSON line that the program prints last: of its first undisturbed run, or of the last one tried."""
        for _ in range(self.options.tries):
            result = json.loads(self.run(command, environment).strip().splitlines()[-1])
            seconds = result["all_step_seconds"]
            result.update(step_seconds=statistics.median(seconds), steady=max(seconds) <= STEADY * min(seconds))
            if result["steady"]:
                break
        return result

    def run(self, command, environment=None):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=1800,
                              env={**os.environ, "HF_HUB_OFFLINE": "1", **(environment or {})})
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\nfailed with {done.returncode}:\n{done.stderr[-3000:]}")
        return done.stdout


def losses_differ(a, b):
    """The first step whose losses differ, as text; empty if they agree."""
    for step, (x, y) in enumerate(zip(a["loss"][:2], b["loss"][:2]), 1):
        if abs(x - y) > LOSS_TOLERANCE * abs(y):
            return f"FAILED: loss of step {step} is {x:.7f}, PyTorch's {y:.7f}"
    return ""


def measure_case(programs, case, rounds, record):
    """[{program name: its result}] by round."""
    all_rounds = []
    for number in range(1, rounds + 1):
        results = {}
        for name, smp_options in case.ours.items():
            results[name] = programs.ours(case, smp_options)
            record(number, name, results[name])
        for name in case.peers:
            results[name] = programs.peer(case, name)
            record(number, name, results[name])
        all_rounds.append(results)
    return all_rounds


def spread(values, digits):
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}..{high:.{digits}f})"


def table_rows(case, rounds, tokens):
    for ours in case.ours:
        for peer in case.peers:
            seconds = [[r[name]["step_seconds"] for r in rounds] for name in (ours, peer)]
            speed = [tokens / statistics.median(s) for s in seconds]
            memory = [statistics.median(r[name]["peak_rss_bytes"] for r in rounds) / 2**30 for name in (ours, peer)]
            ratios = [theirs / mine for mine, theirs in zip(*seconds)]
            fastest = [min(step for r in rounds for step in r[name]["all_step_seconds"]) for name in (ours, peer)]
            failed = next(filter(None, (losses_differ(r[ours], r[peer]) for r in rounds)), "agree")
            yield (f"| {ours} | {peer} | {spread(seconds[0], 3)} | {spread(seconds[1], 3)} "
                   f"| {speed[0]:.0f} | {speed[1]:.0f} | {spread(ratios, 2)} "
                   f"| {fastest[0]:.3f} | {fastest[1]:.3f} | {fastest[1] / fastest[0]:.2f} "
                   f"| {memory[0]:.1f} | {memory[1]:.1f} | {failed} |")


HEADER = ("| shardline | PyTorch | s/step, shardline | s/step, PyTorch | tokens/s | tokens/s | ratio by round "
          "| fastest step | fastest step | ratio | GiB | GiB | losses |\n" + "|---" * 13 + "|")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES), help="comma list of %(default)s")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="measured steps of a program's run")
    parser.add_argument("--tries", type=int, default=3, help="most runs of a program per round, if disturbed")
    parser.add_argument("--shape", choices=SHAPES, default="gpt2")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="cores, shared by the ranks")
    parser.add_argument("--keep-memory", action="store_true",
                        help="PyTorch with glibc told to keep freed memory (bench_step always does)")
    parser.add_argument("--bench-step", type=pathlib.Path, default=HERE.parent / "build" / "tools" / "bench_step")
    parser.add_argument("--bench-option", action="append", default=[],
                        help="passed on, e.g. --bench-option=--products=aten")
    parser.add_argument("--scratch", help="folder for the model; default: a temporary one")
    parser.add_argument("--out", type=pathlib.Path, help="JSON lines, one per program run, appended")
    options = parser.parse_args()
    unknown = set(options.cases.split(",")) - set(CASES)
    if unknown or min(options.rounds, options.tries) < 1 or not options.bench_step.is_file():
        parser.error(f"unknown cases {sorted(unknown)}" if unknown else
                     "--rounds and --tries must be positive" if min(options.rounds, options.tries) < 1 else
                     f"{options.bench_step} is not there: build the target bench_step or give --bench-step")
    return options


def main():
    options = parse_options()
    shape = SHAPES[options.shape]

    def record(number, name, result):
        note = "" if result["steady"] else ", disturbed"
        print(f"round {number}: {name}: {result['step_seconds']:.3f} s{note}", file=sys.stderr)
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps({"round": number, "name": name, "shape": options.shape,
                                       "keep_memory": options.keep_memory, **result}) + "\n")

    rows = []
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        programs = Programs(options, pathlib.Path(folder))
        for name in options.cases.split(","):
            case = CASES[name]
            rows += table_rows(case, measure_case(programs, case, options.rounds, record), shape.batch * shape.length)
    print("\n".join([HEADER] + rows))
    return 1 if any("FAILED" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
