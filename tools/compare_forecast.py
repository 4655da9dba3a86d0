#!/usr/bin/env python3
"""Compares the step time that a profile predicts with the measured step time, and prints a markdown table.

For each layout: `shardline profile`, then `bench_step --profile` on the same config, one right after the other, because
the speed of shared machines changes. GPT-2 with random weights and ids, float32; two ranks have one thread
each, one process has two.

  tools/compare_forecast.py [--cases one,P=2,T=2,D=2] [--steps 7] [--shape small] [--build build-test]
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPES = {  # over GPT2Config's defaults, tokens of a sequence
    "gpt2": ({"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}, 256),
    "small": ({"vocab_size": 2000, "n_positions": 128, "n_embd": 128, "n_layer": 4, "n_head": 4}, 64),
}
CASES = {  # ranks, smp_options
    "one": (1, {}),
    "P=2": (2, {"pipeline_parallel_degree": 2, "microbatches": 4}),
    "P=2 zbv": (2, {"pipeline_parallel_degree": 2, "microbatches": 4, "pipeline": "zbv"}),
    "T=2": (2, {"tensor_parallel_degree": 2}),
    "T=2 memory": (2, {"tensor_parallel_degree": 2, "optimize": "memory"}),
    "D=2": (2, {"ddp": True}),
}


def config_of(case, shape, folder):
    ranks, smp_options = CASES[case]
    model, length = SHAPES[shape]
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = {
        "model": {"config": {"model_type": "gpt2", **model, **dropout}},
        "data": {"train": str(ROOT / "configs/data/quickstart.txt"), "tokenizer": "bytes", "sequence_length": length},
        "training": {"global_batch_size": 4, "max_steps": 10},
        "smp_options": smp_options,
        "mpi_options": {"processes_per_host": ranks},
        "runtime": {"device": "cpu", "threads_per_rank": 2 // ranks},
        "output_dir": str(folder / "out"),
    }
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


def run(*command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{command[0]} failed\n{result.stdout}\n{result.stderr}")
    return result.stdout


def compare(case, options):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        config, profile = config_of(case, options.shape, folder), folder / "profile.json"
        run(options.build / "tools/shardline", "profile", config, "--output", profile)
        line = json.loads(run(options.build / "tools/bench_step", config, "--warmup", 2, "--steps", options.steps,
                              "--profile", profile).splitlines()[-1])
    predicted = line["predicted"]
    if "why_not" in predicted:
        sys.exit(predicted["why_not"])
    seconds = sorted(line["all_step_seconds"])
    ratio = line["step_seconds"] / predicted["step_seconds"]
    print(f"| {case} | {predicted['step_seconds']:.3f} | {line['step_seconds']:.3f} | {seconds[0]:.3f} to "
          f"{seconds[-1]:.3f} | {ratio:.3f} | {predicted['pipeline_seconds']:.3f} | "
          f"{predicted['reduction_seconds']:.3f} | {predicted['optimizer_seconds']:.3f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="one,P=2,T=2,D=2", help=f"some of: {', '.join(CASES)}")
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--shape", choices=SHAPES, default="gpt2")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    options = parser.parse_args()
    unknown = set(options.cases.split(",")) - set(CASES)
    if unknown or options.steps < 1 or not (options.build / "tools/bench_step").is_file():
        parser.error(f"cases: {', '.join(CASES)}; --steps at least 1; --build: a folder with the target bench_step built")
    print("| layout | predicted s | measured s, median | range | measured / predicted | pipeline | reduction, ties | "
          "optimizer |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for case in options.cases.split(","):
        compare(case, options)


if __name__ == "__main__":
    main()
