"""The steps of tools/gpu_check.sh: what they run, and what they make of its output. Python's standard library only."""
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
CUDA_HOME = pathlib.Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda")
CUDA_MAJOR = "13"  # for the programs in the package
KILL_SECONDS = 10  # for a killed command to end; one that waits in a driver may never do so
MEMORY_TOLERANCE = 0.05  # relative to the plan
# Under --rehearse: tensors are small, and operators of LibTorch take more workspace than our kernels.
REHEARSED_MEMORY_TOLERANCE = 1.0

# The HF config, the values that rehearsals replace in it, the number of samples in a step, and the layouts to try until
# the plan fits: (samples of a microbatch, whether the optimizer's states are on the host). Sequences have n_positions
# tokens.
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


class Ended(Exception):
    """Ends a step without success: why, what was measured until then, and the output of the command that ended it."""

    def __init__(self, why, result=None, output=""):
        super().__init__(why)
        self.result, self.output = result, output


class Failed(Ended):
    status = "failed"


class TimedOut(Ended):
    status = "timed out"


class Skipped(Ended):
    status = "skipped"


class Checker:
    """Runs commands of the package for the step in hand."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.deadline = 0
        self.package = unpacked(options.package, folder / "package")
        self.torch = torch_folder(options)
        libraries = [self.torch / "lib", *sorted((self.torch.parent / "nvidia").glob("*/lib")), self.package / "lib",
                     *filter(None, [os.environ.get("LD_LIBRARY_PATH")]), CUDA_HOME / "lib64"]
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1",
                            "LD_LIBRARY_PATH": ":".join(map(str, libraries))}

    def run(self, *command, environment=None):
        """The command's stdout. It is killed with all that it started at the step's deadline."""
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
        name, output = pathlib.Path(command[0]).name, "\n".join(filter(None, map(str.strip, texts)))
        if hangs:
            raise TimedOut(f"{name} was killed", output=output)
        if process.returncode != 0:
            raise Failed(f"{name} ended with {process.returncode}: {gist_of(output)}", output=output)
        return texts[0]

    def program(self, name, *arguments, environment=None):
        return self.run(self.package / "bin" / name, *arguments, environment=environment)

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


def unpacked(package, folder):
    """The folder with the programs: the package itself, or the contents of its archive."""
    if package.is_file():
        folder.mkdir()
        code = subprocess.run(["tar", "-xzf", package, "-C", folder, "--strip-components=1"]).returncode
        if code != 0:
            stop(f"{package} is not an archive of tools/gpu_package.sh: tar ended with {code}")
        package = folder
    if not package.exists():
        stop(f"{package} does not exist; make it with tools/gpu_package.sh, or set SHARDLINE_PACKAGE")
    if not (package / "bin/shardline").exists():
        stop(f"{package} has no programs (bin/shardline is missing); make the archive with tools/gpu_package.sh, or set "
             "SHARDLINE_PACKAGE to it or to the folder that it unpacks to")
    return package


def torch_folder(options):
    root = os.environ.get("TORCH_ROOT")
    if not root:
        found = importlib.util.find_spec("torch")  # locates it, does not import it
        if found is None:
            stop(f"no LibTorch: {sys.executable} has no torch, and TORCH_ROOT is not set; set it to the folder `torch` "
                 "of a LibTorch or a wheel for CUDA, or put the python3 that has one first in the PATH")
        root = found.submodule_search_locations[0]
    torch = pathlib.Path(root)
    if not options.rehearse and not (torch / "lib/libtorch_cuda.so").exists():
        stop(f"{torch} is not LibTorch for CUDA: lib/libtorch_cuda.so is missing; set TORCH_ROOT to one that has it")
    version = torch / "version.py"
    cuda = re.search(r"^cuda\b.*= *'(\d+)", version.read_text(), re.MULTILINE) if version.exists() else None
    if not options.rehearse and cuda and cuda[1] != CUDA_MAJOR:
        stop(f"{torch} is for CUDA {cuda[1]}, but the programs are for CUDA {CUDA_MAJOR}; set TORCH_ROOT to another one")
    return torch


def stop(why):
    print(f"error: {why}", file=sys.stderr)
    sys.exit(2)


def tool(name):
    """The path of a tool of CUDA's toolkit, which may not be in the PATH; None if it is not there."""
    return shutil.which(name) or shutil.which(name, path=str(CUDA_HOME / "bin"))


