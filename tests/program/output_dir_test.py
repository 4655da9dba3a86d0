"""What runs find in output_dir, what they leave there, and which commands do not need one."""
import fcntl
import os
import re
import shutil

from harness import ProgramTest, signal, unittest

OVERWRITE = {"overwrite_output_dir": True}
MODEL = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


class OutputDir(ProgramTest):
    def contents(self, folder="out"):
        return {name: (self.dir / folder / name).read_bytes() for name in self.files(folder)}

    def test_a_run_does_not_replace_the_model_it_starts_from(self):
        self.train()
        before = self.contents()
        (self.dir / "link").symlink_to("out")
        for path in ("out", "out/", "./out/", "link/"):
            for output_dir in ("out", "out/", "link/"):
                with self.subTest(f"{path} into {output_dir}"):
                    config = self.config(model={"path": path, "config": {}}, output_dir=output_dir, training=OVERWRITE)
                    self.expect(2, "train", config, says=["/output_dir", path, "choose another output_dir"])
                    self.assertEqual(self.contents(), before)

    def test_a_model_that_is_overwritten_waits_until_the_new_one_is_whole(self):
        self.train()
        weights = self.contents()["model.safetensors"]
        process = self.start("train", self.config(p=2, training=dict(OVERWRITE, max_steps=1000000)))
        self.wait_for((self.dir / "out/previous-model/config.json").exists, "the earlier model to move")
        self.wait_for_steps()
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(process).code, 3)
        self.assert_no_finished_model_but("previous-model")
        self.assertEqual(self.contents("out/previous-model")["model.safetensors"], weights)
        self.expect(0, "generate", "out/previous-model", "--prompt", "a", "--max-new-tokens", "2")

        self.train(training=dict(OVERWRITE, seed=7))
        self.assertNotEqual(self.contents()["model.safetensors"], weights)
        self.assertFalse((self.dir / "out/previous-model").exists())

    def test_a_run_that_ended_before_its_first_step_can_be_repeated(self):
        """It waits for its token cache, which another process seems to make."""
        self.train(output_dir="earlier")
        cache = next((self.dir / "cache/shardline").glob("*.bin"))
        for number in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(number.name):
                cache.unlink()
                with open(f"{cache}.lock", "w") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    process = self.start("train", self.config(output_dir=number.name))
                    unfinished = self.dir / number.name / "model.safetensors.incomplete"
                    self.wait_for(unfinished.exists, "the model's files")
                    process.send_signal(number)
                    self.assertNotEqual(self.finish(process).code, 0)
                self.assertTrue(unfinished.exists())
                self.train(output_dir=number.name)

    def test_a_run_that_is_stopped_before_its_first_step_replaces_nothing(self):
        """It waits for its token cache, which another process seems to make."""
        self.train(training={"save_steps": 1})
        before = {name: data for name, data in self.contents().items() if re.match(r"checkpoint-|model|config.json|metr", name)}
        self.assertIn("checkpoint-2/manifest.json", before)
        cache = next((self.dir / "cache/shardline").glob("*.bin"))
        for communicator, degree in (("local", 1), ("threads", 2), ("mpi", 2)):
            with self.subTest(communicator):
                cache.unlink(missing_ok=True)
                with open(f"{cache}.lock", "w") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    process = self.start("train", self.config(
                        p=degree, communicator=communicator, data={"validation": "text.txt"},
                        training=dict(OVERWRITE, eval_on_start=True, eval_strategy="epoch")))
                    self.addCleanup(process.kill)
                    self.wait_for((self.dir / "out/.lock").exists, "the lock")
                    (self.dir / "out/stop").touch()
                result = self.finish(process)
                self.assertEqual(result.code, 1, str(result))
                self.assertEqual(result.last, "error: stopped by the file out/stop before the first step; there is nothing "
                                              "to save")
                after = self.contents()
                self.assertEqual({name: after.get(name) for name in before}, before)
                self.assertEqual([name for name in after if "superseded" in name or "previous-model" in name], [])

    def test_one_run_at_a_time(self):
        for communicator, degree in (("local", 1), ("threads", 2), ("mpi", 2)):
            with self.subTest(communicator):
                sections = {"communicator": communicator, "p": degree, "output_dir": communicator}
                first = self.start("train", self.config("long.json", training={"max_steps": 1000000, "save_strategy": "no"},
                                                        **sections))
                self.addCleanup(first.kill)
                self.wait_for_steps(folder=communicator)
                before = [name for name in self.files(communicator) if not name.startswith("timeline")]
                size = (self.dir / communicator / "metrics.jsonl").stat().st_size
                config = self.config("second.json", training=OVERWRITE, **sections)
                for command in ("train", "profile"):
                    second = self.expect(2, command, config, says=["/output_dir: " + communicator, "in use by another run",
                                                                   f" on host {os.uname().nodename}, started 20"])
                    holder = int(re.search(r"process (\d+)", second.err).group(1))
                    self.assertIn(holder, self.processes())
                self.assertIn("note: not ready to train: /output_dir", self.expect(0, "plan", config).out)
                after = [name for name in self.files(communicator) if not name.startswith("timeline")]
                self.assertEqual(after, before)
                self.assertGreaterEqual((self.dir / communicator / "metrics.jsonl").stat().st_size, size)
                first.kill()  # none of these files may block the next run
                first.communicate()
                self.assert_all_gone()
                self.expect(0, "train", config)
                self.assertNotIn(".lock", self.files(communicator))

    def assert_no_finished_model_but(self, folder):
        finished = [name for name in self.files() if name in MODEL]
        self.assertEqual(finished, [])
        self.assertTrue(set(MODEL) & set(self.files(f"out/{folder}")))

    def test_commands_that_run_forward_only_need_none(self):
        """These commands offload nothing, so they create no file for it."""
        for communicator in ("local", "threads", "mpi"):
            with self.subTest(communicator):
                degree = 1 if communicator == "local" else 2
                smp = {"pipeline_parallel_degree": degree, "activation_checkpointing": "each",
                       "offload_activations": True, "activation_loading_horizon": 1}
                config = self.config(smp_options=smp, communicator=communicator, data={"validation": "text.txt"})
                random = ("--set", "model.init=random")
                self.expect(0, "eval", config, *random, says="eval_loss")
                self.expect(0, "generate", config, *random, "--prompt", "a", "--max-new-tokens", "2", says="a")
                self.assertFalse((self.dir / "out").exists())
                self.train(smp_options=smp, communicator=communicator)  # training opens a file
                shutil.rmtree(self.dir / "out")


if __name__ == "__main__":
    unittest.main()
