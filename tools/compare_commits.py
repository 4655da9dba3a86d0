#!/usr/bin/env python3
"""Shows that two commits train alike: the same bits in twenty fixed runs, and a step that is no slower.

  tools/compare_commits.py OLD NEW [--equal] [--speed] [--rounds 9] [--within 0.03]

OLD and NEW are revisions, which are built in build/compare/, or folders of finished builds that have tools/shardline
and tools/bench_step. Without --equal or --speed it does both.

--equal  trains small models over layouts, schedules, precisions, optimizers and shardings with both programs, and
         compares the loss and the gradient norm of every step and the bytes of the saved weights. The runs named
         "gradients" take one step of SGD with learning rate 1, so their weights are the initial ones minus the gradients.
--speed  measures steps with bench_step, alternating between the two programs, and compares the fastest step of each.

Exit code: 0 if nothing differs and no step is slower than --within allows, else 1.
"""
import argparse
import hashlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

GPT2 = {"model_type": "gpt2", "vocab_size": 259, "n_positions": 64, "n_embd": 48, "n_layer": 4, "n_head": 3}
GPTJ = {"model_type": "gptj", "vocab_size": 259, "n_positions": 64, "n_embd": 48, "n_layer": 4, "n_head": 3,
        "rotary_dim": 8, "attn_pdrop": 0.1, "resid_pdrop": 0.1, "embd_pdrop": 0.1}
SGD = {"optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant", "max_steps": 1, "max_grad_norm": 0.0}


def smp(p=1, t=1, **options):
    return {"pipeline_parallel_degree": p, "tensor_parallel_degree": t, "microbatches": 4, **options}


# name: ranks, smp_options, training, model config
EQUAL = {
    "one process": (1, smp(), {}, GPT2),
    "one process, gradients": (1, smp(), SGD, GPT2),
    "gptj": (1, smp(), {}, GPTJ),
    "P=2 1f1b": (2, smp(2), {}, GPT2),
    "P=2 simple": (2, smp(2, pipeline="simple"), {}, GPT2),
    "P=2 zb_h1": (2, smp(2, pipeline="zb_h1"), {}, GPT2),
    "P=2 zbv": (2, smp(2, pipeline="zbv"), {}, GPT2),
    "P=2 interleaved 1f1b": (2, smp(2, pipeline="interleaved_1f1b", virtual_pipeline_degree=2), {}, GPT2),
    "P=2 dualpipev, gptj": (2, smp(2, pipeline="dualpipev"), {}, GPTJ),
    "T=2 speed": (2, smp(1, 2, optimize="speed"), {}, GPT2),
    "T=2 memory, gradients": (2, smp(1, 2, optimize="memory"), SGD, GPT2),
    "T=3 memory, gptj": (3, smp(1, 3, optimize="memory"), {}, GPTJ),
    "D=2": (2, smp(ddp=True), {}, GPT2),
    "D=2 ZeRO-1": (2, smp(ddp=True, shard_optimizer_state=True), {}, GPT2),
    "D=2 ZeRO-2, adafactor": (2, smp(ddp=True, shard_optimizer_state=True, shard_gradients=True),
                              {"optim": "adafactor", "learning_rate": 1e-3}, GPT2),
    "D=4 ZeRO-3 over two": (4, smp(ddp=True, sharded_data_parallel_degree=2, sdp_param_persistence_threshold=100), {},
                            GPT2),
    "D=2 P=2 T=2, gradients": (8, smp(2, 2), SGD, GPT2),
    "P=2 each, offloaded": (2, smp(2, activation_checkpointing="each", offload_activations=True), {}, GPT2),
    "P=2 T=2 bf16 selective": (4, smp(2, 2, activation_checkpointing="selective"), {"bf16": True}, GPT2),
    "D=2 P=2 fp16 ZeRO-1": (4, smp(2, shard_optimizer_state=True), {"fp16": True}, GPT2),
}

# name: model config, tokens of a sequence, samples of a step, ranks, smp_options, training
WIDE = {"model_type": "gpt2", "vocab_size": 8192, "n_positions": 256, "n_embd": 512, "n_layer": 6, "n_head": 8,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
SPEED = {
    "one process": (WIDE, 256, 8, 1, {}, {}),
    "one process, bf16": (WIDE, 256, 8, 1, {}, {"bf16": True}),
    "one process, dropout": ({**WIDE, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}, 256, 8, 1, {}, {}),
    "P=2": (WIDE, 256, 8, 2, {"pipeline_parallel_degree": 2, "microbatches": 8}, {}),
    "T=2": (WIDE, 256, 8, 2, {"tensor_parallel_degree": 2}, {}),
    "D=2": (WIDE, 256, 8, 2, {"ddp": True}, {}),
    "D=2 ZeRO-3": (WIDE, 256, 8, 2, {"ddp": True, "sharded_data_parallel_degree": 2}, {}),
}


def run(command, folder):
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment, cwd=ROOT)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nfailed with {result.returncode}:\n{result.stdout}\n{result.stderr}")
    return result.stdout