def temporary_text():
    return tempfile.TemporaryFile("w+", errors="replace")


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)  # also what a command that ended has left running
    except ProcessLookupError:
        pass
    try:
        process.wait(KILL_SECONDS)
    except subprocess.TimeoutExpired:
        print(f"   process {process.pid} could not be killed; it may still hold the GPU", flush=True)


def gist_of(output):
    """The most informative line of the output: the first error of a program of ours, or the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("error: ")), lines[-1] if lines else "no output")[:400]


# ---- phase `works`

def machine(check):
    """Versions, the GPU and its driver."""
    version, built = check.torch / "version.py", check.package / "BUILD"
    torch = re.search(r"^__version__ = '(.*)'", version.read_text(), re.M) if version.exists() else None
    facts = {"package": built.read_text().strip() if built.exists() else "not of an archive",
             "torch": torch[1] if torch else "unknown",
             "python": platform.python_version(), "kernel": platform.release(), "libc": " ".join(platform.libc_ver()),
             "nvidia-smi": nvidia_smi(check)}
    try:
        facts["info"] = json.loads(check.program("shardline", "info", "--json"))
    except Ended as ended:
        ended.result = facts
        raise
    gpus = facts["info"]["gpus"]
    problem = gpus[0]["problem"] if gpus else facts["info"]["no_gpu"]
    if problem:
        raise Failed(problem, facts)
    return facts


def nvidia_smi(check):
    """What nvidia-smi reports about the first GPU, or why it reports nothing: no step needs this."""
    if not shutil.which("nvidia-smi"):
        return {"problem": "nvidia-smi is not installed"}
    keys = ["name", "driver_version", "memory.total", "pcie.link.gen.max", "pcie.link.width.max", "power.limit"]
    try:
        values = check.run("nvidia-smi", "--query-gpu=" + ",".join(keys), "--format=csv,noheader").splitlines()
    except Failed as failure:
        return {"problem": str(failure)}
    return dict(zip(keys, (value.strip() for value in values[0].split(",")))) if values else {"problem": "no GPU"}


def ceilings(check):
    return check.line("bench_device", "--type", "bf16", *(["--mebibytes", "1", "--length", "32"] if check.options.rehearse else []))


def device_cases(*filters):
    """Cases of cuda_tests; each comparison that it prints is kept."""

    def cases(check):
        few = {"SHARDLINE_MOST_POINTS": "1"} if check.options.rehearse else {}
        try:
            out = check.program("cuda_tests", *filters, environment={"OMP_NUM_THREADS": "1", **few})
        except Ended as ended:
            ended.result = {"comparisons": comparisons_in(ended.output)}
            raise
        return {"summary": out.strip().splitlines()[-1], "comparisons": comparisons_in(out)}

    return cases


def comparisons_in(output):
    return [line for line in output.splitlines() if ": gradient " in line]


def nccl(check):
    if check.options.rehearse:
        raise Skipped("a rehearsal has no NCCL")
    return device_cases("NCCL*")(check)


def sanitizer(kind):
    def sanitized(check):
        program = tool("compute-sanitizer")
        if not program:
            raise Skipped(f"compute-sanitizer is not installed (neither in the PATH nor in {CUDA_HOME}/bin)")
        # Several tiles of attention, and a vocabulary whose products are divided.
        model = {**check.model("GPT-2 124M"), **GPT2_SMALL, "n_positions": 200, "vocab_size": 2055}
        config = check.config("sanitized", model, {"global_batch_size": 2}, {"bf16": True})
        try:
            out = check.run(program, "--tool", kind, "--error-exitcode", "9", check.package / "bin/bench_step", config,
                            "--warmup", "0", "--steps", "1",
                            # Makes every tensor a separate allocation, whose bounds the tool knows.
                            environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})
        except Failed as failure:
            if "Device not supported" in failure.output:
                raise Skipped("compute-sanitizer does not support this device here") from None
            raise
        summary = next((line for line in out.splitlines() if "SUMMARY" in line), None)
        if summary is None:
            raise Failed(f"compute-sanitizer --tool {kind} prints no summary", output=out)
        return {"summary": summary}

    return sanitized


# ---- phase `speed`

def bench_config(check, name, dropout=True):
    """The config of the first layout of the model that fits according to its plan, and the facts about this layout."""
    model = check.model(name, **({} if dropout else NO_DROPOUT))
    samples = MODELS[name]["samples"]
    for batch, on_host in MODELS[name]["layouts"]:
        config = check.config("bench", model, {"global_batch_size": samples},
                              {"microbatches": samples // batch, "bf16": True, "offload_optimizer_states": on_host})
        plan = json.loads(check.program("shardline", "plan", config, "--cluster", "local", "--json"))
        if plan["fits"]:
            return config, {"samples_of_microbatch": batch, "samples": samples, "length": model["n_positions"],
                            "states_on_host": on_host}
    raise Skipped(f"no layout of {name} fits on this GPU according to its plan: {json.dumps(plan['memory'])}")


def measured_step(check, config, *options, steps=5):
    """Returns bench_step's line; fails unless the losses are sound and the memory is as planned."""
    line = check.line("bench_step", config, "--warmup", "2", "--steps", str(steps), *options)
    result = {key: line[key] for key in ("tokens_per_second", "step_seconds", "all_step_seconds", "loss",
                                         "flops_per_step", "memory", "predicted", "ceiling_flops_per_second",
                                         "fraction_of_ceiling") if key in line}
    losses = line["loss"]  # null if one is not a number
    if not all(loss is not None and math.isfinite(loss) for loss in losses) or losses[-1] >= losses[0]:
        raise Failed(f"the loss did not decrease while training repeatedly on one batch: {losses}", result)
    memory = line["memory"][0]
    result["memory_over_plan"] = memory["counted_bytes"] / memory["planned_bytes"]
    tolerance = REHEARSED_MEMORY_TOLERANCE if check.options.rehearse else MEMORY_TOLERANCE
    if abs(result["memory_over_plan"] - 1) > tolerance:
        raise Failed(f"tensors use {result['memory_over_plan']:.3f} times the planned memory", result)
    return result


