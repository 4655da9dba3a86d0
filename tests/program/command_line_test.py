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

    def test_help_for_keys(self):
        self.expect(0, "--help", says="shardline help KEY explains a key of the config")
        self.expect(0, "help", says=["smp_options", "shardline help SECTION"])
        self.expect(0, "help", "training", says=["max_steps: an integer >= -1; default -1"])
        self.expect(0, "help", "max_steps", says=["training.max_steps", "--set training.max_steps=1000"])
        self.expect(0, "help", "plan", says="--search")  # a command
        self.expect(0, "help", "profile", says=["File written by", "shardline profile --help"])  # both a key and a command
        self.expect(2, "help", "max_stepz", says=['there is no config key "max_stepz"', "training.max_steps"])

    def test_schema(self):
        """Every recipe satisfies the schema, according to an independent implementation if one is installed."""
        schema = json.loads(self.expect(0, "schema").out)
        self.assertEqual(schema["properties"]["training"], {"$ref": "#/definitions/training"})
        self.assertIn("max_steps", schema["definitions"]["training"]["properties"])
        try:
            import jsonschema
        except ImportError:
            self.skipTest("python3-jsonschema is not installed; config_tests check the same without it")
        jsonschema.Draft7Validator.check_schema(schema)
        for recipe in sorted((ROOT / "configs").glob("*.json")):
            with self.subTest(recipe.name):
                jsonschema.validate(json.loads(recipe.read_text()), schema)
        with self.assertRaises(jsonschema.ValidationError):
            jsonschema.validate({"training": {"max_stepz": 1}}, schema)

    def test_usage_errors(self):
        config = self.config()
        for arguments, says in [
            (["frobnicate"], ["frobnicate", "use one of train, eval, predict, generate, profile, check, plan,"]),
            ([], "subcommand"),
            (["train"], "config"),
            (["train", "missing.json"], "missing.json"),
            (["train", config, "--no-such-option"], "--no-such-option"),
            (["train", config, "--set", "training.max_stepz=1"], ["max_stepz", "max_steps"]),
            (["train", config, "--set", "nonsense"], "nonsense"),
            (["generate", config], "--prompt"),
            (["generate", config, "--prompt", "x", "--top-p", "2"], "--top-p"),
            (["generate", config, "--prompt", "x", "--temperature", "-1"], "--temperature"),
            (["generate", config, "--prompt", "x", "--temperature", "nan"], ["--temperature", "finite"]),
            (["generate", config, "--prompt", "x", "--temperature", "inf"], ["--temperature", "finite"]),
            (["generate", config, "--prompt", "x", "--top-p", "nan"], ["--top-p", "finite"]),
            (["plan", config, "--nodes", "2"], "--nodes: has no effect without --cluster"),
            (["train", config, "--set", "traning.max_steps=5"], "--set traning.max_steps=5: /traning: unknown key"),
            (["generate", config, "--prompts", "missing.txt"], "missing.txt"),
            (["eval", config, "--set", "model.init=random"], "data.validation"),
            (["flight", "no-such-run"], "no-such-run"),
            (["doctor", "no-such-run"], "no-such-run"),
        ]:
            with self.subTest(arguments):
                self.expect(2, *arguments, says=says)
        self.assertEqual(self.files(), [])

    def test_info(self):
        self.env["CUDA_VISIBLE_DEVICES"] = ""
        info = json.loads(self.expect(0, "info", "--json").out)
        self.assertRegex(info["versions"]["libtorch"], r"^\d+\.\d+\.\d+")
        self.assertEqual(self.expect(0, "--version").out, info["versions"]["shardline"] + "\n")
        self.assertEqual((info["gpus"], info["links"], info["cuda_visible_devices"]), ([], [], ""))
        self.assertTrue(info["no_gpu"])
        self.assertGreaterEqual(info["host"]["cores"], info["host"]["usable_cores"])
        self.assertGreater(info["host"]["memory_bytes"], info["host"]["available_bytes"])
        self.assertNotIn("use", info)
        text = self.expect(0, "info", says=["LibTorch", "oneDNN", "CUDA", "no GPU: " + info["no_gpu"]]).out
        self.assertIn(info["host"]["name"], text)

        config = self.config(p=2, communicator="threads", runtime={"device": "auto"}, training={"use_cpu": False})
        use = json.loads(self.expect(0, "info", config, "--json").out)["use"]
        self.assertEqual([rank["device"] for rank in use["ranks"]], ["cpu", "cpu"])
        self.assertIn(info["no_gpu"].split(";")[0], use["ranks"][0]["why"])
        self.assertEqual(use["tensors"], {"communicator": "threads", "why": "the ranks compute on CPUs"})
        self.assertIsNone(use["problem"])
        self.expect(0, "info", config, says=["local rank", 'runtime.communicator is "threads"'])
        self.expect(0, "info", config, "--set", "training.tf32=true", says="problem: /training/tf32: needs a GPU")
        missing = json.loads(self.expect(0, "info", config, "--set", "runtime.device=cuda", "--json").out)["use"]
        self.assertEqual(missing["ranks"], [])
        self.assertIn('/runtime/device: "cuda" needs a GPU, but ' + info["no_gpu"], missing["problem"])
        self.expect(2, "info", "missing.json", says="missing.json")

    def test_eval_and_generate_name_their_model(self):
        """A config for training states where the model is saved, not that this model is to be used."""
        data = {"validation": "text.txt"}
        prompt = ("--prompt", "a", "--max-new-tokens", "2")
        for trained in (False, True):
            for communicator, degree in (("local", 1), ("mpi", 2)):
                config = self.config(data=data, communicator=communicator, p=degree)
                with self.subTest(f"{communicator}, trained: {trained}"):
                    advice = ["use the model in output_dir with" if trained else "name the directory of a model",
                              "/model/path: is not given, so the weights would be random", "--set model.path=out",
                              "model.init"]
                    self.expect(2, "eval", config, says=advice)
                    self.expect(2, "generate", config, *prompt, says=advice)
                    random = self.expect(0, "eval", config, "--set", "model.init=random", says="eval_loss")
                    self.assertRegex(random.err, r"model: random(; .*)?\nsamples: 16 tokens\n")
            if not trained:
                self.train()
        self.expect(2, "eval", "out/config.resolved.json", "--set", "data.validation=text.txt", says="--set model.path=out")
        loss = json.loads(self.expect(0, "eval", config, "--set", "model.path=out").out.splitlines()[-1])["eval_loss"]
        random_loss = json.loads(random.out.splitlines()[-1])["eval_loss"]
        self.assertLess(loss, random_loss - 0.1)
        whole = self.expect(0, "eval", "out", "--set", "data.validation=text.txt")
        self.assertIn("model: out\nsamples: 32 tokens, the model's maximum (the default is 1024)\n", whole.err)
        stated = ("--set", "data.validation=text.txt", "--set", "data.sequence_length=32")
        for model in (("out",), (config, "--set", "model.path=out")):
            self.assertIn("\nsamples: 32 tokens\n", self.expect(0, "eval", *model, *stated).err)
        named = self.expect(0, "generate", "out", *prompt)
        self.assertIn("model: out\n", named.err)
        self.assertNotIn("model:", named.out)
        # The model that a run starts from is not the one that it makes.
        shutil.copytree(self.dir / "out", self.dir / "base")
        self.assertIn("model: base; the model in output_dir is used with --set model.path=out\n",
                      self.expect(0, "eval", config, "--set", "model.path=base").err)

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

    def test_a_run_that_trained_nothing_says_so(self):
        diverged = self.train(training={"learning_rate": 1e30, "max_grad_norm": 0, "optim": "sgd"}).out
        self.assertIn("warning: the loss of the last step is ", diverged)
        self.assertIn("training.learning_rate", diverged)
        skipped = self.train(output_dir="out2", training={"fp16": True}).out
        self.assertIn("warning: gradients overflowed in each of the 3 steps, so nothing was trained", skipped)
        self.assertNotIn("warning: ", self.train(output_dir="out3").out)

    def test_threads_of_the_environment(self):
        """OMP_NUM_THREADS is the default of runtime.threads_per_rank."""
        for variable, key, threads in (("1", 0, 1), ("3", 0, 3), ("3,2", 0, 3), ("3", 2, 2)):
            self.env["OMP_NUM_THREADS"] = variable
            said = self.train(output_dir=f"out-{variable}-{key}", runtime={"threads_per_rank": key}).out
            self.assertIn(f", {threads} thread{'' if threads == 1 else 's'} a rank", said)

    def test_where_the_weights_come_from(self):
        self.train()
        model = {"path": "out", "config": {}}
        self.assertIn("parameters, out\n", self.train(model=model, output_dir="out2").out)
        said = self.train(model=dict(model, init="random"), output_dir="out3").out
        self.assertIn("parameters, random (config of out)\n", said)

    def test_validation_data_is_counted(self):
        said = self.train(data={"validation": "text.txt"}, training={"do_eval": True}).out
        self.assertRegex(said, r"validation +250 blocks of 16 tokens, 0 tokens left over")
        (self.dir / "short.txt").write_bytes(b"a" * 40)
        said = self.expect(0, "eval", "out", "--set", "data.validation=short.txt", "--set", "data.sequence_length=16").out
        result = json.loads(said.splitlines()[-1])
        self.assertEqual((result["eval_samples"], result["eval_dropped_tokens"]), (2, 8))

    def test_notes_of_keys_without_effect(self):
        config = self.config(training={"adam_beta1": 0.8, "optim": "sgd"}, data={"validation_split_percentage": 50})
        for command in ("plan", "train"):
            said = self.expect(0, command, config).out
            self.assertIn('note: training.adam_beta1 has no effect with optim "sgd"\n', said)
            self.assertIn("note: data.validation_split_percentage 50: the run neither trains nor evaluates on", said)

    def test_closed_standard_input(self):
        for communicator in ("local", "mpi"):
            degree = 2 if communicator == "mpi" else 1
            config = self.config(p=degree, communicator=communicator, output_dir=f"out-{communicator}")
            self.expect(0, "train", config, preexec_fn=lambda: os.close(0), says="saved the model")


