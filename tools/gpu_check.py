#!/usr/bin/env python3
"""Checks and measures shardline on this machine's GPU.

A step runs commands, and is passed, failed, timed out, skipped with a reason, or not run because the phase had no time
left. Its commands are killed at the step's limit, and the phase continues. Results of the steps replace their earlier
ones in the output file, which is valid JSON after every step. Exit code: 0 if every step passed or was skipped,
otherwise 1; 2 if the command line is wrong, the programs or LibTorch are missing, or the results file cannot be read or
written; 128 + the number of a signal that stopped the phase.
"""
import argparse
import json
import math
import os
import pathlib
import signal
import sys
import tempfile
import time
import traceback

from gpu_check_steps import PHASES, Checker, Ended, TimedOut, stop

PHASE_SECONDS = 470  # three phases take less than 24 minutes, including the time to start them
KEPT_OUTPUT = 12000  # characters of the output of a command that fails, half of them from its end
SHOWN_LINES = 12  # lines of that output on the console


def shortened(output):
    if len(output) <= KEPT_OUTPUT:
        return output
    half = KEPT_OUTPUT // 2
    return f"{output[:half]}\n[... {len(output) - 2 * half} characters ...]\n{output[-half:]}"


def run_step(check, name, limit, step, end):
    """Runs a step, and returns its entry for the results."""
    limit = min(limit, check.options.step_limit or limit, end - time.monotonic())
    if limit < 5 and not check.options.step_limit:
        return {"status": "not run", "why": "the phase had no time left"}
    start = time.monotonic()
    check.deadline = start + limit
    try:
        entry = {"status": "passed", "result": step(check)}
    except Ended as ended:
        why = f"not done after {limit:.0f} s: {ended}" if isinstance(ended, TimedOut) else str(ended)
        entry = {"status": ended.status, "why": why}
        if ended.result:
            entry["result"] = ended.result
        if ended.output:
            entry["output"] = shortened(ended.output)
    except Exception as error:  # unexpected output, whatever error it causes in this step
        entry = {"status": "failed", "why": f"{type(error).__name__}: {error}", "output": traceback.format_exc()}
    return {**entry, "seconds": round(time.monotonic() - start, 1)}


def run_phase(options):
    end = time.monotonic() + PHASE_SECONDS
    everything = read_results(options.output) if options.output.exists() else {}
    steps = [step for step in PHASES[options.phase] if not options.only or step[0] in options.only]
    entries = everything[options.phase] = everything.get(options.phase, {}) if options.only else {}
    with tempfile.TemporaryDirectory(prefix="gpu-check-", ignore_cleanup_errors=True) as folder:
        check = Checker(options, pathlib.Path(folder))
        check.results = entries
        print(f"   LD_LIBRARY_PATH={check.environment['LD_LIBRARY_PATH']}", flush=True)
        for name, _, _ in steps:
            entries[name] = {"status": "not run", "why": "the phase was stopped before this step"}
        write_results(options.output, everything)
        for name, limit, step in steps:
            print(f"== {name}", flush=True)
            entry = entries[name] = run_step(check, name, limit, step, end)
            print(f"   {entry['status']}, {entry.get('seconds', 0)} s  {entry.get('why', '')}", flush=True)
            for line in entry.get("output", "").splitlines()[-SHOWN_LINES:]:
                print(f"   | {line}", flush=True)
            write_results(options.output, everything)
    return summary(options.phase, {name: entries[name]["status"] for name, _, _ in steps})


def summary(phase, statuses):
    """Prints how many steps passed and which did not, and returns the exit code."""
    names_of = {}
    for name, status in statuses.items():
        names_of.setdefault(status, []).append(name)
    others = [f"; {status}: {', '.join(names)}" for status, names in names_of.items() if status != "passed"]
    print(f"{phase}: {len(names_of.get('passed', []))} of {len(statuses)} steps passed{''.join(others)}")
    return 0 if set(names_of) <= {"passed", "skipped"} else 1


def read_results(file):
    if not file.exists():
        stop(f"{file} does not exist; run a phase first, or name its results file")
    try:
        everything = json.loads(file.read_text())
        if not isinstance(everything, dict) or not all(isinstance(entries, dict) for entries in everything.values()):
            raise ValueError("not an object of phases")
    except (OSError, ValueError) as error:
        stop(f"{file} cannot be read as results of this program ({error}); name another file, or remove it")
    return everything


def write_results(file, everything):
    """Writes atomically: whatever ends this program leaves the old file or the complete new one."""
    part = file.with_name(file.name + ".part")
    try:
        part.write_text(json.dumps(strict(everything), indent=1, allow_nan=False) + "\n")
        os.replace(part, file)
    except OSError as error:
        stop(f"{file} cannot be written: {error.strerror}; name another file with --output")


