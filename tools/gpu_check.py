#!/usr/bin/env python3
"""The phases of tools/gpu_check.sh. Python's standard library only.

A step runs commands, and is passed, failed, timed out, skipped with a reason, or not run because the phase had no time
left. Its commands are killed at the step's limit, and the phase goes on. The results of a phase replace its earlier
ones in the output file. Exit code: 0 if every step passed or was skipped, otherwise 1; 2 for a wrong command line.
"""
import argparse
import importlib.util
import json
import math
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PHASE_SECONDS = 470  # three phases and what starts them take less than 24 minutes
TAIL = 4000  # characters of a failed command's output that are kept
MEMORY_TOLERANCE = 0.05  # of the plan
# Under --rehearse: tensors are small, and operators of LibTorch take more workspace than our kernels.
REHEARSED_MEMORY_TOLERANCE = 1.0

# The HF config and what rehearsals replace in it, the samples of a step, and what to try until the plan fits: (samples
# of a microbatch, whether the optimizer's states are on the host). Sequences have n_positions tokens.
GPT2_SMALL = {"n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 512, "n_positions": 32}
MODELS = {
    "GPT-2 124M": {
        "config": {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257,
                   "n_positions": 1024},
        "small": GPT2_SMALL, "samples": 32,
        "layouts": [(32, False), (16, False), (8, False)]},
    "GPT-2 1.5B": {
        "config": {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "vocab_size": 50257,
                   "n_positions": 1024},
        "small": GPT2_SMALL, "samples": 32,
        "layouts": [(16, False), (8, False), (4, False), (2, False)]},
    "GPT-J-6B": {
        "config": {"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "vocab_size": 50400,
                   "n_positions": 2048, "rotary_dim": 64},
        "small": {**GPT2_SMALL, "rotary_dim": 8}, "samples": 16,
        "layouts": [(4, False), (2, False), (1, False), (4, True), (2, True), (1, True)]},
}
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


class Failed(Exception):
    pass


class TimedOut(Exception):
    pass


class Skipped(Exception):
    pass


class Checker:
    """Runs commands of the package for the step in hand."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.deadline = 0
        torch = torch_folder()
        if torch is None:
            sys.exit("error: no LibTorch: python3 has no torch, and TORCH_ROOT is not set")
        self.torch = torch
        libraries = [torch / "lib", *sorted((torch.parent / "nvidia").glob("*/lib")), options.package / "lib",
                     *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1",
                            "LD_LIBRARY_PATH": ":".join(map(str, libraries))}

    def run(self, *command, environment=None, may_fail=False):
        """The output of the command, stdout alone. Killed with all that it started at the step's deadline."""
        command = [str(word) for word in command]
        print("   $ " + " ".join(command), flush=True)
        with temporary_text() as out, temporary_text() as err:
            process = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, cwd=self.folder,
                                       env={**self.environment, **(environment or {})}, start_new_session=True)
            try:
                process.wait(max(0.1, self.deadline - time.monotonic()))
                hangs = False
            except subprocess.TimeoutExpired:
                hangs = True
            finally:
                kill_group(process)
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read())
        if hangs:
            raise TimedOut(f"{command[0]} was killed\n{tail_of(texts)}")
        if process.returncode != 0 and not may_fail:
            raise Failed(f"{command[0]} ended with {process.returncode}\n{tail_of(texts)}")
        return texts[0] if not may_fail else (process.returncode, texts[0] + texts[1])

    def program(self, name, *arguments, environment=None):
        return self.run(self.options.package / "bin" / name, *arguments, environment=environment)

    def line(self, name, *arguments):
        """The JSON object that the program prints last."""
        return json.loads(self.program(name, *arguments).strip().splitlines()[-1])

    # ---- configs

    def model(self, name, **changes):
        model = MODELS[name]
        config = {**model["config"], **(model["small"] if self.options.rehearse else {})}
        return {**config, **changes}

    def config(self, name, model, training=None, smp_options=None, **sections):
        config = {
            "model": {"config": model},
            "data": {"train": str(self.text()), "tokenizer": "bytes", "sequence_length": model["n_positions"]},
            "training": {"learning_rate": 1e-4, "lr_scheduler_type": "constant", "max_steps": 10,
                         "save_strategy": "no", **(training or {})},
            "smp_options": smp_options or {},
            "runtime": {"device": "cuda", "communicator": "local"},
            "output_dir": str(self.folder / name),
            **sections,
        }
        file = self.folder / f"{name}.json"
        file.write_text(json.dumps(config))
        return file

    def text(self):
        file = self.folder / "text.txt"
        if not file.exists():
            file.write_text("".join(f"{i} times {i} is {i * i}, and {i} and {i} are {2 * i}.\n" for i in range(4000)))
        return file


