"""Commands, options, exit codes, and what standard input and output may be."""
import json
import os
import pty
import shutil
import subprocess

from harness import PROGRAM, ProgramTest, ROOT, tiny, unittest


class CommandLine(ProgramTest):
    def test_help_and_version(self):
        help_text = self.expect(0, "--help", says=["train", "eval", "generate", "plan"]).out
        self.assertIn("--version", help_text)
        self.assertRegex(self.expect(0, "--version").out, r"^\d+\.\d+\.\d+\n$")
        self.expect(0, "generate", "--help", says=["--prompt", "--top-p", "--json"])

    def test_usage_errors(self):
        config = self.config()
        for arguments, says in [
            (["frobnicate"], ["frobnicate", "train, eval, generate, profile, plan or flight"]),
            ([], "subcommand"),
            (["train"], "config"),
            (["train", "missing.json"], "missing.json"),
            (["train", config, "--no-such-option"], "--no-such-option"),
            (["train", config, "--set", "training.max_stepz=1"], ["max_stepz", "max_steps"]),
            (["train", config, "--set", "nonsense"], "nonsense"),
            (["generate", config], "--prompt"),
            (["generate", config, "--prompt", "x", "--top-p", "2"], "--top-p"),
            (["generate", config, "--prompt", "x", "--temperature", "-1"], "--temperature"),
            (["generate", config, "--prompts", "missing.txt"], "missing.txt"),
            (["eval", config], "data.validation"),
            (["flight", "no-such-run"], "no-such-run"),
        ]:
            with self.subTest(arguments):
                self.expect(2, *arguments, says=says)
        self.assertEqual(self.files(), [])

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            run = subprocess.run([PROGRAM, "plan", self.config()], cwd=self.dir, stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(run.returncode, 1)
        self.assertIn("standard output", run.stderr)

    def test_no_escape_codes_in_pipes_and_dumb_terminals(self):
        self.assertNotIn("\x1b", self.train().out)
        self.assertNotIn("\r", self.train(output_dir="out2").out)
        self.assertIn("\x1b", self.in_terminal("xterm", "out3"))
        self.assertNotIn("\x1b", self.in_terminal("dumb", "out4"))

    def test_no_progress_bar_where_the_config_wants_none(self):
        for communicator, degree in (("local", 1), ("threads", 2), ("mpi", 2)):
            with self.subTest(communicator):
                sections = {"communicator": communicator, "p": degree}
                bars = self.in_terminal("xterm", f"bars-{communicator}", **sections)
                self.assertIn("3/3 100%", bars)
                lines = self.in_terminal("xterm", f"lines-{communicator}", training={"disable_tqdm": True}, **sections)
                self.assertNotIn("\x1b", lines)
                self.assertIn("step 3/3 | loss", lines)

    def in_terminal(self, kind, output_dir, **sections):
        master, slave = pty.openpty()
        config = self.config(output_dir=output_dir, **sections)
        run = subprocess.Popen([PROGRAM, "train", config], cwd=self.dir, env=dict(self.env, TERM=kind), stdin=slave,
                               stdout=slave, stderr=subprocess.DEVNULL)
        os.close(slave)
        text = b""
        try:
            while piece := os.read(master, 65536):
                text += piece
        except OSError:  # the terminal's other side is closed
            pass
        os.close(master)
        self.assertEqual(run.wait(), 0)
        return text.decode()

    def test_closed_standard_input(self):
        for communicator in ("local", "mpi"):
            degree = 2 if communicator == "mpi" else 1
            config = self.config(p=degree, communicator=communicator, output_dir=f"out-{communicator}")
            self.expect(0, "train", config, preexec_fn=lambda: os.close(0), says="saved the model")


class Plans(ProgramTest):
    def test_every_recipe_plans_without_weights(self):
        shapes = {"gpt2": (768, 12, 12), "gpt2-medium": (1024, 24, 16), "gpt2-large": (1280, 36, 20),
                  "gpt2-xl": (1600, 48, 25)}
        recipes = sorted((ROOT / "configs").glob("*.json"))
        self.assertTrue(recipes)
        for recipe in recipes:
            with self.subTest(recipe.name):
                config = json.loads(recipe.read_text())
                arguments = []
                if path := config["model"].get("path"):
                    width, layers, heads = shapes[max((n for n in shapes if n in path or n in recipe.name), key=len)]
                    folder = self.dir / recipe.stem
                    folder.mkdir()
                    (folder / "config.json").write_text(json.dumps(
                        {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": width,
                         "n_layer": layers, "n_head": heads}))
                    arguments = ["--set", f"model.path={folder}", "--set", "model.init=random"]
                plan = json.loads(self.expect(0, "plan", str(recipe), "--json", *arguments).out)
                mesh = plan["mesh"]
                self.assertEqual(len(plan["ranks"]), mesh["d"] * mesh["p"] * mesh["t"])
                self.assertEqual(len(plan["stages"]), mesh["p"])
                self.assertTrue(all(stage["chunks"][0] for stage in plan["stages"]))
                smp = config.get("smp_options", {})
                self.assertEqual(mesh["p"], smp.get("pipeline_parallel_degree", 1))
                self.assertEqual(mesh["t"], smp.get("tensor_parallel_degree", 1))

    def test_plan_is_the_plan_of_the_run(self):
        self.train(p=2, communicator="threads")
        printed = json.loads(self.expect(0, "plan", "config.json", "--json").out)
        self.assertEqual(printed, json.loads((self.dir / "out/plan.json").read_text()))


class BrokenConfigs(ProgramTest):
    """Each is refused with exit code 2 before a rank is started, naming the key, the value and what to change."""

    def test_ten_and_more(self):
        base = tiny()
        text = json.dumps(base)
        broken = {
            "unknown key": (text.replace('"max_steps"', '"max_step"'), ["/training", "max_step", "max_steps"]),
            "wrong type": (text.replace('"max_steps": 3', '"max_steps": "three"'), ["/training/max_steps", "three"]),
            "duplicate key": (text.replace('"max_steps": 3', '"max_steps": 3, "max_steps": 4'), ["max_steps", "twice"]),
            "cut short": (text[:-20], ["config.json"]),
            "no JSON": ("\x00\x01\xff junk", ["config.json"]),
            "not an object": ("[1, 2]", ["object"]),
            "missing section": (json.dumps({k: v for k, v in base.items() if k != "data"}), ["data"]),
            "unknown model": (json.dumps(tiny(model={"config": {"model_type": "gpt3"}})), ["gpt3", "gpt2"]),
            "heads that do not divide": (
                json.dumps(tiny(model={"config": dict(base["model"]["config"], n_head=3)})), ["n_embd", "n_head"]),
            "no rank": (json.dumps(tiny(smp_options={"tensor_parallel_degree": 0})), ["tensor_parallel_degree", "0"]),
            "more stages than layers": (json.dumps(tiny(p=16)), ["16"]),
            "microbatches that do not divide": (json.dumps(tiny(smp_options={"microbatches": 3})), ["microbatches", "3", "8"]),
            "replicas that do not divide": (
                json.dumps(tiny(p=2, mpi_options={"processes_per_host": 3})), ["world size 3", "P x T", "start 2 or 4"]),
            "sequence too long": (json.dumps(tiny(data={"sequence_length": 64})), ["/data/sequence_length", "64", "32"]),
            "vocabulary too small": (
                json.dumps(tiny(model={"config": dict(base["model"]["config"], vocab_size=100)})), ["vocab_size", "100", "256"]),
            "unknown pipeline": (json.dumps(tiny(p=2, smp_options={"pipeline": "interleved"})), ["interleved", "interleaved"]),
            "learning rate below zero": (json.dumps(tiny(training={"learning_rate": -1})), ["/training/learning_rate", "-1"]),
            "unknown placement": (json.dumps(tiny(smp_options={"placement_strategy": "DTT"})), ["placement_strategy", "DTT"]),
        }
        for name, (content, says) in broken.items():
            with self.subTest(name):
                (self.dir / "config.json").write_text(content, encoding="latin-1")
                result = self.expect(2, "train", "config.json", says=says)
                self.assertTrue(result.err.startswith("error: "), str(result))
                self.assertNotIn("mpirun -np", result.err)
                self.assertEqual(self.files(), [])
                shutil.rmtree(self.dir / "out", ignore_errors=True)

    def test_all_mistakes_at_once(self):
        self.config(training={"max_step": 1, "learning_rate": "fast"}, smp_options={"pipelin": "simple"})
        self.expect(2, "train", "config.json", says=["max_step", "learning_rate", "pipelin"])

    def test_the_same_through_ranks_is_said_once(self):
        result = self.expect(2, "train", self.config(p=2, t=2, data={"sequence_length": 64}), says="sequence_length")
        self.assertEqual(len(result.errors), 1, str(result))


if __name__ == "__main__":
    unittest.main()