class Plans(ProgramTest):
    def test_every_recipe_plans_without_weights(self):
        gpt2 = {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024}
        models = {"gpt2": dict(gpt2, n_embd=768, n_layer=12, n_head=12),
                  "gpt2-medium": dict(gpt2, n_embd=1024, n_layer=24, n_head=16),
                  "gpt2-xl": dict(gpt2, n_embd=1600, n_layer=48, n_head=25),
                  "gpt-j-6b": {"model_type": "gptj", "vocab_size": 50400, "n_positions": 2048, "n_embd": 4096,
                               "n_layer": 28, "n_head": 16, "rotary_dim": 64}}
        recipes = sorted((ROOT / "configs").glob("*.json"))
        self.assertTrue(recipes)
        for recipe in recipes:
            with self.subTest(recipe.name):
                config = json.loads(recipe.read_text())
                arguments = []
                if path := config["model"].get("path"):
                    folder = self.dir / recipe.stem
                    folder.mkdir()
                    (folder / "config.json").write_text(json.dumps(models[path.removeprefix("models/")]))
                    arguments = ["--set", f"model.path={folder}", "--set", "model.init=random"]
                if config["data"].get("tokenizer", "bytes") != "bytes":  # a file that is not part of the recipe
                    arguments += ["--set", "data.tokenizer=bytes"]
                plan = json.loads(self.expect(0, "plan", str(recipe), "--json", *arguments).out)
                mesh = plan["mesh"]
                self.assertEqual(len(plan["ranks"]), mesh["d"] * mesh["p"] * mesh["t"])
                self.assertEqual(len(plan["stages"]), mesh["p"])
                self.assertTrue(all(stage["chunks"][0] for stage in plan["stages"]))
                smp = config.get("smp_options", {})
                self.assertEqual(mesh["p"], smp.get("pipeline_parallel_degree", 1))
                self.assertEqual(mesh["t"], smp.get("tensor_parallel_degree", 1))

    def test_paths_of_recipes_exist_or_are_named(self):
        """configs/README.md names the models and data that a recipe needs and the repository lacks."""
        named = (ROOT / "configs/README.md").read_text()
        for recipe in (ROOT / "configs").glob("*.json"):
            config = json.loads(recipe.read_text())
            row = next(line for line in named.splitlines() if f"`{recipe.stem}`" in line)
            paths = [config["model"].get("path"), *(config["data"].get(key) for key in
                                                    ("train", "validation", "test", "tokenizer"))]
            for path in {path for path in paths if path and path != "bytes"}:
                with self.subTest(f"{recipe.name}: {path}"):
                    self.assertTrue((ROOT / path).exists() or f"`{path}`" in row)

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
            "empty": ("\n", ["config.json: the file is empty"]),
            "cut short": (text[:-20], ["config.json"]),
            "no JSON": ("\x00\x01\xff junk", ["config.json"]),
            "not an object": ("[1, 2]", ["object"]),
            "missing section": (json.dumps({k: v for k, v in base.items() if k != "data"}), ["data"]),
            "unknown model": (json.dumps(tiny(model={"config": {"model_type": "gpt3"}})), ["gpt3", "gpt2"]),
            "heads that do not divide": (
                json.dumps(tiny(model={"config": dict(base["model"]["config"], n_head=3)})), ["n_embd", "n_head"]),
            "no rank": (json.dumps(tiny(smp_options={"tensor_parallel_degree": 0})), ["tensor_parallel_degree", "0"]),
            "more stages than layers": (json.dumps(tiny(p=16)), ["/smp_options/pipeline_parallel_degree: is 16, but"]),
            "microbatches that do not divide": (json.dumps(tiny(smp_options={"microbatches": 3})), ["microbatches", "3", "8"]),
            "replicas that do not divide": (
                json.dumps(tiny(p=2, mpi_options={"processes_per_host": 3})), ["world size 3", "P x T", "start 2 or 4"]),
            "sequence too long": (json.dumps(tiny(data={"sequence_length": 64})), ["/data/sequence_length", "64", "32"]),
            "vocabulary too small": (
                json.dumps(tiny(model={"config": dict(base["model"]["config"], vocab_size=100)})), ["vocab_size", "100", "256"]),
            "unknown pipeline": (json.dumps(tiny(p=2, smp_options={"pipeline": "interleved"})), ["interleved", "interleaved"]),
            "learning rate below zero": (json.dumps(tiny(training={"learning_rate": -1})), ["/training/learning_rate", "-1"]),
            "unknown family": (json.dumps(tiny(model={"config": {"model_type": "llama"}})),
                               ["/model/config/model_type: must name", "torch.export", "docs/programs.md"]),
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

    def test_paths_that_name_nothing(self):
        """The message names a key with a wrong value, and the exit code is 2, as README.md states."""
        (self.dir / "empty").mkdir()
        model = {"path": "empty", "config": {}}
        (self.dir / "dangling").symlink_to("nowhere")
        cases = {
            "no directory": (dict(model={"path": "nowhere", "config": {}}), "/model/path: "),
            "a file": (dict(model={"path": "text.txt", "config": {}}), "/model/path: "),
            "no config.json": (dict(model=model), "/model/path: empty has no config.json"),
            "no tokenizer": (dict(data={"tokenizer": "nowhere"}), '/data/tokenizer: "nowhere"'),
            "no data": (dict(data={"train": ["text.txt", "nowhere.txt"]}), '/data/train: there is no data file or folder "nowhere.txt"'),
            "no validation data": (dict(data={"validation": "nowhere.txt"}), "/data/validation: there is no data file"),
            "no profile": (dict(profile="nowhere.json"), "/profile: the file nowhere.json does not exist"),
            "no cluster": (dict(cluster="nowhere.json"), "nowhere.json"),
            "a directory in a file": (dict(output_dir="text.txt/deeper/out"),
                                      "text.txt/deeper/out would be inside "),
            "a dangling link": (dict(output_dir="dangling"), "dangling is a link to nowhere, which does not exist"),
            "below a dangling link": (dict(output_dir="dangling/out"), "is a link to nowhere"),
            "a NUL character": (dict(output_dir="out\0x"), "/output_dir: must not contain a NUL character"),
            "a NUL character in a list": (dict(data={"train": ["text.txt", "a\0.txt"]}), "/data/train: must not contain a NUL"),
        }
        for name, (sections, says) in cases.items():
            with self.subTest(name):
                result = self.expect(2, "train", self.config(**sections), says=says)
                self.assertTrue(result.err.startswith("error: "), str(result))
                self.assertEqual(self.files(), [])
                if "output_dir" in sections and "\0" not in sections["output_dir"]:
                    said = self.expect(0, "plan", "config.json").out
                    self.assertIn("note: not ready to train: /output_dir: ", said)
        (self.dir / "empty/config.json").write_text(json.dumps(tiny()["model"]["config"]))
        self.expect(2, "train", self.config(model=model), says="/model/path: empty: contains none of model.safetensors")
        self.expect(2, "eval", self.config(data={"validation": "nowhere.txt"}, model={"init": "random"}),
                    says="/data/validation: there is no data file")
        self.expect(2, "plan", self.config(), "--profile", "nowhere.json", says="/profile: the file nowhere.json does not exist")

    def test_all_mistakes_at_once(self):
        self.config(training={"max_step": 1, "learning_rate": "fast"}, smp_options={"pipelin": "simple"})
        self.expect(2, "train", "config.json", says=["max_step", "learning_rate", "pipelin"])

    def test_the_same_through_ranks_is_said_once(self):
        result = self.expect(2, "train", self.config(p=2, t=2, data={"sequence_length": 64}), says="sequence_length")
        self.assertEqual(len(result.errors), 1, str(result))


if __name__ == "__main__":
    unittest.main()
