#!/usr/bin/env python3
"""Trains one model in fp32, bf16 and fp16, on one process and on 2 stages x 2 tensor-parallel ranks, and draws the losses.
Every run has the same config except for its precision and layout (`configs/quickstart.json`: real text, a small
GPT-2), so their losses may differ by rounding only. Prints how far each is from one process in fp32 as a markdown table
and writes the curves as SVG.

  tools/compare_precision.py [--steps 200] [--build build] [--svg docs/precision.svg]
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ONE = {"smp_options.pipeline_parallel_degree": 1, "smp_options.tensor_parallel_degree": 1,
       "mpi_options.processes_per_host": 1}
FOUR = {"smp_options.shard_optimizer_state": False}
FP16 = {"training.fp16": True, "training.dynamic_loss_args": {"init_scale": 2**16, "scale_window": 50}}
BYTES = {"data.tokenizer": "bytes", "model.config.vocab_size": 256}  # as in docs/precision.md
RUNS = {  # name -> settings, colour, dashes
    "fp32, one process": ({**ONE}, "#222222", ""),
    "fp32, P=2 T=2": ({**FOUR}, "#999999", "5 3"),
    "bf16, one process": ({**ONE, "training.bf16": True}, "#c1440e", ""),
    "bf16, P=2 T=2": ({**FOUR, "training.bf16": True}, "#f0a06c", "5 3"),
    "fp16, one process": ({**ONE, **FP16}, "#1d5fa8", ""),
    "fp16, P=2 T=2": ({**FOUR, **FP16}, "#7fb0e0", "5 3"),
}
WIDTH, HEIGHT, LEFT, BOTTOM = 860, 430, 60, 40


def train(name, steps, program, folder):
    settings, _, _ = RUNS[name]
    settings = {**BYTES, **settings, "training.max_steps": steps, "training.eval_strategy": "no", "training.report_to": "none",
                "runtime.timeline_steps": 0, "output_dir": str(folder / name.replace(" ", "-"))}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    done = subprocess.run([program, "train", str(ROOT / "configs/quickstart.json"), *words], cwd=ROOT,
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{name}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    lines = (pathlib.Path(settings["output_dir"]) / "metrics.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if "loss" in line]


def distance(curve, other):
    return max(abs(a["loss"] - b["loss"]) for a, b in zip(curve, other))


def table(curves):
    exact = curves["fp32, one process"]
    rows = ["| run | loss at the end | largest distance from fp32 | from its own one process | skipped steps |",
            "| --- | ---: | ---: | ---: | ---: |"]
    for name, curve in curves.items():
        alone = curves[name.split(",")[0] + ", one process"]
        skipped = sum(step.get("overflow", False) for step in curve)
        rows.append(f"| {name} | {curve[-1]['loss']:.4f} | {distance(curve, exact):.4f} | {distance(curve, alone):.4f} "
                    f"| {skipped} |")
    return "\n".join(rows)


def svg(curves):
    steps = max(len(curve) for curve in curves.values())
    losses = [step["loss"] for curve in curves.values() for step in curve]
    low, high = min(losses), max(losses)

    def place(step, loss):
        x = LEFT + (WIDTH - LEFT - 20) * (step - 1) / max(1, steps - 1)
        return f"{x:.1f},{20 + (HEIGHT - BOTTOM - 20) * (high - loss) / (high - low):.1f}"

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
             f'font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for i in range(6):
        loss = low + (high - low) * i / 5
        x, y = place(1, loss).split(",")
        parts.append(f'<path d="M{x} {y}H{WIDTH - 20}" stroke="#dddddd"/>'
                     f'<text x="{LEFT - 8}" y="{float(y) + 4}" text-anchor="end">{loss:.2f}</text>')
    for step in range(0, steps + 1, max(1, steps // 5)):
        x, _ = place(max(1, step), low).split(",")
        parts.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{max(1, step)}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 6}" text-anchor="middle">step</text>')
    for row, (name, curve) in enumerate(curves.items()):
        _, colour, dashes = RUNS[name]
        points = " ".join(place(step["step"], step["loss"]) for step in curve)
        style = f'fill="none" stroke="{colour}" stroke-width="1.5" stroke-dasharray="{dashes}"'
        parts.append(f'<polyline {style} points="{points}"/>')
        y = 34 + 18 * row
        parts.append(f'<path d="M{WIDTH - 210} {y - 4}h34" {style}/><text x="{WIDTH - 168}" y="{y}">{name}</text>')
    return "\n".join(parts + ["</svg>\n"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--build", default="build", help="the build folder, relative to the repository (default: build)")
    parser.add_argument("--svg", type=pathlib.Path)
    options = parser.parse_args()
    program = str((ROOT / options.build / "tools/shardline").resolve())
    if not pathlib.Path(program).is_file():
        sys.exit(f"{program} does not exist; build shardline, and name the folder of the build with --build")
    curves = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in RUNS:
            print(name, file=sys.stderr)
            curves[name] = train(name, options.steps, program, pathlib.Path(folder))
    print(table(curves))
    if options.svg:
        options.svg.write_text(svg(curves))


if __name__ == "__main__":
    main()
