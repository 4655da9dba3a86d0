"""Errors of the file system while checkpoints are saved: training continues, and what was saved before stays.

A preloaded library (file_calls/recorder.cpp) lets one call of every second save fail, another one each time, until each
has failed once. The default is a sample of errors and layouts; all of them, in about ten minutes:

    ctest --test-dir build-test -R all_failing_calls
"""
import collections
import errno
import os
import re
import shutil
import threading
import unittest

import records
from harness import TINY, ProgramTest

RECORDER = os.environ["FILE_CALLS"]
THOROUGH = bool(os.environ.get("SHARDLINE_ALL_FAILING_CALLS"))
MODEL = {"config": dict(TINY["model"]["config"], n_layer=4, attn_pdrop=0.1)}
LAYOUTS = {"one": {"communicator": "local"},
           "threads": {"p": 2, "t": 2, "communicator": "threads"},
           "ZeRO": {"communicator": "mpi", "smp_options": {"shard_optimizer_state": True},
                    "mpi_options": {"processes_per_host": 2}}}
# Advice that the messages give.
ADVICE = {errno.ENOSPC: "free some space there", errno.EDQUOT: "free some space there", errno.EROFS: "make it writable",
          errno.EACCES: "make it writable", errno.EIO: "check the disk"}
SAMPLE = [("threads", 1)]  # with some of the errors
STEPS = 160  # more than twice the calls of a save


def step_of(name):
    found = re.fullmatch(r"checkpoint-(\d+)", name)
    return int(found[1]) if found else None


class Watch(threading.Thread):
    """Checks that there is always a checkpoint, and that the newest one is never older than before."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.ended, self.looks, self.violations = folder, threading.Event(), 0, []

    def run(self):
        newest = 0
        while not self.ended.wait(0.005):
            now = max((step_of(path.parent.name) or 0 for path in self.folder.glob("*/manifest.json")), default=0)
            if now < newest:
                self.violations.append(f"checkpoint-{newest} was there, and then only checkpoint-{now}")
            newest, self.looks = now, self.looks + 1

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()


class FailingCalls(ProgramTest):
    def sections(self, layout, keep):
        training = {"max_steps": STEPS, "save_steps": 1, "checkpoint_dir": "saves", "save_total_limit": keep}
        return dict(LAYOUTS[layout], model=MODEL, runtime={"timeline_steps": 0}, training=training)

    def checkpoints(self):
        """Returns the contents of each complete checkpoint by name, by step."""
        return {step_of(manifest.parent.name): {file.name: file.read_bytes() for file in manifest.parent.iterdir()}
                for manifest in (self.dir / "saves").glob("*/manifest.json") if step_of(manifest.parent.name)}

    def train_with_failing_calls(self, layout, keep, error):
        """Runs the program; returns its output, and by number of the save, its calls and the one that failed."""
        log = self.dir / "calls.log"
        self.env.update(LD_PRELOAD=RECORDER, FILE_CALLS_LOG=str(log), FILE_CALLS_ROOT=str(self.dir / "saves"),
                        FILE_CALLS_FAIL=str(error))
        for file in self.dir.glob("calls.log*"):
            file.unlink()
        log.touch()
        with Watch(self.dir / "saves") as watch:
            result = self.run_program("train", self.config(**self.sections(layout, keep)))
        for name in ("LD_PRELOAD", "FILE_CALLS_FAIL"):
            del self.env[name]
        self.assertEqual(watch.violations, [])
        self.assertGreater(watch.looks, 20)
        calls, failed = collections.defaultdict(set), {}
        for line in log.read_text().splitlines():
            save, which = line.removeprefix("fail ").split(" ", 1)
            calls[int(save)].add(which)
            if line.startswith("fail "):
                failed[int(save)] = which
        return result, calls, failed

    def assert_goes_on(self, result, error, failed, whole):
        """All steps are trained, and each save either is complete or has a message with the reason and what to do."""
        self.assertEqual(result.code, 1, str(result))
        self.assertEqual(records.metrics(self.dir / "out"), whole["metrics"])
        self.assertEqual((self.dir / "out/model.safetensors").read_bytes(), whole["weights"])
        messages = dict(re.findall(r"^warning: checkpoints: checkpoint-(\d+) (was .*)$", result.out, re.MULTILINE))
        self.assertLessEqual({int(step) for step in messages}, set(failed), str(result))
        for message in messages.values():
            self.assertIn(os.strerror(error), message)
            self.assertIn(ADVICE[error], message)
        return {int(step): message for step, message in messages.items()}

    def whole_run(self, layout, keep):
        self.clear()
        self.train(**self.sections(layout, keep))
        return {"metrics": records.metrics(self.dir / "out"), "weights": (self.dir / "out/model.safetensors").read_bytes(),
                "checkpoints": self.checkpoints()}

    def clear(self):
        for folder in ("out", "saves"):
            shutil.rmtree(self.dir / folder, ignore_errors=True)

    def every_call(self, layout, keep, error, whole):
        self.clear()
        result, calls, failed = self.train_with_failing_calls(layout, keep, error)
        messages = self.assert_goes_on(result, error, failed, whole)
        self.assertEqual(sorted(calls), list(range(1, STEPS + 1)))
        self.assertEqual(calls[STEPS - 1] - set(failed.values()), set(), "calls that did not fail once")
        saved = self.checkpoints()
        for step, files in whole["checkpoints"].items():
            if step in saved or step not in messages:
                self.assertEqual(saved.get(step), files, f"checkpoint-{step}")
        unsaved = sum("was not saved" in message for message in messages.values())
        print(f"{layout:<8} keeps {keep:<4} {errno.errorcode[error]:<7} {len(failed)} calls failed: {unsaved} checkpoints "
              f"not saved, {len(messages) - unsaved} saved with a warning, {len(failed) - len(messages)} saved without",
              flush=True)

    def test_every_call(self):
        cases = [(layout, keep) for layout in LAYOUTS for keep in (STEPS, 1)] if THOROUGH else SAMPLE
        for number, (layout, keep) in enumerate(cases):
            whole = self.whole_run(layout, keep)
            for error in ADVICE if THOROUGH else list(ADVICE)[number::2]:
                with self.subTest(layout, keep=keep, error=errno.errorcode[error]):
                    self.every_call(layout, keep, error, whole)

    def test_directory_that_vanishes(self):
        """Training continues without its directory of checkpoints, and reports that nothing was saved."""
        for name, layout in LAYOUTS.items():
            with self.subTest(name):
                shutil.rmtree(self.dir / "out", ignore_errors=True)
                (self.dir / "saves").unlink(missing_ok=True)
                process = self.start("train", self.config(
                    model=MODEL, runtime={"timeline_steps": 0},
                    training={"max_steps": 200, "save_steps": 2, "checkpoint_dir": "saves"}, **layout))
                self.addCleanup(process.kill)
                self.wait_for_steps(4)
                os.rename(self.dir / "saves", self.dir / f"gone-{name}")
                (self.dir / "saves").write_text("a file where the directory was")
                result = self.finish(process)
                self.assertEqual(result.code, 1, str(result))
                self.assertIn("was not saved", result.out + result.err)
                self.assertEqual(len(self.metrics()), 200)
                self.assertTrue((self.dir / "out/model.safetensors").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
