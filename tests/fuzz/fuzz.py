"""Builds and runs the fuzz targets; tools/fuzz.sh calls it with the packages and LibTorch in place.

  tools/fuzz.sh [--runs N | --seconds N] [TARGET...]   N inputs over all targets (1000000), or N seconds for each
  tools/fuzz.sh --short [TARGET...]                    the run of tools/test.sh: the targets without torch, some seconds
  tools/fuzz.sh --coverage [TARGET...]                 the lines of each parser that inputs reach; fails below 90 %
  tools/fuzz.sh --planted [PATCH...]                   each bug of tests/fuzz/planted is found within its number of runs

Inputs that reach something new are kept in build-fuzz/corpus/TARGET, from which later runs start. An input that breaks
a guarantee is build-fuzz/findings/TARGET-...; `build-fuzz/tests/fuzz/PROGRAM --target=TARGET FILE` reads it again, where
PROGRAM is fuzz_text, fuzz_tensors, fuzz_serve or fuzz_config.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = ROOT / "tests/fuzz"
BUILD = ROOT / "build-fuzz"

# The files that each target's guarantees are about; --coverage looks at their lines.
PARSERS = {
    "json": ["core/files/json_reader.cpp", "core/files/json_type.cpp", "core/files/json_data.cpp"],
    "cluster": ["partitioner/layout/cluster.cpp"],
    "profile": ["partitioner/layout/profile.cpp", "partitioner/layout/profiled_cluster.cpp"],
    "schedule": ["pipeline/schedule/files/*.cpp"],
    "tokenizer": ["engine/data/tokenizer/[!b]*.cpp", "engine/data/tokenizer/bpe_*.cpp",
                  "engine/data/tokenizer/files/*.cpp", "engine/data/tokenizer/steps/*.cpp", "engine/data/text/*.cpp"],
    "text": ["engine/data/source/jsonl.cpp", "engine/data/source/data_source.cpp",
             "engine/data/source/tokenised_row.cpp"],
    "rows": ["engine/data/source/row_file.cpp", "engine/data/source/delimited_rows.cpp",
             "engine/data/source/conll_rows.cpp"],
    "compressed": ["engine/data/compressed/decompressor.cpp"],
    "tokens": ["engine/data/source/token_file.cpp", "engine/data/cache/token_cache.cpp"],
    "request": ["engine/serve/answers/*.cpp"],
    "trainer_state": ["engine/checkpoint/trainer_state.cpp"],
    "flight": ["core/flight/flight_file.cpp", "engine/observe/doctor/*.cpp"],
    "run_records": ["engine/train/measured_run.cpp"],
    "study": ["engine/study/study_file.cpp", "engine/study/prices.cpp", "engine/study/run_record.cpp",
              "engine/study/study_summary.cpp"],
    "run_history": ["engine/observe/recorded_metrics.cpp", "engine/report/timeline_rows.cpp"],
    "partition_file": ["engine/plan/partition_file.cpp"],
    "safetensors": ["models/files/safetensors.cpp", "models/files/tensor_file.cpp"],
    "npy": ["engine/data/tensors/npy_file.cpp"],
    "torch_file": ["models/files/torch_*.cpp", "models/files/pickle_reader.cpp", "models/files/stored_zip.cpp"],
    "program": ["models/program/graph_reader.cpp", "models/program/pt2_archive.cpp", "models/program/graph_flow.cpp"],
    "model_directory": ["models/files/hf_directory.cpp", "models/files/tensor_files.cpp"],
    "optimizer_state": ["engine/checkpoint/state_files.cpp"],
    "manifest": ["engine/checkpoint/manifest.cpp", "engine/checkpoint/piece_files.cpp"],
    "config": ["engine/config/config.cpp", "engine/config/keys/forms.cpp", "engine/config/keys/spellings.cpp",
               "engine/config/keys/*_rules.cpp", "engine/config/keys/memory_cap.cpp",
               "engine/config/keys/lr_and_loss_scale_arguments.cpp", "engine/config/rules/checks.cpp",
               "engine/config/rules/learning_rate_rules.cpp", "engine/config/rules/shell_words.cpp",
               "engine/config/rules/sizes.cpp", "models/files/hf_config_reader.cpp"],
    "import": ["engine/import/import.cpp", "engine/import/job_files.cpp", "engine/import/yaml_text.cpp",
               "engine/import/keys/draft.cpp", "engine/import/keys/values.cpp", "engine/import/keys/vocabulary.cpp"],
}
WITH_TORCH = {"safetensors": "fuzz_tensors", "npy": "fuzz_tensors", "torch_file": "fuzz_tensors", "program": "fuzz_tensors",
              "model_directory": "fuzz_tensors", "optimizer_state": "fuzz_tensors", "manifest": "fuzz_tensors",
              "request": "fuzz_serve", "config": "fuzz_config", "import": "fuzz_config"}
WITHOUT_TORCH = [target for target in PARSERS if target not in WITH_TORCH]
LEAST_COVERED = 90  # percent of a file's lines
SHORT_RUNS = 500

OPTIONS = ["-timeout=20", "-rss_limit_mb=2048", "-malloc_limit_mb=256", "-print_final_stats=1", "-verbosity=0",
           "-print_funcs=0"]
ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=0:quarantine_size_mb=16:detect_odr_violation=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "LLVM_PROFILE_FILE": "/dev/null",  # except for --coverage
    "OMP_NUM_THREADS": "1",
}
FINDING = re.compile(r"FINDING: |ERROR: AddressSanitizer|runtime error: |ERROR: libFuzzer|LeakSanitizer")


class Fuzzer:
    """The binaries of a build folder, and how to run them."""

    def __init__(self, source, build, options=()):
        self.source, self.build, self.options = source, build, list(options)

    def configure(self):
        self.build.mkdir(parents=True, exist_ok=True)
        log = self.build / "configure.log"
        command = ["cmake", "--preset", "fuzz", "-B", self.build, f"-DTORCH_ROOT={os.environ['TORCH_ROOT']}"]
        with open(log, "wb") as out:
            if subprocess.run([*command, *self.options], cwd=self.source, stdout=out, stderr=out).returncode != 0:
                sys.exit(log.read_text())

    def program(self, target):
        return self.build / "tests/fuzz" / WITH_TORCH.get(target, "fuzz_text")

    def make(self, targets):
        programs = sorted({self.program(target).name for target in targets})
        subprocess.run(["cmake", "--build", self.build, "--target", *programs], check=True, stdout=sys.stderr)

    def run(self, target, folders, options=(), environment=None):
        """Runs a program; returns the finished process, its output, and the inputs that it read."""
        command = [self.program(target), f"--target={target}", *OPTIONS, f"-dict={BUILD}/seeds/{target}.dict",
                   *options, *folders]
        with scratch_folder() as scratch:
            ended = subprocess.run(command, env={**os.environ, **ENVIRONMENT, **(environment or {}), "TMPDIR": scratch},
                                   capture_output=True, cwd=self.build)
        output = (ended.stdout + ended.stderr).decode("utf-8", "replace")
        inputs = re.search(r"stat::number_of_executed_units: (\d+)", output)
        return ended, output, int(inputs[1]) if inputs else 0


def scratch_folder():
    """Returns a folder for the files of a target, in memory if possible."""
    memory = "/dev/shm"
    return tempfile.TemporaryDirectory(prefix="shardline-fuzz-", dir=memory if os.access(memory, os.W_OK) else BUILD)


def make_seeds():
    subprocess.run([sys.executable, HERE / "make_corpus.py", BUILD / "seeds"], check=True)


def seeds_of(target):
    return BUILD / "seeds" / target


def grown(target):
    """Returns the inputs that earlier runs have kept."""
    folder = BUILD / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def misplaced_seeds(fuzzer, target):
    """Returns the seeds in the folder `accepted` that the parser refuses, and those in `refused` that it accepts."""
    seeds = sorted(file for file in seeds_of(target).rglob("*") if file.is_file())
    _, output, _ = fuzzer.run(target, seeds, ["--explain=1"])
    told = dict(re.findall(r"^Running: (\S+)$.*?^(accepted|refused)$", output, re.M | re.S))
    return [seed.relative_to(BUILD) for seed in seeds if told.get(str(seed)) != seed.parent.name]


def turn(fuzzer, target, options, keep):
    """Runs a target; returns the inputs that it read, or none after a finding, which is printed."""
    for seed in (misplaced := misplaced_seeds(fuzzer, target)):
        print(f"{seed}: {target} does not treat it this way; fix it, or move it to the other folder")
    if misplaced:
        return None
    findings = BUILD / "findings"
    findings.mkdir(exist_ok=True)
    begin = time.monotonic()
    with scratch_folder() as forgotten:  # new inputs go into the first folder
        ended, output, inputs = fuzzer.run(target, [grown(target) if keep else forgotten, seeds_of(target)],
                                           [*options, f"-artifact_prefix={findings}/{target}-"])
    seconds = time.monotonic() - begin
    if ended.returncode != 0:
        print(output[-20000:])
        print(f"{target}: a finding (exit code {ended.returncode})", flush=True)
        return None
    print(f"{target:16} {inputs:9} inputs {seconds:7.1f} s {inputs / max(seconds, 0.1):8.0f} a second", flush=True)
    return inputs


def run(targets, options, keep=True, at_once=1):
    make_seeds()
    fuzzer = Fuzzer(ROOT, BUILD)
    fuzzer.configure()
    fuzzer.make(targets)
    with ThreadPoolExecutor(at_once) as pool:
        inputs = list(pool.map(lambda target: turn(fuzzer, target, options, keep), targets))
    broken = sum(count is None for count in inputs)
    print(f"{sum(count or 0 for count in inputs)} inputs over {len(targets)} targets, {broken} findings")
    return 1 if broken else 0


def coverage(targets):
    make_seeds()
    fuzzer = Fuzzer(ROOT, BUILD)
    fuzzer.configure()
    fuzzer.make(targets)
    profiles = []
    for target in targets:
        profile = BUILD / f"{target}.profraw"
        ended, output, _ = fuzzer.run(target, [grown(target), seeds_of(target)], ["-runs=0"],
                                      {"LLVM_PROFILE_FILE": str(profile)})
        if ended.returncode != 0:
            sys.exit(output[-5000:])
        profiles.append(profile)
    merged = BUILD / "all.profdata"
    subprocess.run(["llvm-profdata-14", "merge", "-o", merged, *profiles], check=True)
    objects = [f"-object={program}" for program in sorted({fuzzer.program(target) for target in targets})]
    exported = subprocess.run(["llvm-cov-14", "export", "-summary-only", f"-instr-profile={merged}", *objects],
                              check=True, capture_output=True).stdout
    lines = {file["filename"]: file["summary"]["lines"] for file in json.loads(exported)["data"][0]["files"]}
    return report_coverage(targets, lines)


def report_coverage(targets, lines):
    low = 0
    print(f"{'target':16} {'lines':>6} {'covered':>8}         file")
    for target in targets:
        for file in sorted(file for pattern in PARSERS[target] for file in ROOT.glob(pattern)):
            found = lines.get(str(file))
            if not found or found["count"] == 0:
                print(f"{target:16} not compiled into a target: {file.relative_to(ROOT)}")
                low += 1
                continue
            few = found["percent"] < LEAST_COVERED
            low += few
            print(f"{target:16} {found['count']:6} {found['covered']:8} {found['percent']:5.1f} %"
                  f" {file.relative_to(ROOT)}{'   below ' + str(LEAST_COVERED) + ' %' if few else ''}")
    print(f"{low} files below {LEAST_COVERED} %" if low else f"all files at {LEAST_COVERED} % or above")
    return 1 if low else 0


def head_of(patch):
    """Returns the target and the number of runs of a patch, from its first lines."""
    words = dict(re.findall(r"^(target|runs): (\S+)$", patch.read_text(), re.M))
    return words["target"], int(words["runs"])


def planted(patches):
    make_seeds()
    source = BUILD / "planted/source"
    copy_sources(source)
    changed = {name for patch in patches for name in re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.M)}
    apart = ";".join(str(source / name) for name in sorted(changed))
    fuzzer = Fuzzer(source, BUILD / "planted/build", [f"-DSHARDLINE_FUZZ_APART={apart}"])
    fuzzer.configure()
    missed, inputs = 0, {}
    for patch in patches:
        target, runs = head_of(patch)
        subprocess.run(["patch", "-p1", "--quiet", "-i", patch], cwd=source, check=True)
        fuzzer.make([target])
        found, needed = try_parser(fuzzer, patch.stem, target, runs)
        missed += not found
        inputs[target] = max(inputs.get(target, 0), needed)
        subprocess.run(["patch", "-p1", "--quiet", "-R", "-i", patch], cwd=source, check=True)
    fuzzer.make(inputs)
    for target, runs in inputs.items():  # without the bug, as many inputs as its bugs needed must find nothing
        missed += try_parser(fuzzer, "no bug", target, runs)[0]
    print(f"{len(patches)} planted bugs, {missed} not as expected")
    return 1 if missed else 0


def try_parser(fuzzer, name, target, runs):
    """Returns whether there is a finding within that many inputs, and the inputs that were read."""
    with scratch_folder() as forgotten:
        ended, output, inputs = fuzzer.run(target, [forgotten, seeds_of(target)],
                                           [f"-runs={runs}", "-seed=1", f"-artifact_prefix={fuzzer.build}/"])
    what = FINDING.search(output)
    line = output[what.start():].split("\n")[0][:100] if what else ""
    print(f"{name:40} {target:16} {inputs:6} inputs: {line or 'no finding'}", flush=True)
    return ended.returncode != 0 and what is not None, inputs


def copy_sources(to):
    """Copies the tracked and new files of the tree; unchanged ones keep their times."""
    listing = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                             check=True, capture_output=True).stdout.decode()
    for name in filter(None, listing.split("\0")):
        old, new = ROOT / name, to / name
        if not old.is_file() or new.exists() and new.read_bytes() == old.read_bytes():
            continue
        new.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(old, new)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int)
    mode = parser.add_mutually_exclusive_group()
    for name in ("short", "coverage", "planted"):
        mode.add_argument(f"--{name}", action="store_true")
    parser.add_argument("names", nargs="*", metavar="TARGET")
    asked = parser.parse_args()
    if asked.planted:
        patches = sorted((HERE / "planted").glob("*.patch"))
        return planted([patch for patch in patches if not asked.names or patch.stem in asked.names])
    targets = asked.names or (WITHOUT_TORCH if asked.short else list(PARSERS))
    unknown = [name for name in targets if name not in PARSERS]
    if unknown:
        sys.exit(f"there is no target {unknown[0]}; there are {' '.join(PARSERS)}")
    if asked.coverage:
        return coverage(targets)
    if asked.short:
        return run(targets, [f"-runs={SHORT_RUNS}", "-seed=1"], keep=False, at_once=os.cpu_count())
    limit = f"-max_total_time={asked.seconds}" if asked.seconds else f"-runs={-(-asked.runs // len(targets))}"
    return run(targets, [limit])


if __name__ == "__main__":
    sys.exit(main())
