"""Runs the built program ($SHARDLINE) in a temporary folder, on models that train in a second."""
import copy
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ALL_CASES = bool(os.environ.get("SHARDLINE_ALL_CASES"))  # set for NAME_all_cases of ctest
PROGRAM = os.path.abspath(os.environ["SHARDLINE"])  # tests run it in folders of their own
ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 300  # seconds; far more than the one or two that a command takes on an idle machine
NOT_RUN = 77  # the exit code with which ctest counts a file of tests as skipped

TINY = {
    "model": {"config": {"model_type": "gpt2", "vocab_size": 256, "n_positions": 32, "n_embd": 16, "n_layer": 2,
                         "n_head": 2}},
    "data": {"train": "text.txt", "tokenizer": "bytes", "sequence_length": 16},
    "training": {"global_batch_size": 8, "max_steps": 3, "learning_rate": 1e-2, "use_cpu": True},
    "smp_options": {},
    "runtime": {"device": "cpu", "communicator": "auto", "threads_per_rank": 1},
    "output_dir": "out",
}


def tiny(**sections):
    """Returns TINY with the keys of each section replaced; `p`, `t` and `communicator` abbreviate common keys."""
    config = copy.deepcopy(TINY)
    for key, name in (("p", "pipeline_parallel_degree"), ("t", "tensor_parallel_degree")):
        if key in sections:
            config["smp_options"][name] = sections.pop(key)
    if config["smp_options"].get("pipeline_parallel_degree", 1) > 1:
        config["smp_options"]["microbatches"] = 2
    if "communicator" in sections:
        config["runtime"]["communicator"] = sections.pop("communicator")
    for name, value in sections.items():
        if isinstance(value, dict):
            config.setdefault(name, {}).update(value)
        else:
            config[name] = value
    return config


class Result:
    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds
        lines = [line for line in err.splitlines() if line.strip()]
        self.last = lines[-1] if lines else ""
        self.errors = [line for line in lines if line.startswith("error: ")]

    def __str__(self):
        return f"exit code {self.code} after {self.seconds:.1f} s\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class ProgramTest(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="shardline-"))
        self.addCleanup(shutil.rmtree, self.dir, True)
        self.seen = set()
        self.env = dict(os.environ, XDG_CACHE_HOME=str(self.dir / "cache"), TERM="xterm")
        text = (ROOT / "configs/data/quickstart.txt").read_bytes()[:4000]
        (self.dir / "text.txt").write_bytes(text)

    def run(self, result=None):
        """Reports how long each test takes, as Catch2 does with -d yes."""
        begin = time.monotonic()
        result = super().run(result)
        print(f"\n{time.monotonic() - begin:.1f} s: {self.id()}", file=sys.stderr)
        return result

    @classmethod
    def done_once(cls, work):
        """Calls the method of this name on another test of the class, and returns that test. Its folder exists as long
        as the class."""
        test = cls(work)
        test.setUp()
        cls.addClassCleanup(test.doCleanups)
        getattr(test, work)()
        return test

    def config(self, name="config.json", **sections):
        (self.dir / name).write_text(json.dumps(tiny(**sections)))
        return name

    def start(self, *arguments, program=PROGRAM, stdin=subprocess.DEVNULL, **options):
        return subprocess.Popen([program, *arguments], cwd=self.dir, env=self.env, stdin=stdin,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", **options)

    def finish(self, process, limit=LIMIT):
        begin = time.monotonic()
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            self.fail(f"{' '.join(process.args)} hangs\n{out}\n{err}")
        return Result(process.returncode, out, err, time.monotonic() - begin)

    def run_program(self, *arguments, **options):
        return self.finish(self.start(*arguments, **options))

    def expect(self, code, *arguments, says=(), **options):
        """Runs the program, which must exit with `code` and print each of `says` (in its last error when it fails)."""
        result = self.run_program(*arguments, **options)
        self.assertEqual(result.code, code, str(result))
        for words in [says] if isinstance(says, str) else says:
            self.assertIn(words, result.err if code else result.out, str(result))
        if code:
            self.assertNotIn("terminate called", result.err)
        return result

    def train(self, **sections):
        return self.expect(0, "train", self.config(**sections))

    def files(self, folder="out"):
        path = self.dir / folder
        return sorted(str(f.relative_to(path)) for f in path.rglob("*") if f.is_file()) if path.exists() else []

    def metrics(self, folder="out"):
        return [json.loads(line) for line in (self.dir / folder / "metrics.jsonl").read_text().splitlines()]

    def assert_no_finished_model(self, folder="out"):
        present = [f for f in self.files(folder)
                   if (f == "config.json" or f.endswith(".safetensors")) and not f.startswith("checkpoint-")]
        self.assertEqual(present, [], f"{folder} looks like a finished model")

    # ---- processes of a run

    def wait_for(self, condition, what, limit=LIMIT):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            time.sleep(0.05)
        self.fail(f"waited {limit} s for {what}")

    def wait_for_steps(self, count=2, folder="out"):
        path = self.dir / folder / "metrics.jsonl"
        self.wait_for(lambda: path.exists() and path.read_bytes().count(b"\n") >= count, f"{count} steps")

    def processes(self):
        """The processes of this test's runs: process id -> rank, or None."""
        found = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(folder / "cwd") != str(self.dir) or has_ended(folder.name):
                    continue
                environment = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            ranks = [e.split(b"=")[1] for e in environment if e.startswith(b"OMPI_COMM_WORLD_RANK=")]
            found[int(folder.name)] = int(ranks[0]) if ranks else None
        self.seen.update(found)
        return found

    def pid_of_rank(self, rank):
        return next(pid for pid, r in self.processes().items() if r == rank)

    def interrupt_twice(self, process):
        """Interrupts the run twice while none of its steps can end."""
        os.kill(self.pid_of_rank(1), signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)  # signals that come together are one
        process.send_signal(signal.SIGINT)

    def assert_all_gone(self):
        """A process that is ending has no directory and no environment any more while it still holds its file locks."""
        self.wait_for(lambda: not self.processes() and all(map(has_ended, self.seen)), "the end of all processes", 30)


def has_ended(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def one_of_all(test):
    """Marks a test that resembles one that always runs: it runs only if all cases do."""
    return unittest.skipUnless(ALL_CASES, "SHARDLINE_ALL_CASES=1 runs it")(test)


def as_nobody():
    """For preexec_fn: gives up root, which may write to every directory."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


__all__ = ["ALL_CASES", "LIMIT", "NOT_RUN", "PROGRAM", "ProgramTest", "ROOT", "Result", "as_nobody", "one_of_all", "signal", "tiny", "unittest"]
