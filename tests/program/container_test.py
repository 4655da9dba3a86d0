"""`shardline import`, and `shardline train` as the program of a training container."""
import json
import os
import subprocess

from container import make_tree, replace_machine
from harness import PROGRAM, ProgramTest, unittest

JOBS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../engine/import/jobs")


class Container(ProgramTest):
    def setUp(self):
        super().setUp()
        self.ml = self.dir / "ml"
        self.env = {key: value for key, value in self.env.items() if not key.startswith("SM_")}
        self.env["SAGEMAKER_BASE_DIR"] = str(self.ml)

    def failure(self):
        path = self.ml / "output/failure"
        return path.read_text() if path.exists() else None

    def steps(self):
        return [line["step"] for line in self.metrics("ml/model") if "loss" in line]

    def test_trains_to_the_end(self):
        make_tree(self.ml, save_steps="2")
        result = self.expect(0, "train")
        self.assertIn("hyperparameters.learning_rate", result.err)
        self.assertTrue((self.ml / "model/model.safetensors").exists())
        self.assertTrue((self.ml / "checkpoints/checkpoint-2/manifest.json").exists())
        self.assertEqual(self.steps(), [1, 2, 3])
        self.assertIsNone(self.failure())
        self.assertEqual(self.files("ml/output/data"), ["config.resolved.json", "metrics.jsonl", "plan.json",
                                                        "schedule.svg", "timeline/step-2.html", "timeline/step-2.json"])
        self.assertEqual(self.metrics("ml/output/data"), self.metrics("ml/model"))

    def test_records_that_cannot_be_copied(self):
        make_tree(self.ml, max_steps="1")
        (self.ml / "output/data").rmdir()
        (self.ml / "output/data").write_text("a file")
        result = self.expect(0, "train")
        self.assertIn("warning: the records of the run were not copied to", result.err)
        self.assertIsNone(self.failure())

    def test_program_named_train(self):
        make_tree(self.ml, max_steps="1")
        (self.dir / "train").symlink_to(PROGRAM)
        ended = subprocess.run([self.dir / "train"], cwd=self.dir, env=self.env, capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(self.steps(), [1])

    def test_ranks_of_the_job(self):
        make_tree(self.ml, mp_parameters='{"partitions": 2, "microbatches": 2, "ddp": true}', max_steps="2",
                  sagemaker_mpi_enabled="true", sagemaker_mpi_num_of_processes_per_host="2",
                  sagemaker_mpi_custom_mpi_options='"-x NOTE=\'a b\'"')
        result = self.expect(0, "train")
        self.assertIn("'NOTE=a b'", result.err)
        plan = json.loads((self.ml / "model/plan.json").read_text())
        self.assertEqual(len(plan["stages"]), 2)

    def test_variables_of_a_toolkit(self):
        make_tree(self.ml, max_steps="9")
        (self.ml / "other").mkdir()
        self.env.update(SM_HPS=json.dumps({"max_steps": 2}), SM_HP_SEED="5", SM_MODEL_DIR=str(self.dir / "result"),
                        SM_CHANNEL_TRAIN=str(self.dir / "text.txt"), SM_OUTPUT_DATA_DIR=str(self.dir / "records"))
        self.expect(0, "train")
        self.assertEqual(len(self.metrics("records")), 2)
        self.assertEqual(self.files("ml/output/data"), [])
        config = json.loads((self.dir / "result/config.resolved.json").read_text())
        self.assertEqual((config["training"]["max_steps"], config["training"]["seed"]), (2, 5))
        self.assertEqual(config["data"]["train"], [str(self.dir / "text.txt")])

    def test_interrupted_job_continues(self):
        make_tree(self.ml, max_steps="100000")
        process = self.start("train")
        self.addCleanup(process.kill)
        self.wait_for_steps(3, "ml/model")
        process.terminate()
        result = self.finish(process)
        self.assertEqual(result.code, 3, str(result))
        self.assertIn("checkpoint", self.failure())
        self.assertNotIn("--set", self.failure())  # to continue, the job is started again as it was
        self.assertEqual(self.metrics("ml/output/data"), self.metrics("ml/model"))  # copied even if the job was stopped
        saved = self.steps()[-1]
        replace_machine(self.ml)
        process = self.start("train")
        self.addCleanup(process.kill)
        self.wait_for_steps(2, "ml/model")
        process.terminate()
        self.assertEqual(self.finish(process).code, 3)
        self.assertEqual(self.steps()[0], saved + 1)

    def test_failures(self):
        cases = (({"lerning_rate": "1"}, 2, "did you mean learning_rate?"), ({"max_steps": "ten"}, 2, "max_steps"),
                 ({"mode": "Pipe"}, 2, '"Pipe"'), ({"tokenizer_name": '"/nowhere"'}, 2, "/nowhere"),
                 ({"train_file": '"/nowhere.txt"'}, 2, "/nowhere.txt"))
        for changes, code, words in cases:
            with self.subTest(words):
                make_tree(self.ml, **changes)
                self.expect(code, "train", says=words)
                self.assertIn(words, self.failure())
                self.assertLessEqual(len(self.failure()), 1024)
                (self.ml / "output/failure").unlink()

    def test_a_job_that_only_evaluates_replaces_no_model(self):
        make_tree(self.ml)
        self.expect(0, "train")
        model = (self.ml / "model/model.safetensors").read_bytes()
        make_tree(self.ml, do_train='"False"', do_eval='"True"', validation_split_percentage="10")
        self.expect(2, "train", says="use shardline eval or predict")
        self.assertIn("do_train", self.failure())
        self.assertEqual((self.ml / "model/model.safetensors").read_bytes(), model)
        # The next attempt that succeeds removes the failure file.
        make_tree(self.ml)
        self.expect(0, "train")
        self.assertIsNone(self.failure())

    def test_failure_of_ranks(self):
        make_tree(self.ml, sagemaker_mpi_num_of_processes_per_host="2", sagemaker_mpi_custom_mpi_options='"--no-such-option"')
        result = self.run_program("train")
        self.assertNotEqual(result.code, 0)
        self.assertTrue(self.failure())

    def test_no_container(self):
        self.expect(2, "train", says=["train needs a config file", "docs/sagemaker.md"])


class Import(ProgramTest):
    def imported(self, code, *arguments, **options):
        return self.expect(code, "import", *arguments, **options)

    def test_prints_config_and_table(self):
        job = {"hyperparameters": {"model_name_or_path": "model", "max_steps": "7", "output_dir": "out"},
               "entry_point": "run_clm.py", "role": "me"}
        (self.dir / "job.json").write_text(json.dumps(job))
        result = self.imported(0, "job.json", "--channel", "train=text.txt", "--set", "training.seed=3")
        config = json.loads(result.out)
        self.assertEqual(config["training"], {"max_steps": 7, "seed": 3})
        self.assertEqual(config["data"]["train"], "text.txt")
        self.assertIn("-> training.max_steps", result.err)
        self.assertIn("no effect: no service is called", result.err)

    def test_writes_nothing_if_a_key_is_refused(self):
        (self.dir / "job.json").write_text('{"entry_point": "run_clm.py", "instance_cont": 1}')
        self.imported(2, "job.json", "--to", "config.json", says=["instance_cont", "did you mean instance_count?"])
        self.assertFalse((self.dir / "config.json").exists())
        (self.dir / "job.json").write_text('{"entry_point": "run_clm.py"}')
        self.imported(2, "job.json", "--to", "config.json", says=["model.path or model.config is required"])
        self.assertFalse((self.dir / "config.json").exists())

    def test_writes_no_config_that_plan_refuses(self):
        values = {"hidden_width": 16, "num_layers": 2, "num_heads": 2, "vocab_size": 256, "max_context_width": 16,
                  "tokenizer_name": "bytes"}

        def write(script="train_gpt_simple.py", **changes):
            job = {"entry_point": script, "hyperparameters": {**values, **changes}, "inputs": {"train": "s3://a"}}
            (self.dir / "job.json").write_text(json.dumps(job))

        command = ("job.json", "--to", "config.json", "--channel", "train=text.txt", "--set", "output_dir=out")
        write("run_clm.py")
        self.imported(2, *command, says="/model/config/model_type: must name the model family")
        write(num_heads=3)
        self.imported(2, *command, says=["/model/config/n_embd", "n_head"])
        write(mp_parameters={"partitions": 8}, sagemaker_mpi_num_of_processes_per_host=8)
        self.imported(2, *command, says="the model has only 4 layers")
        self.assertFalse((self.dir / "config.json").exists())
        # Data and a tokenizer of the container may be missing here.
        write(tokenizer_name="/opt/ml/input/data/tokenizer")
        self.imported(0, "job.json")
        write()
        result = self.imported(0, *command)
        self.assertIn("the default of train_gpt_simple.py", result.out)
        self.expect(0, "plan", "config.json", says="stage")

    def test_imported_jobs_are_planned(self):
        """Jobs that describe their model."""
        (self.dir / "tokens.bin").write_bytes(bytes(100000))
        for name in ("gpt2_described", "gpt2_tensor_parallel", "gptj_tensor_and_pipeline", "gpt2_sharded_data_parallel"):
            with self.subTest(name):
                self.imported(0, os.path.join(JOBS, f"{name}.json"), "--to", f"{name}.json", "--set",
                              "data.train=tokens.bin", "--set", "data.format=tokens", "--set",
                              "data.validation=tokens.bin", "--set", "data.tokenizer=bytes", "--set", "output_dir=out")
                self.expect(0, "plan", f"{name}.json", says="stage")

    def test_imported_job_trains(self):
        self.imported(0, os.path.join(JOBS, "tiny_local.json"), "--to", "tiny.json", "--channel", "train=text.txt",
                      "--set", "training.max_steps=2", "--set", "output_dir=out")
        self.expect(0, "plan", "tiny.json", says="stage")
        self.expect(0, "train", "tiny.json")
        self.assertEqual([line["step"] for line in self.metrics()], [1, 2])


if __name__ == "__main__":
    unittest.main(verbosity=2)
