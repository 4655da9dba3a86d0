"""Rehearses tools/gpu_check.sh without a GPU: $SHARDLINE_PACKAGE has its programs, built with the accelerator of
tests/fake_device. The commands are those of a machine with a GPU; only the models are small."""
import json
import os
import pathlib
import shutil
import stat
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = pathlib.Path(os.environ["SHARDLINE_PACKAGE"])
LIMIT = 600  # seconds for a phase that takes 20 on an idle machine


class Rehearsal(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="gpu-rehearsal-"))
        self.addCleanup(shutil.rmtree, self.dir, True)
        self.output = self.dir / "gpu_check.json"

    def phase(self, *arguments, package=PACKAGE, path=None, code=0):
        """The entries of the phase's steps, by name."""
        environment = {**os.environ, "SHARDLINE_PACKAGE": str(package), "PATH": path or os.environ["PATH"]}
        done = subprocess.run([ROOT / "tools/gpu_check.sh", *arguments, "--rehearse", "--output", self.output],
                              env=environment, capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.printed = done.stdout
        return json.loads(self.output.read_text())[arguments[0]]

    def table(self, *files):
        return subprocess.run([ROOT / "tools/gpu_check.sh", "table", *files], text=True, check=True, timeout=LIMIT,
                              env={**os.environ, "SHARDLINE_PACKAGE": str(PACKAGE)}, capture_output=True).stdout

    def script(self, path, *lines):
        path.write_text("\n".join(["#!/usr/bin/env bash", *lines]) + "\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def package_with(self, program, *lines):
        """A package whose `program` is a script of these lines."""
        package = self.dir / "package"
        (package / "bin").mkdir(parents=True)
        for file in (PACKAGE / "bin").iterdir():
            (package / "bin" / file.name).symlink_to(file)
        (package / "bin" / program).unlink()
        self.script(package / "bin" / program, *lines)
        return package

    def archive_of(self, package):
        archive = self.dir / "shardline-gpu.tar.gz"
        subprocess.run(["tar", "-czhf", archive, "-C", package.parent, package.name], check=True)
        return archive

    def passed(self, entries, but=()):
        for name, entry in entries.items():
            self.assertEqual(entry["status"], "skipped" if name in but else "passed", f"{name}: {entry}")

    def test_works(self):
        tools = self.dir / "tools"
        tools.mkdir()
        self.script(tools / "compute-sanitizer", 'while [[ $1 == --* ]]; do shift 2; done', '"$@"',
                    'echo "========= ERROR SUMMARY: 0 errors"')
        entries = self.phase("works", path=f"{tools}:{os.environ['PATH']}")
        self.passed(entries)
        self.assertGreater(entries["ceilings"]["result"]["product_flops_per_second"], 0)
        self.assertGreater(entries["ceilings"]["result"]["host_link_bytes_per_second"]["to_host"], 0)
        self.assertIn("All tests passed", entries["D x P x T"]["result"]["summary"])
        self.assertIn("D2 P2 T2", "".join(entries["D x P x T"]["result"]["comparisons"]))
        self.assertIn("0 errors", entries["memcheck of a step"]["result"]["summary"])

    def without_packages(self):
        """A PATH whose python3 has no packages, as that of a machine with LibTorch alone."""
        folder = self.dir / "python"
        folder.mkdir()
        self.script(folder / "python3", f'exec {shutil.which("python3")} -S "$@"')
        return f"{folder}:{os.environ['PATH']}"

    def test_speed(self):
        entries = self.phase("speed", path=self.without_packages())
        peers = [name for name in entries if name.startswith("transformers")]
        self.assertEqual(len(peers), 2)
        self.passed(entries, but=peers)
        for name in set(entries) - set(peers):
            result = entries[name]["result"]
            self.assertGreater(result["tokens_per_second"], 0)
            self.assertGreater(result["fraction_of_ceiling"], 0)
            self.assertGreater(result["memory"][0]["planned_bytes"], 0)

    def test_memory(self):
        entries = self.phase("memory", path=self.without_packages())
        self.passed(entries, but=["transformers, GPT-J-6B"])
        plain, offloaded = (entries[name]["result"]["memory"][0]["planned_bytes"]
                            for name in ("plain", "offloaded activations"))
        self.assertNotEqual(offloaded, plain)  # otherwise nothing is moved
        copy = self.dir / "copy.json"
        shutil.copy(self.output, copy)
        text = self.table(copy)
        self.assertIn("| states on the host |", text)
        self.assertIn("| memory | train, generate, eval | passed |", text)

    def test_a_step_that_fails_is_reported_with_its_output(self):
        package = self.package_with("bench_step", "echo the last words >&2", "exit 3")
        entries = self.phase("memory", "--only", "plain", "--only", "recomputed", package=package, code=1)
        for name in ("plain", "recomputed"):
            self.assertEqual(entries[name]["status"], "failed")
            self.assertIn("ended with 3\nthe last words", entries[name]["why"])
        self.assertIn("0 of 2 steps", self.printed)

    def test_a_step_that_hangs_is_killed_and_the_rest_goes_on(self):
        # It does not end when asked to, and has started others.
        package = self.package_with("bench_device", "trap '' TERM", f"sleep 1000 & echo $! > {self.dir}/child",
                                    "echo still here", "wait; sleep 1000")
        (package / "bin/cuda_tests").unlink()
        self.script(package / "bin/cuda_tests", "echo All tests passed")
        begin = time.monotonic()
        entries = self.phase("works", "--only", "ceilings", "--only", "D x P x T", "--step-limit", "5",
                             package=package, code=1)
        self.assertEqual(entries["ceilings"]["status"], "timed out")
        self.assertIn("not done after 5 s", entries["ceilings"]["why"])
        self.assertIn("still here", entries["ceilings"]["why"])
        self.assertEqual(entries["D x P x T"]["status"], "passed")
        child = pathlib.Path("/proc") / (self.dir / "child").read_text().strip() / "cmdline"
        self.assertFalse(child.exists() and child.read_bytes().startswith(b"sleep"))
        self.assertLess(time.monotonic() - begin, 60)

    def test_wrong_numbers_are_failures(self):
        line = json.dumps({"tokens_per_second": 1, "step_seconds": 1, "loss": [3.0, 3.5],
                           "memory": [{"planned_bytes": 100, "counted_bytes": 100}]})
        package = self.package_with("bench_step", f"echo '{line}'")
        entries = self.phase("memory", "--only", "plain", package=package, code=1)
        self.assertIn("does not fall", entries["plain"]["why"])
        self.assertEqual(entries["plain"]["result"]["tokens_per_second"], 1)
        line = line.replace("3.5", "2.5").replace('counted_bytes": 100', 'counted_bytes": 300')
        self.script(package / "bin/bench_step", f"echo '{line}'")
        entries = self.phase("memory", "--only", "plain", package=package, code=1)
        self.assertIn("3.000 of the memory", entries["plain"]["why"])
        self.script(package / "bin/bench_step", "echo no JSON")
        self.assertEqual(self.phase("memory", "--only", "plain", package=package, code=1)["plain"]["status"], "failed")

    def test_an_archive_is_unpacked(self):
        package = self.dir / "shardline-gpu"
        (package / "bin").mkdir(parents=True)
        self.script(package / "bin/shardline", """echo '{"gpus": [{"problem": null}], "no_gpu": null}'""")
        (package / "BUILD").write_text("a commit\n")
        entries = self.phase("works", "--only", "machine", package=self.archive_of(package))
        self.assertEqual(entries["machine"]["result"]["package"], "a commit")
        self.script(package / "bin/shardline", """echo '{"gpus": [], "no_gpu": "no driver"}'""")
        entries = self.phase("works", "--only", "machine", package=self.archive_of(package), code=1)
        self.assertEqual(entries["machine"]["why"], "no driver")

    def test_a_missing_compute_sanitizer_is_a_visible_skip(self):
        if shutil.which("compute-sanitizer"):
            self.skipTest("compute-sanitizer is installed")
        entries = self.phase("works", "--only", "memcheck of a step")
        self.assertEqual(entries["memcheck of a step"]["status"], "skipped")
        self.assertIn("not installed", entries["memcheck of a step"]["why"])


if __name__ == "__main__":
    unittest.main()
