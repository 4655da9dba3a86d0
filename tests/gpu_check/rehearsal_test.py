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

    def command(self, *arguments, package=PACKAGE, **environment):
        """Starts the script with these arguments; a rehearsal if they name a phase."""
        rehearsal = [] if arguments[0] == "table" else ["--rehearse", "--output", self.output]
        return subprocess.Popen([ROOT / "tools/gpu_check.sh", *arguments, *rehearsal], text=True,
                                env={**os.environ, "SHARDLINE_PACKAGE": str(package), **environment},
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def ended(self, *arguments, code=0, **options):
        """What the script prints, errors included."""
        process = self.command(*arguments, **options)
        out, err = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, code, out + err)
        self.printed = out
        return out + err

    def results(self):
        """The file's object, if it is JSON in the strict sense."""
        return json.loads(self.output.read_text(), parse_constant=lambda word: self.fail(f"{word} is not JSON"))

    def phase(self, phase, *arguments, **options):
        """The entries of the phase's steps, by name."""
        self.ended(phase, *arguments, **options)
        return self.results()[phase]

    def script(self, path, *lines):
        path.write_text("\n".join(["#!/usr/bin/env bash", *lines]) + "\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def package_with(self, program, *lines):
        """Returns a copy of the package in which `program` is a script of these lines."""
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
        entries = self.phase("works", PATH=f"{tools}:{os.environ['PATH']}")
        self.passed(entries, but=["NCCL"])
        self.assertIn("works: 11 of 12 steps passed; skipped: NCCL\n", self.printed)
        self.assertGreater(entries["ceilings"]["result"]["product_flops_per_second"], 0)
        self.assertGreater(entries["ceilings"]["result"]["host_link_bytes_per_second"]["to_host"], 0)
        for kind in ("with_dropout", "without_dropout"):
            self.assertGreater(entries["ceilings"]["result"]["attention_seconds"][kind], 0)
        self.assertIn("All tests passed", entries["D x P x T"]["result"]["summary"])
        self.assertIn("D2 P2 T2", "".join(entries["D x P x T"]["result"]["comparisons"]))
        self.assertIn("0 errors", entries["memcheck on one step"]["result"]["summary"])

    def without_packages(self):
        """Returns a PATH whose python3 has no packages, as on a machine with LibTorch alone."""
        folder = self.dir / "python"
        folder.mkdir()
        self.script(folder / "python3", f'exec {shutil.which("python3")} -S "$@"')
        return f"{folder}:{os.environ['PATH']}"

    def test_speed(self):
        entries = self.phase("speed", PATH=self.without_packages())
        peers = [name for name in entries if name.startswith("transformers")]
        self.assertEqual(len(peers), 2)
        self.passed(entries, but=peers)
        for name in set(entries) - set(peers):
            result = entries[name]["result"]
            self.assertGreater(result["tokens_per_second"], 0)
            self.assertGreater(result["fraction_of_ceiling"], 0)
            self.assertGreater(result["memory"][0]["planned_bytes"], 0)

    def test_memory(self):
        entries = self.phase("memory", PATH=self.without_packages())
        self.passed(entries, but=["transformers, GPT-J-6B"])
        plain, offloaded = (entries[name]["result"]["memory"][0]["planned_bytes"]
                            for name in ("plain", "offloaded activations"))
        self.assertNotEqual(offloaded, plain)  # otherwise nothing is moved
        copy = self.dir / "copy.json"
        shutil.copy(self.output, copy)
        text = self.ended("table", copy)
        self.assertIn("| states on the host |", text)
        self.assertIn("| memory | train, generate, eval | passed |", text)

    def test_a_step_that_fails_is_reported_with_its_output(self):
        package = self.package_with("bench_step", "for i in {1..9999}; do echo line $i; done",
                                    "echo 'error: the reason' >&2", "echo the last words >&2", "exit 3")
        entries = self.phase("memory", "--only", "plain", "--only", "profile and forecast", package=package, code=1)
        for name in ("plain", "profile and forecast"):
            self.assertEqual(entries[name]["status"], "failed")
            self.assertEqual(entries[name]["why"], "bench_step ended with 3: error: the reason")
            self.assertTrue(entries[name]["output"].startswith("line 1\nline 2\n"))
            self.assertTrue(entries[name]["output"].endswith("error: the reason\nthe last words"))
            self.assertLess(len(entries[name]["output"]), 13000)
        self.assertIn("   | the last words\n", self.printed)
        self.assertIn("memory: 0 of 2 steps passed; failed: plain, profile and forecast\n", self.printed)

    def test_output_of_a_step_that_cannot_be_used_ends_only_that_step(self):
        package = self.package_with("bench_step", """echo '{"loss": 3, "memory": null}'""")
        entries = self.phase("memory", "--only", "plain", "--only", "train, generate, eval", package=package, code=1)
        self.assertEqual(entries["plain"]["status"], "failed")
        self.assertIn("TypeError", entries["plain"]["why"])
        self.assertEqual(entries["train, generate, eval"]["status"], "passed")

    def test_a_phase_that_is_stopped_ends_its_commands_and_leaves_its_results(self):
        package = self.package_with("bench_device", f"echo $$ > {self.dir}/child", "sleep 1000")
        (package / "BUILD").write_text("a commit\n")
        process = self.command("works", "--only", "machine", "--only", "ceilings", "--only", "NCCL",
                               package=self.archive_of(package))
        for _ in range(10 * LIMIT):
            if (self.dir / "child").exists() and (self.dir / "child").read_text():
                break
            time.sleep(0.1)
        process.terminate()
        process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 143)
        child = pathlib.Path("/proc") / (self.dir / "child").read_text().strip() / "cmdline"
        self.assertFalse(child.exists() and b"bench_device" in child.read_bytes())
        entries = self.results()["works"]
        self.assertEqual([entries[name]["status"] for name in ("machine", "ceilings", "NCCL")],
                         ["passed", "not run", "not run"])

    def test_one_step_again_keeps_the_results_of_the_others(self):
        package = self.package_with("bench_device", "echo '{}'")
        self.phase("works", "--only", "ceilings", package=package)
        entries = self.phase("works", "--only", "NCCL", package=package)
        self.assertEqual(entries["ceilings"]["status"], "passed")
        # A run that saves memory is compared with the plain one, which must exist.
        line = {"tokens_per_second": 1, "step_seconds": 1, "loss": [3.0, 2.0],
                "memory": [{"planned_bytes": 100, "counted_bytes": 100}]}
        bench_step = package / "bin/bench_step"
        bench_step.unlink()
        self.script(bench_step, f"echo '{json.dumps(line)}'")
        entries = self.phase("memory", "--only", "recomputed", package=package, code=1)
        self.assertIn("no losses to compare with", entries["recomputed"]["why"])
        self.phase("memory", "--only", "plain", package=package)
        self.assertEqual(self.phase("memory", "--only", "recomputed", package=package)["recomputed"]["status"], "passed")
        self.script(bench_step, f"echo '{json.dumps({**line, 'loss': [3.0, 2.1]})}'")
        entries = self.phase("memory", "--only", "recomputed", package=package, code=1)
        self.assertIn("those of the plain run are [3.0, 2.0]", entries["recomputed"]["why"])

    def test_what_is_missing_is_said_before_any_step(self):
        self.assertIn("set SHARDLINE_PACKAGE", self.ended("works", package=self.dir, code=2))
        self.assertIn("no does not exist; make it with tools/gpu_package.sh",
                      self.ended("works", package=self.dir / "no", code=2))
        (self.dir / "empty").mkdir()
        self.assertIn("make the archive with tools/gpu_package.sh",
                      self.ended("works", package=self.dir / "empty", code=2))
        self.assertIn("is not an archive", self.ended("works", package=__file__, code=2))
        self.assertIn("TORCH_ROOT is not set", self.ended("works", TORCH_ROOT="", PATH=self.without_packages(), code=2))
        self.assertIn("the steps of speed are 'GPT-2 124M',", self.ended("speed", "--only", "plain", code=2))
        self.assertFalse(self.output.exists())
        self.assertIn("no.json does not exist; run a phase first", self.ended("table", self.dir / "no.json", code=2))
        self.output.write_text('{"works": {"mach')
        self.assertIn("gpu_check.json cannot be read", self.ended("works", code=2))
        self.assertEqual(self.output.read_text(), '{"works": {"mach')

    def test_a_step_that_hangs_is_killed_and_the_rest_goes_on(self):
        # The program does not end when asked to, and has started other processes.
        package = self.package_with("bench_device", "trap '' TERM", f"sleep 1000 & echo $! > {self.dir}/child",
                                    "echo still here", "wait; sleep 1000")
        (package / "bin/cuda_tests").unlink()
        self.script(package / "bin/cuda_tests", "echo All tests passed")
        begin = time.monotonic()
        entries = self.phase("works", "--only", "ceilings", "--only", "D x P x T", "--step-limit", "5",
                             package=package, code=1)
        self.assertEqual(entries["ceilings"]["status"], "timed out")
        self.assertIn("not done after 5 s", entries["ceilings"]["why"])
        self.assertEqual(entries["ceilings"]["output"], "still here")
        self.assertEqual(entries["D x P x T"]["status"], "passed")
        child = pathlib.Path("/proc") / (self.dir / "child").read_text().strip() / "cmdline"
        self.assertFalse(child.exists() and child.read_bytes().startswith(b"sleep"))
        self.assertLess(time.monotonic() - begin, 60)

    def test_wrong_numbers_are_failures(self):
        line = json.dumps({"tokens_per_second": 1, "step_seconds": 1, "loss": [3.0, 3.5],
                           "memory": [{"planned_bytes": 100, "counted_bytes": 100}]})
        package = self.package_with("bench_step", f"echo '{line}'")
        entries = self.phase("memory", "--only", "plain", package=package, code=1)
        self.assertIn("did not decrease", entries["plain"]["why"])
        self.assertEqual(entries["plain"]["result"]["tokens_per_second"], 1)
        line = line.replace("3.5", "2.5").replace('counted_bytes": 100', 'counted_bytes": 300')
        self.script(package / "bin/bench_step", f"echo '{line}'")
        entries = self.phase("memory", "--only", "plain", package=package, code=1)
        self.assertIn("3.000 times the planned memory", entries["plain"]["why"])
        # If a loss is not a number, our programs write null and Python programs write NaN.
        for word in ("null", "NaN"):
            self.script(package / "bin/bench_step", f"echo '{line.replace('2.5', word)}'")
            entries = self.phase("memory", "--only", "plain", package=package, code=1)
            self.assertIn("did not decrease", entries["plain"]["why"])
            self.assertEqual(entries["plain"]["result"]["loss"], [3.0, None])
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

    def test_a_sanitizer_that_cannot_run_is_a_visible_skip(self):
        step = "memcheck on one step"
        toolkit = self.dir / "toolkit"
        (toolkit / "bin").mkdir(parents=True)
        options = {"CUDA_HOME": str(toolkit), "PATH": "/usr/bin:/bin"}
        entry = self.phase("works", "--only", step, **options)[step]
        self.assertEqual(entry["status"], "skipped")
        self.assertIn("not installed", entry["why"])
        self.assertIn(f"0 of 1 steps passed; skipped: {step}\n", self.printed)
        tool = self.script(toolkit / "bin/compute-sanitizer", "echo '========= Error: Device not supported'", "exit 1")
        entry = self.phase("works", "--only", step, **options)[step]
        self.assertEqual((entry["status"], "does not support this device" in entry["why"]), ("skipped", True))
        self.script(tool, "echo '========= ERROR SUMMARY: 3 errors'", "exit 9")
        self.assertEqual(self.phase("works", "--only", step, code=1, **options)[step]["status"], "failed")
        self.script(tool, "echo not a word about errors")
        self.assertEqual(self.phase("works", "--only", step, code=1, **options)[step]["status"], "failed")

    def test_an_nvidia_smi_that_fails_is_not_the_gpu_that_fails(self):
        tools = self.dir / "tools"
        tools.mkdir()
        self.script(tools / "nvidia-smi", "echo no permission >&2", "exit 4")
        entry = self.phase("works", "--only", "machine", PATH=f"{tools}:{os.environ['PATH']}")["machine"]
        self.assertEqual(entry["status"], "passed")
        self.assertIn("no permission", entry["result"]["nvidia-smi"]["problem"])
        self.assertIn("driver unknown, LibTorch 2.", self.ended("table", self.output))

    def peer(self, *lines):
        """Returns the environment of a Python in which importing torch runs these lines, and transformers is empty."""
        for package in ("torch", "transformers"):
            (self.dir / "site" / package).mkdir(parents=True, exist_ok=True)
        (self.dir / "site/transformers/__init__.py").write_text("")
        (self.dir / "site/torch/__init__.py").write_text("\n".join(["import json, os, sys", *lines]))
        return {"PYTHONPATH": str(self.dir / "site")}

    def test_transformers_takes_the_largest_microbatch_that_fits(self):
        name = "transformers, GPT-2 124M"
        environment = self.peer(
            "batch = int(sys.argv[sys.argv.index('--batch') + 1])",
            "line = {'step_seconds': 2.0, 'tokens_per_second': 50.0, 'length': 32, 'peak_bytes': 1 << 30}",
            "print(json.dumps(line if batch < 32 else {'out_of_memory': 'too large'}), flush=True)", "os._exit(0)")
        entries = self.phase("speed", "--only", name, "--only", "GPT-2 124M", **environment)
        self.assertEqual(entries[name]["result"]["samples_of_microbatch"], 16)
        ours = entries["GPT-2 124M"]["result"]["tokens_per_second"]
        self.assertIn(f"| {ours / 50:.2f} |", self.ended("table", self.output))

    def test_transformers_without_a_compiler_is_a_visible_skip(self):
        name = "transformers, GPT-2 124M"
        environment = self.peer("sys.exit('RuntimeError: Failed to find C compiler. Please specify via CC')")
        entry = self.phase("speed", "--only", name, **environment)[name]
        self.assertEqual(entry["status"], "skipped")
        self.assertIn("Failed to find C compiler", entry["why"])
        environment = self.peer("sys.exit('RuntimeError: something else')")
        self.assertEqual(self.phase("speed", "--only", name, code=1, **environment)[name]["status"], "failed")


if __name__ == "__main__":
    unittest.main()
