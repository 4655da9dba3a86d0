#!/usr/bin/env python3
"""Measures shardline against PyTorch's own stack on the same work: one run, alternating.

In every round each program of a case runs once: shardline's bench_step, then PyTorch, so that disturbances of the
machine affect both; a run whose own steps differ much was disturbed and is repeated. Both train the same Hugging Face
directory (GPT-2, random weights, seed 0) on the same token ids, and a case whose first losses differ has failed. Prints
a markdown table for each model; on a shared machine, the fastest steps are the most meaningful. Memory is the largest
resident set (VmHWM) of any rank, including everything that Python or our program loads.

  tools/compare_pytorch.py [--cases one,D=2] [--rounds 5] [--steps 3] [--shapes gpt2,six] [--out results.jsonl]
  tools/compare_pytorch.py --cases D=2,ZeRO-1,sharded --shapes gpt2,six [--precision bf16]    the ways of replicas
  tools/compare_pytorch.py --cases program    the model as an exported program, as a built-in family, and in PyTorch

With bf16 shardline trains with training.bf16, PyTorch with autocast, and FSDP2 with its own bf16 parameters.

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
LOSS_TOLERANCE = {"fp32": 5e-6, "bf16": 5e-3}  # relative, for each of the first two steps
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
    in_bf16: bool = False  # whether its peers support bf16
    exported: str = ""  # the name in `ours` that trains the model as a program of torch.export


SHAPES = {
    "gpt2": Shape({}, 256),
    "six": Shape({"n_layer": 6, "n_embd": 512, "n_head": 8, "vocab_size": 8192}, 256, batch=8, microbatches=8),
    "small": Shape({"n_layer": 4, "n_embd": 128, "n_head": 4, "vocab_size": 2000, "n_positions": 128}, 64),
}
# FSDP2 shards every parameter, so our program does, too, however small the parameter is.
SHARDED = {"ddp": True, "sharded_data_parallel_degree": 2, "sdp_param_persistence_threshold": 0}
CASES = {
    "one": Case(1, {"one process": {}}, ["eager", "compile"], in_bf16=True),
    "program": Case(1, {"exported program": {}, "built-in family": {}}, ["eager"], in_bf16=True,
                    exported="exported program"),
    "D=2": Case(2, {"D=2": {"ddp": True}}, ["ddp"], in_bf16=True),
    "ZeRO-1": Case(2, {"D=2 ZeRO-1": {"ddp": True, "shard_optimizer_state": True}}, ["ddp-zero1"], in_bf16=True),
    "sharded": Case(2, {"D=2 sharded": SHARDED}, ["fsdp2"], in_bf16=True),
    "T=2": Case(2, {f"T=2 {way}": {"tensor_parallel_degree": 2, "optimize": way} for way in ("speed", "memory")},
                ["dtensor"]),
    "P=2": Case(2, {f"P=2 {name}": {"pipeline_parallel_degree": 2, "pipeline": name}
                    for name in ("interleaved", "dualpipev")}, ["1f1b"]),
}


class Programs:
    """Starts both sides on one model directory and one token file."""

    def __init__(self, options, shape, folder):
        self.options, self.shape, self.folder = options, shape, folder
        self.model, self.tokens = folder / "model", folder / "tokens.bin"
        self.run([sys.executable, HERE / "pytorch_peers.py", "make-model", self.model, self.tokens, "--hf-config",
                  json.dumps(self.shape.hf_config), *self.sizes()])

    def sizes(self):
        return ["--batch", str(self.shape.batch), "--length", str(self.shape.length)]

    def threads(self, case):
        return max(1, self.options.threads // case.ranks)

    def program(self):
        """The file of the exported model, which is made when a case first needs it."""
        file = self.model / "model.pt2"
        if not file.exists():
            self.run([sys.executable, HERE / "pytorch_peers.py", "export", self.model, self.tokens])
        return file

    def ours(self, case, name):
        smp_options = case.ours[name]
        pipelined = "pipeline_parallel_degree" in smp_options
        config = {
            "model": {"path": str(self.program() if name == case.exported else self.model)},
            "data": {"train": str(self.tokens), "format": "tokens", "sequence_length": self.shape.length,
                     "shuffle": False},
            "training": {"global_batch_size": self.shape.batch, "learning_rate": 1e-4, "lr_scheduler_type": "constant",
                         "weight_decay": 0.0, "max_grad_norm": 1.0, "save_strategy": "no",
                         **({"bf16": True} if self.options.precision == "bf16" else {})},
            "smp_options": {"microbatches": self.shape.microbatches if pipelined else 1, **smp_options},
            "mpi_options": {"processes_per_host": case.ranks},
            "runtime": {"device": "cpu", "threads_per_rank": self.threads(case)},
            "output_dir": str(self.folder / "out"),
        }
        file = self.folder / "config.json"
        file.write_text(json.dumps(config))
        return self.measured([self.options.bench_step, file, "--warmup", str(WARMUP), "--steps",
                              str(self.options.steps), *self.options.bench_option],
                             {"OMP_NUM_THREADS": str(self.threads(case))})

    def peer(self, case, name):
        launcher = [] if case.ranks == 1 else [
            "-m", "torch.distributed.run", "--nproc-per-node", str(case.ranks), "--rdzv-backend", "c10d",
            "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
        memory = KEEP_MEMORY if self.options.keep_memory else {}
        return self.measured([sys.executable, *launcher, HERE / "pytorch_peers.py", name, self.model, self.tokens,
                              *self.sizes(), "--precision", self.options.precision, "--microbatches",
                              str(self.shape.microbatches), "--warmup", str(WARMUP), "--steps",
                              str(self.options.steps)],
                             {"OMP_NUM_THREADS": str(self.threads(case)), "GLOO_SOCKET_IFNAME": "lo", **memory})

    def measured(self, command, environment):
        """Returns the last JSON line of the program's first undisturbed run, or else of the last run tried."""
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