def ours(name, dropout=True):
    def measured(check):
        config, layout = bench_config(check, name, dropout)
        try:
            return {**layout, **measured_step(check, config, "--ceiling")}
        except Ended as ended:  # with what was measured
            ended.result = {**layout, **(ended.result or {})}
            raise

    return measured


# When it is first used, Triton compiles a Python module.
NO_COMPILER = r"Failed to find C compiler.*|Python\.h: No such file.*|Cannot find a working triton.*"


def peer(name):
    """Runs transformers with torch.compile on the same work, with smaller microbatches if it runs out of memory."""

    def measured(check):
        for package in ("torch", "transformers"):
            if importlib.util.find_spec(package) is None:
                raise Skipped(f"python3 has no {package}")
        samples = MODELS[name]["samples"]
        weights = "bf16" if name == "GPT-J-6B" else "fp32"  # fp32 weights, gradients and states take 97 GB
        for batch in sorted({batch for batch, _ in MODELS[name]["layouts"]}, reverse=True):
            command = [sys.executable, HERE / "gpu_peer.py", json.dumps(check.model(name)), "--batch", str(batch),
                       "--microbatches", str(samples // batch), "--weights", weights,
                       "--device", "cpu" if check.options.rehearse else "cuda"]
            try:  # with the libraries of its own Python: its torch may differ from that of our programs
                out = check.run(*command, environment={"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")})
            except Failed as failure:
                if missing := re.search(NO_COMPILER, failure.output):
                    raise Skipped(f"torch.compile cannot compile here: {missing[0]}",
                                  output=failure.output) from None
                raise
            line = json.loads(out.strip().splitlines()[-1])
            if not line.get("out_of_memory"):
                return {"samples_of_microbatch": batch, "samples": samples, **line}
        raise Failed(f"transformers runs out of memory even with microbatches of {batch}", output=line["out_of_memory"])

    return measured


