"""Checks what is installed, and users' programs that are built against it: the examples, one that adds an extension of
each kind, one in C, and one in Fortran."""
import json
import os
import shutil
import subprocess
import unittest
import urllib.request

from package import ROOT, TORCH, Package, run


def losses(folder, output="out"):
    lines = (folder / output / "metrics.jsonl").read_text().splitlines()
    return [step["loss"] for step in map(json.loads, lines) if "loss" in step]


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.package = Package()
        cls.addClassCleanup(cls.package.remove)

    def run_in(self, folder, *command, code=0):
        return run(command, folder, code, env=self.package.env)

    def assert_close(self, some, others, most=5e-6):
        self.assertEqual(len(some), len(others))
        for one, other in zip(some, others):
            self.assertLess(abs(one - other), most * abs(other), f"{some} {others}")

    def test_package_is_complete(self):
        prefix = self.package.prefix
        for name in ["bin/shardline", "include/shardline/shardline.h", "include/shardline/c.h",
                     "include/shardline/optim/update/learning_rate.h", "share/man/man1/shardline.1",
                     "share/bash-completion/completions/shardline", "share/shardline/configs/quickstart.json",
                     "share/shardline/examples/surrogate/main.cpp"]:
            self.assertTrue((prefix / name).is_file(), name)
        for header in (prefix / "include").rglob("*.h"):
            self.assertNotIn('#include "core/', header.read_text(), header)
        self.run_in(prefix / "share/shardline", "../../bin/shardline", "plan", "configs/quickstart.json")

    def test_custom_transformer(self):
        folder = self.package.built("examples/custom_transformer")
        program = "build/custom_transformer"
        plan = self.run_in(folder, program, "plan", "config.json")
        self.assertIn("blocks.2 ... head", plan)
        self.assertIn("4 heads over 2 ranks", plan)
        self.run_in(folder, program, "train", "config.json")
        found = losses(folder)
        self.assertEqual(len(found), 60)
        self.assertLess(found[-1], 0.8 * found[0])
        self.run_in(folder, program, "generate", "out", "--prompt", "In the beginning", "--max-new-tokens", "4")
        self.run_in(folder, program, "train", "config.json", "--set", "output_dir=one", "--set",
                    "smp_options.pipeline_parallel_degree=1", "--set", "mpi_options.processes_per_host=1", "--set",
                    "smp_options.tensor_parallel_degree=1", "--set", "smp_options.microbatches=1")
        self.assert_close(losses(folder, "one")[:10], found[:10])

    def test_surrogate(self):
        folder = self.package.built("examples/surrogate")
        said = self.run_in(folder, "mpirun", "-np", "4", "build/surrogate")
        self.assertIn("saved out/checkpoint-400", said)
        error = float(said.split("largest error ")[1].split(";")[0])
        self.assertLess(error, 0.2)
        self.assertTrue((folder / "out/checkpoint-400/model.safetensors").is_file())

    def test_everything(self):
        folder = self.package.built("tests/install/everything")
        self.run_in(folder, "build/everything", "train", "words.json")
        found = losses(folder, "words")
        self.run_in(folder, "build/everything", "train", "words.json", "--set", "output_dir=two", "--set",
                    "smp_options.pipeline_parallel_degree=2", "--set", "smp_options.microbatches=2", "--set",
                    "mpi_options.processes_per_host=4", "--set", "smp_options.shard_optimizer_state=true")
        self.assert_close(losses(folder, "two"), found)
        lines = (folder / "words/metrics.jsonl").read_text().splitlines()
        rates = [step["learning_rate"] for step in map(json.loads, lines)]
        self.assert_close(rates, [0.01 * share for share in (0.25, 0.5, 0.75, 1)], 1e-12)
        self.assertEqual(sorted(set((folder / "steps.txt").read_text().split())), ["1", "2", "3", "4"])  # of all ranks
        self.assertTrue((folder / "words/checkpoint-4/optimizer.safetensors").is_file())
        plan = self.run_in(folder, "build/everything", "plan", "divided.json")
        for kind in ["Attention", "ColumnLinear"]:
            self.assertIn(f"its module is a shardline::nn::{kind}", plan)
        self.run_in(folder, "build/everything", "train", "divided.json")
        self.run_in(folder, "build/everything", "train", "divided.json", "--set", "output_dir=whole", "--set",
                    "smp_options.pipeline_parallel_degree=1", "--set", "smp_options.tensor_parallel_degree=1", "--set",
                    "mpi_options.processes_per_host=1", "--set", "smp_options.microbatches=1")
        self.assert_close(losses(folder, "divided"), losses(folder, "whole"))
        # The same names in a program that has not added them.
        refused = self.run_in(folder, self.package.prefix / "bin/shardline", "train", "words.json", code=2)
        for name in ["my-words", "lion", "rising"]:
            self.assertIn(name, refused)
        rows = "".join(json.dumps({"text": "a" * (1 + i * 7 % 16)}) + "\n" for i in range(32))
        (folder / "rows.jsonl").write_text(rows)
        self.run_in(folder, "build/everything", "train", "long.json")
        last = json.loads((folder / "long/metrics.jsonl").read_text().splitlines()[-1])
        self.assertIn("eval_right", last)
        self.assertIn("eval_too_long", last)
        if os.environ["SHARDLINE_SERVE"] == "ON":
            self.check_serving(folder)

        self.assertIn("trained 5 steps", self.run_in(folder, "build/loop_in_c"))
        self.assertIn("refused", self.run_in(folder, "build/loop_in_c", "broken"))
        self.assertIn("2 ranks", self.run_in(folder, "mpirun", "-np", "2", "build/loop_in_c", "two"))
        if os.path.exists(folder / "build/loop_in_fortran"):
            self.assertIn("trained 3 steps", self.run_in(folder, "build/loop_in_fortran"))

    def served(self, folder, **variables):
        """Returns the answers of a program that replaces the steps of serving, by accepted content type."""
        server = subprocess.Popen([folder / "build/everything", "serve", "serve.json", "--port", "0"], cwd=folder,
                                  env=dict(self.package.env, **variables), stdout=subprocess.PIPE, text=True)
        try:
            line = next(line for line in server.stdout if line.startswith("serving "))
            answers = {}
            for accept in ("application/json", "text/labels"):
                request = urllib.request.Request(line.split()[-1] + "/invocations", b"a few words",
                                                 {"Content-Type": "text/words", "Accept": accept})
                with urllib.request.urlopen(request, timeout=60) as response:
                    answers[accept] = response.read().decode()
                    self.assertEqual(response.headers["Content-Type"], accept)
            return answers
        finally:
            server.terminate()
            self.assertEqual(server.wait(60), 0)
            server.stdout.close()

    def check_serving(self, folder):
        answers = self.served(folder)
        made = json.loads(answers["application/json"])
        self.assertEqual(made["count"], 3)
        labels = [answer["label"] for answer in made["answers"]]
        self.assertLessEqual(set(labels), {"short", "long"})
        self.assertEqual(answers["text/labels"].splitlines(), labels)
        signed = self.served(folder, SIGNED_ANSWERS="1")
        self.assertEqual(signed["text/labels"], answers["text/labels"] + "signed\n")

    def test_subdirectory(self):
        folder = self.package.folder / "subdirectory"
        folder.mkdir()
        (folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(user LANGUAGES CXX)\nenable_testing()\n"
            f"add_subdirectory({ROOT} shardline)\nadd_executable(user user.cpp)\n"
            "target_link_libraries(user PRIVATE shardline::shardline)\n")
        (folder / "user.cpp").write_text('#include <shardline/optim/update/learning_rate.h>\n'
                                         '#include <shardline/shardline.h>\n'
                                         'int main(int argc, char** argv) { return shardline::run(argc, argv); }\n')
        self.run_in(folder, "cmake", "-S", ".", "-B", "build", f"-DTORCH_ROOT={TORCH}",
                    "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
        self.assertIn("Total Tests: 0", self.run_in(folder, "ctest", "--test-dir", "build", "-N"))
        commands = json.loads((folder / "build/compile_commands.json").read_text())
        own = [one["command"] for one in commands if one["file"].endswith("user.cpp")]
        self.assertNotIn("NDEBUG", own[0])
        for one in commands:
            self.assertNotIn("-Werror", one["command"])
        self.run_in(folder, "cmake", "--build", "build", "--target", "shardline_headers")
        compiler = shutil.which("c++")
        self.run_in(folder, compiler, *own[0].split(" -o ")[0].split()[1:], "-fsyntax-only", "user.cpp")


if __name__ == "__main__":
    unittest.main()