def losses_differ(a, b, tolerance):
    """The first step whose losses differ, as text; empty if they agree."""
    for step, (x, y) in enumerate(zip(a["loss"][:2], b["loss"][:2]), 1):
        if abs(x - y) > tolerance * abs(y):
            return f"FAILED: loss of step {step} is {x:.7f}, PyTorch's {y:.7f}"
    return ""


def measure_case(programs, case, rounds, record):
    """[{program name: its result}] by round."""
    all_rounds = []
    for number in range(1, rounds + 1):
        results = {}
        for name in case.ours:
            results[name] = programs.ours(case, name)
            record(number, name, results[name])
        for name in case.peers:
            results[name] = programs.peer(case, name)
            record(number, name, results[name])
        all_rounds.append(results)
    return all_rounds


def spread(values):
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def summaries(case, rounds, tokens, tolerance):
    """Yields one object for each pair of programs. Entries with two values are [ours, PyTorch's]."""
    for ours in case.ours:
        for peer in case.peers:
            runs = [[r[name] for r in rounds] for name in (ours, peer)]
            seconds = [[run["step_seconds"] for run in side] for side in runs]
            memory = [[run["peak_rss_bytes_per_rank"] for run in side] for side in runs]
            together = [statistics.median(map(sum, side)) for side in memory]
            yield {
                "ours": ours, "peer": peer,
                "step_seconds": [spread(side) for side in seconds],
                "tokens_per_second": [spread([tokens / s for s in side]) for side in seconds],
                "speed_ratio": spread([theirs / mine for mine, theirs in zip(*seconds)]),
                "fastest_step_seconds": [min(min(run["all_step_seconds"]) for run in side) for side in runs],
                "memory_bytes_together": together,
                "memory_bytes_of_largest_rank": [statistics.median(map(max, side)) for side in memory],
                "memory_ratio": together[0] / together[1],
                "losses": next(filter(None, (losses_differ(*pair, tolerance) for pair in zip(*runs))), "agree"),
            }