def strict(value):
    """JSON has no infinities and NaNs, which become null."""
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---- the table

def table(files):
    """Returns all results as Markdown; if several files have results of a phase, the last file counts."""
    everything = {}
    for file in files:
        everything.update(read_results(file))
    lines = []

    def rows(header, body):
        lines.append("| " + " | ".join(header) + " |\n|" + " --- |" * len(header))
        lines.extend("| " + " | ".join(row) + " |" for row in body)
        lines.append("")

    speed = {name: entry for phase in ("speed", "memory") for name, entry in everything.get(phase, {}).items()
             if (entry.get("result") or {}).get("step_seconds")}
    works = {name: entry.get("result", {}) for name, entry in everything.get("works", {}).items()}
    if works.get("machine"):
        facts, ceiling = works["machine"], works.get("ceilings", {})
        gpu, found = facts["nvidia-smi"], facts.get("info", {}).get("gpus")
        name = gpu.get("name") or (found[0]["name"] if found else "no GPU")
        lines.append(f"{name}, driver {gpu.get('driver_version', 'unknown')}, LibTorch {facts['torch']}, package "
                     f"{facts['package']}\n")
        if ceiling:
            link = ceiling.get("host_link_bytes_per_second", {})
            lines.append(f"A large bf16 product: {ceiling['product_flops_per_second'] / 1e12:.0f} TFLOP/s; memory: "
                         f"{ceiling['memory_bytes_per_second'] / 1e12:.2f} TB/s; to the device and back: "
                         f"{link.get('to_device', 0) / 1e9:.1f} and {link.get('to_host', 0) / 1e9:.1f} GB/s\n")
            if attention := ceiling.get("attention_seconds"):
                lines.append(f"Attention of a GPT-2 124M block, 8 x 1024 tokens, forward and backward: "
                             f"{attention['without_dropout'] * 1e3:.2f} ms without dropout, "
                             f"{attention['with_dropout'] * 1e3:.2f} ms with it\n")
    if speed:
        rows(("run", "samples x tokens", "s/step", "tokens/s", "fraction of ceiling", "speedup over transformers", "GiB",
              "memory / plan", "predicted s/step"),
             [speed_row(name, entry["result"], speed) for name, entry in speed.items()])
    rows(("phase", "step", "status", "s", "why"),
         [(phase, name, entry["status"], str(entry.get("seconds", "")), first_line(entry.get("why", "")))
          for phase in PHASES for name, entry in everything.get(phase, {}).items()])
    return "\n".join(lines)


def first_line(text):
    return text.splitlines()[0].replace("|", "/") if text else ""


def speed_row(name, result, speed):
    theirs = speed.get(f"transformers, {name}", {}).get("result")
    memory = result.get("memory", [{}])[0].get("counted_bytes", result.get("peak_bytes", 0))
    return (name, f"{result['samples']} x {result['length']}" if "length" in result else "",
            f"{result['step_seconds']:.4g}", f"{result['tokens_per_second']:.0f}",
            f"{result['fraction_of_ceiling']:.3f}" if result.get("fraction_of_ceiling") else "",
            f"{result['tokens_per_second'] / theirs['tokens_per_second']:.2f}" if theirs else "",
            f"{memory / 2**30:.2f}", f"{result['memory_over_plan']:.3f}" if "memory_over_plan" in result else "",
            f"{result['predicted']['step_seconds']:.4g}" if "step_seconds" in result.get("predicted", {}) else "")


def main():
    parser = argparse.ArgumentParser(prog="gpu_check.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phase", choices=[*PHASES, "table"],
                        help="works: correctness; speed: steps compared with transformers; memory: ways to save memory, "
                        "profile, train, generate and eval; table: results as markdown")
    parser.add_argument("files", nargs="*", type=pathlib.Path, default=[],
                        help="result files of the phase table (default: the file of --output)")
    parser.add_argument("--package", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("gpu_check.json"),
                        help="results (default: %(default)s)")
    parser.add_argument("--only", action="append", help="a step's name; may be repeated; other results are kept")
    parser.add_argument("--step-limit", type=float, help="seconds that no step may exceed")
    parser.add_argument("--rehearse", action="store_true", help="tiny models, for a package without a GPU")
    options = parser.parse_args()
    if options.phase == "table":
        print(table(options.files or [options.output]))
        return 0
    names = [name for name, _, _ in PHASES[options.phase]]
    unknown = [repr(str(word)) for word in [*options.files, *(options.only or [])] if word not in names]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; the steps of {options.phase} are {', '.join(map(repr, names))}")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # so that the command in hand is killed, too
    options.package, options.output = options.package.resolve(), options.output.resolve()
    return run_phase(options)


if __name__ == "__main__":
    sys.exit(main())