def built(revision):
    """The build folder of a revision, or the one that the argument names."""
    if (pathlib.Path(revision) / "tools/shardline").is_file():
        return pathlib.Path(revision).resolve()
    sha = subprocess.run(["git", "rev-parse", "--verify", "--short", revision + "^{commit}"], cwd=ROOT, text=True,
                         capture_output=True)
    if sha.returncode:
        sys.exit(f"{revision}: neither a revision nor a folder with tools/shardline")
    tree = ROOT / "build/compare" / sha.stdout.strip()
    if not tree.exists():
        subprocess.run(["git", "worktree", "add", "--detach", tree, sha.stdout.strip()], cwd=ROOT, check=True)
    torch = os.environ.get("TORCH_ROOT", ROOT / "build/_torch/torch")
    subprocess.run(["cmake", "--preset", "release", "-DSHARDLINE_DEVELOPER=ON", f"-DTORCH_ROOT={torch}"], cwd=tree,
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "build", "--target", "shardline", "bench_step"], cwd=tree, check=True)
    return tree / "build"


def config(model, length, samples, ranks, smp_options, training, folder):
    value = {
        "model": {"config": model},
        "data": {"train": str(ROOT / "configs/data/quickstart.txt"), "tokenizer": "bytes", "sequence_length": length},
        "training": {"global_batch_size": samples, "max_steps": 6, "learning_rate": 1e-3, **training},
        "smp_options": smp_options,
        "mpi_options": {"processes_per_host": ranks},
        "runtime": {"device": "cpu", "threads_per_rank": max(1, 2 // ranks)},
        "output_dir": str(folder / "out"),
    }
    path = folder / "config.json"
    path.write_text(json.dumps(value))
    return path


def outcome(build, case):
    """The results of a run, by name, as texts that are equal if the bits are equal."""
    ranks, smp_options, training, model = case
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        path = config(model, 48, 16, ranks, smp_options, training, folder)
        communicator = "threads" if ranks > 1 else "auto"
        run([build / "tools/shardline", "train", path, "--set", f"runtime.communicator={communicator}"], folder)
        steps = [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()]
        if len(steps) != training.get("max_steps", 6):
            sys.exit(f"{build}: {len(steps)} steps in metrics.jsonl instead of {training.get('max_steps', 6)}")
        result = {f"{key} of step {step['step']}": repr(step[key]) for step in steps for key in ("loss", "grad_norm")}
        weights = sorted((folder / "out").glob("*.safetensors"))
        if not weights:
            sys.exit(f"{build}: no weights were saved")
        for file in weights:
            result[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
        return result


def compare_equal(old, new):
    different = 0
    for name, case in EQUAL.items():
        before, after = outcome(old, case), outcome(new, case)
        names = [key for key in before if before[key] != after.get(key)] + [key for key in after if key not in before]
        print(f"{name}: {'equal' if not names else 'DIFFERENT: ' + ', '.join(names)}", flush=True)
        different += bool(names)
    print(f"{len(EQUAL) - different} of {len(EQUAL)} runs are equal bit for bit")
    return different == 0


def compare_speed(old, new, rounds, within):
    print("| step | old, fastest s | new, fastest s | new / old | medians of rounds |\n| --- | ---: | ---: | ---: | --- |")
    slower = []
    for name, (model, length, samples, ranks, smp_options, training) in SPEED.items():
        seconds = {old: [], new: []}
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            path = config(model, length, samples, ranks, smp_options, training, folder)
            for turn in range(rounds):
                for build in (old, new) if turn % 2 == 0 else (new, old):
                    line = run([build / "tools/bench_step", path, "--warmup", 1, "--steps", 3], folder)
                    seconds[build].append(json.loads(line.splitlines()[-1])["all_step_seconds"])
        fastest = {build: min(min(steps) for steps in seconds[build]) for build in seconds}
        middle = {build: statistics.median(statistics.median(steps) for steps in seconds[build]) for build in seconds}
        ratio = fastest[new] / fastest[old]
        if ratio > 1 + within:
            slower.append(name)
        print(f"| {name} | {fastest[old]:.4f} | {fastest[new]:.4f} | {ratio:.3f} | {middle[old]:.4f}, {middle[new]:.4f} |",
              flush=True)
    if slower:
        print(f"more than {within:.0%} slower: {', '.join(slower)}")
    return not slower


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--equal", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--within", type=float, default=0.03)
    options = parser.parse_args()
    both = not options.equal and not options.speed
    old, new = built(options.old), built(options.new)
    good = True
    if options.equal or both:
        good = compare_equal(old, new) and good
    if options.speed or both:
        good = compare_speed(old, new, options.rounds, options.within) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