# ---- phase `memory`

def lever(name, smp_options):
    """Trains GPT-2 124M with options that save memory: must use the planned memory and have the plain run's losses."""

    def measured(check):
        config = check.config(name.replace(" ", "-"), check.model("GPT-2 124M"), {"global_batch_size": 16},
                              {"microbatches": 2, "bf16": True, **smp_options})
        result = measured_step(check, config, steps=3)
        if not smp_options:
            return result
        plain = (check.results.get("plain", {}).get("result") or {}).get("loss")
        if not plain:
            raise Failed("the plain run has no losses to compare with; run that step, too", result)
        if any(abs(a - b) > 2e-3 * abs(b) for a, b in zip(result["loss"], plain)):
            raise Failed(f"the losses are {result['loss']}, but those of the plain run are {plain}", result)
        return result

    return measured


def forecast(check):
    """The step time that a profile predicts, and the measured one."""
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
        raise Failed(f"the loss did not decrease: {losses[0]} to {losses[-1]}")
    model_folder = check.folder / "trained"
    texts = [check.program("shardline", "generate", model_folder, "--prompt", "12 times 12 is", "--max-new-tokens",
                           "24", "--temperature", "0", "--json", "--set", f"runtime.device={device}", "--set",
                           "runtime.communicator=local") for device in ("cuda", "cpu")]
    if texts[0] != texts[1]:
        raise Failed(f"the GPU generates {texts[0]!r}, but the CPU {texts[1]!r}")
    out = check.program("shardline", "eval", model_folder, "--set", f"data.validation={check.text()}", "--set",
                        "runtime.device=cuda", "--set", "runtime.communicator=local")
    return {"loss": [losses[0], losses[-1]], "text": texts[0].strip(), "eval": out.strip().splitlines()[-1]}


# name, limit in seconds, what it does; the most important first.
PHASES = {
    "works": [
        ("machine", 90, machine),
        ("ceilings", 90, ceilings),
        # Each case runs in a separate process: after a kernel has read out of bounds, CUDA fails in all of its process.
        ("row kernels", 60, device_cases("row kernels*")),
        ("head kernels", 60, device_cases("head kernels*")),
        ("head products", 60, device_cases("products are correct for a vocabulary*")),
        ("NCCL", 60, nccl),
        ("one process compared with a CPU", 90, device_cases("[one]")),
        ("schedules and shardings", 150, device_cases("[layouts]")),
        ("D x P x T", 120, device_cases("[grid]")),
        ("half precision", 120, device_cases("[half]")),
        ("memcheck on one step", 120, sanitizer("memcheck")),
        ("racecheck on one step", 120, sanitizer("racecheck")),
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
        # With another schedule on one GPU, or a longer horizon, no activation would be unused for long enough to be moved.
        ("offloaded activations", 60, lever("offloaded activations",
                                            {"offload_activations": True, "offload_scope": "all", "pipeline": "simple",
                                             "activation_loading_horizon": 1})),
        ("states on the host", 60, lever("states on the host", {"offload_optimizer_states": True})),
        ("train, generate, eval", 120, trained),
        ("transformers, GPT-J-6B", 180, peer("GPT-J-6B")),  # `speed` has no time for it
    ],
}