def torch_folder():
    if os.environ.get("TORCH_ROOT"):
        return pathlib.Path(os.environ["TORCH_ROOT"])
    found = importlib.util.find_spec("torch")  # locates it, does not import it
    return pathlib.Path(found.submodule_search_locations[0]) if found else None


def temporary_text():
    return tempfile.TemporaryFile("w+", errors="replace")


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)  # also what a command that ended has left running
    except ProcessLookupError:
        pass
    process.wait()


def tail_of(texts):
    return "\n".join(text.strip()[-TAIL // 2:] for text in texts if text.strip())


# ---- phase `works`

def machine(check):
    """Versions, the GPU and its driver."""
    version, built = check.torch / "version.py", check.options.package / "BUILD"
    torch = re.search(r"^__version__ = '(.*)'", version.read_text(), re.M) if version.exists() else None
    facts = {"package": built.read_text().strip() if built.exists() else "not of an archive",
             "torch": torch[1] if torch else "unknown",
             "python": platform.python_version(), "kernel": platform.release(), "libc": " ".join(platform.libc_ver()),
             "info": json.loads(check.program("shardline", "info", "--json"))}
    if shutil.which("nvidia-smi"):
        keys = ["name", "driver_version", "memory.total", "pcie.link.gen.max", "pcie.link.width.max", "power.limit"]
        values = check.run("nvidia-smi", "--query-gpu=" + ",".join(keys), "--format=csv,noheader").splitlines()
        facts["nvidia-smi"] = dict(zip(keys, (value.strip() for value in values[0].split(","))))
    gpus = facts["info"]["gpus"]
    problem = gpus[0]["problem"] if gpus else facts["info"]["no_gpu"]
    if problem:
        raise Failed(problem, facts)
    return facts


def ceilings(check):
    return check.line("bench_device", "--type", "bf16", *(["--mebibytes", "1"] if check.options.rehearse else []))


def device_cases(*filters):
    """Cases of cuda_tests; each comparison that it prints is kept."""

    def cases(check):
        few = {"SHARDLINE_MOST_POINTS": "1"} if check.options.rehearse else {}
        out = check.program("cuda_tests", *filters, environment={"OMP_NUM_THREADS": "1", **few})
        lines = out.strip().splitlines()
        return {"summary": lines[-1], "comparisons": [line for line in lines if ": gradient " in line]}

    return cases


def sanitizer(tool):
    def sanitized(check):
        if not shutil.which("compute-sanitizer"):
            raise Skipped("compute-sanitizer is not installed")
        model = {**check.model("GPT-2 124M"), **GPT2_SMALL}
        config = check.config("sanitized", model, {"global_batch_size": 2}, {"bf16": True})
        code, out = check.run("compute-sanitizer", "--tool", tool, "--error-exitcode", "9",
                              check.options.package / "bin/bench_step", config, "--warmup", "0", "--steps", "1",
                              # Every tensor an allocation of its own, whose bounds the tool knows.
                              environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, may_fail=True)
        if "Device not supported" in out:
            raise Skipped("compute-sanitizer does not support this device here")
        if code != 0:
            raise Failed(f"compute-sanitizer --tool {tool} ended with {code}\n{out[-TAIL:]}")
        return {"summary": next((line for line in out.splitlines() if "SUMMARY" in line), "no summary")}

    return sanitized


# ---- phase `speed`

def bench_config(check, name, dropout=True):
    """The first layout of the model that the plan says fits, and its plan."""
    model = check.model(name, **({} if dropout else NO_DROPOUT))
    samples = MODELS[name]["samples"]
    for batch, on_host in MODELS[name]["layouts"]:
        config = check.config("bench", model, {"global_batch_size": samples},
                              {"microbatches": samples // batch, "bf16": True, "offload_optimizer_states": on_host})
        plan = json.loads(check.program("shardline", "plan", config, "--cluster", "local", "--json"))
        if plan["fits"]:
            return config, {"samples_of_microbatch": batch, "samples": samples, "length": model["n_positions"],
                            "states_on_host": on_host}
    raise Failed(f"no layout of {name} fits: {plan['memory']}")


def measured_step(check, config, *options, steps=5):
    """bench_step's line; fails unless the losses are sound and the memory is what the plan says."""
    line = check.line("bench_step", config, "--warmup", "2", "--steps", str(steps), *options)
    result = {key: line[key] for key in ("tokens_per_second", "step_seconds", "all_step_seconds", "loss",
                                         "flops_per_step", "memory", "predicted", "ceiling_flops_per_second",
                                         "fraction_of_ceiling") if key in line}
    losses = line["loss"]
    if not all(map(math.isfinite, losses)) or losses[-1] >= losses[0]:
        raise Failed(f"the loss of one batch, trained on again and again, does not fall: {losses}", result)
    memory = line["memory"][0]
    result["memory_over_plan"] = memory["counted_bytes"] / memory["planned_bytes"]
    tolerance = REHEARSED_MEMORY_TOLERANCE if check.options.rehearse else MEMORY_TOLERANCE
    if abs(result["memory_over_plan"] - 1) > tolerance:
        raise Failed(f"tensors take {result['memory_over_plan']:.3f} of the memory that the plan states", result)
    return result


def ours(name, dropout=True):
    def measured(check):
        config, layout = bench_config(check, name, dropout)
        try:
            return {**layout, **measured_step(check, config, "--ceiling")}
        except Failed as failure:  # with what was measured
            raise Failed(failure.args[0], {**layout, **(failure.args[1] if len(failure.args) > 1 else {})})

    return measured


def peer(name):
    """transformers with torch.compile on the same work; a smaller microbatch where it runs out of memory."""

    def measured(check):
        for package in ("torch", "transformers"):
            if importlib.util.find_spec(package) is None:
                raise Skipped(f"python3 has no {package}")
        samples = MODELS[name]["samples"]
        weights = "bf16" if name == "GPT-J-6B" else "fp32"  # 6 billion in fp32 with gradients and states take 96 GB
        for batch in sorted({batch for batch, _ in MODELS[name]["layouts"]}, reverse=True):
            line = json.loads(check.run(
                sys.executable, HERE / "gpu_peer.py", json.dumps(check.model(name)), "--batch", str(batch),
                "--microbatches", str(samples // batch), "--weights", weights,
                "--device", "cpu" if check.options.rehearse else "cuda").strip().splitlines()[-1])
            if not line.get("out_of_memory"):
                return {"samples_of_microbatch": batch, "samples": samples, **line}
        raise Failed(f"transformers runs out of memory with {batch} samples at once")

    return measured


# ---- phase `memory`

def lever(name, smp_options):
    """GPT-2 124M with something that saves memory: as planned, and with the losses of the plain run."""

    def measured(check):
        config = check.config(name.replace(" ", "-"), check.model("GPT-2 124M"), {"global_batch_size": 16},
                              {"microbatches": 2, "bf16": True, **smp_options})
        result = measured_step(check, config, steps=3)
        plain = check.options.results.get("plain", {}).get("loss")
        if smp_options and plain and any(abs(a - b) > 2e-3 * abs(b) for a, b in zip(result["loss"], plain)):
            raise Failed(f"the losses are {result['loss']}, those of the plain run {plain}", result)
        return result

    return measured


def forecast(check):
    """The step time that a profile predicts, and that of the step."""
    config = check.config("forecast", check.model("GPT-2 124M"), {"global_batch_size": 16},
                          {"microbatches": 2, "bf16": True})
    profile = check.folder / "profile.json"
    check.program("shardline", "profile", config, "--output", profile)
    result = measured_step(check, config, "--profile", profile)
    if "why_not" in result["predicted"]:
        raise Failed(f"the profile does not apply: {result['predicted']['why_not']}", result)
    return result


def trained(check):
    """Trains on text, evaluates, and generates the same text on the GPU as on the CPU."""
    model = {"model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 128, "n_layer": 4, "n_head": 4}
    steps = 300
    if check.options.rehearse:
        model, steps = {**model, "n_embd": 32, "n_layer": 2}, 10
    config = check.config("trained", model,
                          {"global_batch_size": 16, "max_steps": steps, "learning_rate": 3e-3, "save_strategy": "no"},
                          {"microbatches": 2})
    check.program("shardline", "train", config, "--set", "data.validation_split_percentage=5")
    losses = [json.loads(line).get("loss") for line in open(check.folder / "trained/metrics.jsonl")]
    losses = [loss for loss in losses if loss is not None]
    if losses[-1] >= losses[0]:
        raise Failed(f"the loss does not fall: {losses[0]} to {losses[-1]}")
    model_folder = check.folder / "trained"
    texts = [check.program("shardline", "generate", model_folder, "--prompt", "12 times 12 is", "--max-new-tokens",
                           "24", "--temperature", "0", "--json", "--set", f"runtime.device={device}", "--set",
                           "runtime.communicator=local") for device in ("cuda", "cpu")]
    if texts[0] != texts[1]:
        raise Failed(f"the GPU continues {texts[0]!r}, the CPU {texts[1]!r}")
    out = check.program("shardline", "eval", model_folder, "--set", f"data.validation={check.text()}", "--set",
                        "runtime.device=cuda", "--set", "runtime.communicator=local")
    return {"loss": [losses[0], losses[-1]], "text": texts[0].strip(), "eval": out.strip().splitlines()[-1]}


# name, limit in seconds, what it does; by worth.
PHASES = {
    "works": [
        ("machine", 90, machine),
        ("ceilings", 90, ceilings),
        ("kernels and NCCL", 90, device_cases("~[one]~[layouts]~[grid]~[half]")),
        ("one process beside a CPU", 90, device_cases("[one]")),
        ("schedules and shardings", 150, device_cases("[layouts]")),
        ("D x P x T", 120, device_cases("[grid]")),
        ("half precision", 120, device_cases("[half]")),
        ("memcheck of a step", 120, sanitizer("memcheck")),
        ("racecheck of a step", 120, sanitizer("racecheck")),
    ],
    "speed": [
        ("GPT-2 124M", 90, ours("GPT-2 124M")),
        ("GPT-2 1.5B", 120, ours("GPT-2 1.5B")),
        ("GPT-J-6B", 180, ours("GPT-J-6B")),
        ("transformers, GPT-2 124M", 120, peer("GPT-2 124M")),
        ("transformers, GPT-2 1.5B", 240, peer("GPT-2 1.5B")),
        ("GPT-2 1.5B without dropout", 90, ours("GPT-2 1.5B", dropout=False)),
    ],
    "memory": [
        ("plain", 60, lever("plain", {})),
        ("profile and forecast", 120, forecast),
        ("recomputed", 60, lever("recomputed", {"activation_checkpointing": "each"})),
        # With other schedules on one GPU, and a longer horizon, no activation would be away for long enough to be moved.
        ("offloaded activations", 60, lever("offloaded activations",
                                            {"offload_activations": True, "offload_scope": "all", "pipeline": "simple",
                                             "activation_loading_horizon": 1})),
        ("states on the host", 60, lever("states on the host", {"offload_optimizer_states": True})),
        ("train, generate, eval", 120, trained),
        ("transformers, GPT-J-6B", 180, peer("GPT-J-6B")),  # for which `speed` has no time
    ],
}


def run_step(check, name, limit, step, end):
    """The step's entry in the results."""
    limit = min(limit, check.options.step_limit or limit, end - time.monotonic())
    if limit < 5 and not check.options.step_limit:
        return {"status": "not run", "why": "the phase had no time left"}
    start = time.monotonic()
    check.deadline = start + limit
    entry = {}
    try:
        entry = {"status": "passed", "result": step(check)}
    except Skipped as skipped:
        entry = {"status": "skipped", "why": str(skipped)}
    except TimedOut as hang:
        entry = {"status": "timed out", "why": f"not done after {limit:.0f} s: {hang}"}
    except Failed as failure:
        entry = {"status": "failed", "why": failure.args[0], **dict(zip(["result"], failure.args[1:]))}
    except (OSError, ValueError, LookupError) as error:  # output that is not what it should be
        entry = {"status": "failed", "why": f"{type(error).__name__}: {error}"}
    return {**entry, "seconds": round(time.monotonic() - start, 1)}


def run_phase(options):
    output = options.output
    everything = json.loads(output.read_text()) if output.exists() else {}
    steps = [step for step in PHASES[options.phase] if not options.only or step[0] in options.only]
    entries = everything[options.phase] = {}
    end = time.monotonic() + PHASE_SECONDS
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        check = Checker(options, pathlib.Path(folder))
        for name, limit, step in steps:
            print(f"== {name}", flush=True)
            entry = entries[name] = run_step(check, name, limit, step, end)
            options.results = {name: entry.get("result", {}) for name, entry in entries.items()}
            print(f"   {entry['status']}, {entry.get('seconds', 0)} s  {entry.get('why', '')}", flush=True)
            output.write_text(json.dumps(everything, indent=1) + "\n")  # also if this program is killed
    bad = [name for name, entry in entries.items() if entry["status"] not in ("passed", "skipped")]
    print(f"{options.phase}: {len(entries) - len(bad)} of {len(entries)} steps passed or were skipped"
          + (f"; {', '.join(bad)}" if bad else ""))
    return 1 if bad else 0


# ---- the table

def table(files):
    """Markdown of all results; of a phase that several files have, the last one's."""
    everything = {}
    for file in files:
        everything.update(json.loads(file.read_text()))
    lines = []

    def rows(header, body):
        lines.append("| " + " | ".join(header) + " |\n|" + " --- |" * len(header))
        lines.extend("| " + " | ".join(row) + " |" for row in body)
        lines.append("")

    speed = {name: entry for phase in ("speed", "memory") for name, entry in everything.get(phase, {}).items()
             if "step_seconds" in entry.get("result", {})}
    works = {name: entry.get("result", {}) for name, entry in everything.get("works", {}).items()}
    if works.get("machine"):
        facts, ceiling = works["machine"], works.get("ceilings", {})
        gpu = facts.get("nvidia-smi", {})
        lines.append(f"{gpu.get('name', 'no nvidia-smi')}, driver {gpu.get('driver_version', 'unknown')}, "
                     f"PyTorch {facts['torch']}, package {facts['package']}\n")
        if ceiling:
            link = ceiling.get("host_link_bytes_per_second", {})
            lines.append(f"A large bf16 product: {ceiling['product_flops_per_second'] / 1e12:.0f} TFLOP/s; memory: "
                         f"{ceiling['memory_bytes_per_second'] / 1e12:.2f} TB/s; to the device and back: "
                         f"{link.get('to_device', 0) / 1e9:.1f} and {link.get('to_host', 0) / 1e9:.1f} GB/s\n")
    if speed:
        rows(("run", "samples x tokens", "s/step", "tokens/s", "of the ceiling", "beside transformers", "GiB",
              "of the plan", "predicted s/step"),
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
            f"{result['fraction_of_ceiling']:.3f}" if "fraction_of_ceiling" in result else "",
            f"{result['tokens_per_second'] / theirs['tokens_per_second']:.2f}" if theirs else "",
            f"{memory / 2**30:.2f}", f"{result['memory_over_plan']:.3f}" if "memory_over_plan" in result else "",
            f"{result['predicted']['step_seconds']:.4g}" if "step_seconds" in result.get("predicted", {}) else "")


def main():
    parser = argparse.ArgumentParser(prog="gpu_check.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phase", choices=[*PHASES, "table"])
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="for table")
    parser.add_argument("--package", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("gpu_check.json"))
    parser.add_argument("--only", action="append", help="a step's name; may be repeated")
    parser.add_argument("--step-limit", type=float, help="seconds that no step may exceed")
    parser.add_argument("--rehearse", action="store_true", help="tiny models, for a package without a GPU")
    options = parser.parse_args()
    if options.phase == "table":
        print(table(options.files))
        return 0
    unknown = set(options.only or []) - {name for name, _, _ in PHASES[options.phase]}
    if options.files or unknown:
        parser.error(f"unknown: {' '.join(map(str, [*options.files, *unknown]))}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the command in hand is killed, too
    options.package, options.output, options.results = options.package.resolve(), options.output.resolve(), {}
    return run_phase(options)


if __name__ == "__main__":
    sys.exit(main())