COLUMNS = ("shardline", "PyTorch", "s/step, shardline", "s/step, PyTorch", "tokens/s, shardline", "tokens/s, PyTorch",
           "ratio by round", "fastest step", "fastest step", "ratio", "GiB, all ranks", "GiB, all ranks", "ratio",
           "GiB, largest rank", "GiB, largest rank", "losses")


def table(lines):
    def cell(value, digits):
        return f"{value['median']:.{digits}f} ({value['low']:.{digits}f} to {value['high']:.{digits}f})"

    rows = [COLUMNS, ("---",) * len(COLUMNS)]
    for line in lines:
        fastest = line["fastest_step_seconds"]
        gib = [[f"{size / 2**30:.2f}" for size in line[f"memory_bytes_{of}"]] for of in ("together", "of_largest_rank")]
        rows.append((line["ours"], line["peer"], *(cell(side, 3) for side in line["step_seconds"]),
                     *(cell(side, 0) for side in line["tokens_per_second"]), cell(line["speed_ratio"], 2),
                     *(f"{step:.3f}" for step in fastest), f"{fastest[1] / fastest[0]:.2f}", *gib[0],
                     f"{line['memory_ratio']:.2f}", *gib[1], line["losses"]))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES), help="comma-separated; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="measured steps of a program's run")
    parser.add_argument("--tries", type=int, default=3, help="maximum runs of a program per round, if disturbed")
    parser.add_argument("--shapes", "--shape", default="gpt2", help=f"comma-separated, from {','.join(SHAPES)}")
    parser.add_argument("--precision", choices=LOSS_TOLERANCE, default="fp32")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="cores, shared by the ranks")
    parser.add_argument("--keep-memory", action="store_true",
                        help="make glibc keep freed memory for PyTorch (bench_step always does)")
    parser.add_argument("--bench-step", type=pathlib.Path, default=HERE.parent / "build" / "tools" / "bench_step")
    parser.add_argument("--bench-option", action="append", default=[],
                        help="option for bench_step, e.g. --bench-option=--products=aten")
    parser.add_argument("--scratch", help="folder for the model; default: a temporary one")
    parser.add_argument("--out", type=pathlib.Path, help="JSON lines, one per program run, appended")
    options = parser.parse_args()
    options.cases, options.shapes = options.cases.split(","), options.shapes.split(",")
    in_fp32 = [case for case in options.cases if case in CASES and not CASES[case].in_bf16]
    for wrong, message in (
            (set(options.cases) - set(CASES), "unknown cases"), (set(options.shapes) - set(SHAPES), "unknown shapes"),
            (in_fp32 if options.precision == "bf16" else [], "no bf16 peer in the cases")):
        if wrong:
            parser.error(f"{message} {', '.join(sorted(wrong))}")
    if min(options.rounds, options.tries) < 1:
        parser.error("--rounds and --tries must be positive")
    if not options.bench_step.is_file():
        parser.error(f"{options.bench_step} is not there: build the target bench_step or give --bench-step")
    return options


def compare(options, name, shape):
    """Measures all cases with one model, and returns the summaries."""
    about = {"shape": name, "precision": options.precision, "keep_memory": options.keep_memory}

    def write(line):
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps({**about, **line}) + "\n")

    def record(number, program, result):
        note = "" if result["steady"] else ", disturbed"
        print(f"{name}, round {number}: {program}: {result['step_seconds']:.3f} s{note}", file=sys.stderr)
        write({"round": number, "name": program, **result})

    lines = []
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        programs = Programs(options, shape, pathlib.Path(folder))
        for case in (CASES[case] for case in options.cases):
            rounds = measure_case(programs, case, options.rounds, record)
            lines += summaries(case, rounds, shape.batch * shape.length, LOSS_TOLERANCE[options.precision])
    for line in lines:
        write(line)
    return lines


def main():
    options = parse_options()
    failed = False
    for name in options.shapes:
        lines = compare(options, name, SHAPES[name])
        print(f"{name}, {options.precision}:\n\n{table(lines)}\n", flush=True)
        failed |= any(line["losses"] != "agree" for line in lines)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
