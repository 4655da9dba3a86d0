"""Nothing loses a trained model: full disks, hosts that share no directory, records that cannot be written."""
import os
import resource
import subprocess

from harness import PROGRAM, TINY, ProgramTest, unittest

# 5 MB: more than half of the small file systems below.
LARGER = {"config": dict(TINY["model"]["config"], n_embd=160, n_layer=4)}
SMALL_RECORDS = {"timeline_steps": 0}


def can_mount():
    return subprocess.run(["unshare", "-mu", "true"], stderr=subprocess.DEVNULL).returncode == 0


class Saving(ProgramTest):
    def start_steps(self, steps, **sections):
        (self.dir / "out/metrics.jsonl").unlink(missing_ok=True)  # from an earlier run: its steps do not count
        process = self.start("train", self.config(training={"max_steps": steps, **sections.pop("training", {})}, **sections))
        self.addCleanup(process.kill)
        self.wait_for_steps()
        return process

    def assert_saved(self, result, *says, folder="out"):
        """The run failed, but its model is there."""
        self.assertEqual(result.code, 1, str(result))
        self.assertIn("the model is saved in out, but:", result.last)
        for words in says:
            self.assertIn(words, result.err, str(result))
        self.expect(0, "generate", folder, "--prompt", "a", "--max-new-tokens", "4")
        self.assertEqual([f for f in self.files(folder) if f.endswith(".incomplete")], [])

    def pid_of_writer(self, process):
        return next((pid for pid, rank in self.processes().items() if rank == 0), process.pid)

    def test_records_that_cannot_be_written(self):
        """If files cannot grow any more, metrics are lost, but not the model, whose space is reserved."""
        for name, sections in {"alone": {}, "ranks": {"p": 2}}.items():
            with self.subTest(name):
                process = self.start_steps(2000, data={"sequence_length": 32}, **sections,
                                           training={"overwrite_output_dir": True, "report_to": "tensorboard"})
                model = max((self.dir / "out").glob("*.safetensors.incomplete"), key=lambda f: f.stat().st_size)
                limit = model.stat().st_size
                metrics = self.dir / "out/metrics.jsonl"
                self.wait_for(lambda: metrics.stat().st_size > limit, "metrics larger than the model")
                resource.prlimit(self.pid_of_writer(process), resource.RLIMIT_FSIZE, (limit, limit))
                result = self.finish(process)
                self.assert_saved(result, "metrics.jsonl: ", "could not be written, first:", "File too large")
                self.assertIn("warning: metrics.jsonl", result.out)
                self.metrics()  # whole lines

    def test_comparison_that_fails(self):
        process = self.start_steps(200, cluster="local", p=2)
        with open(self.dir / "out/metrics.jsonl", "a") as file:
            file.write("no JSON\n")
        self.assert_saved(self.finish(process), "comparison with the forecast", "metrics.jsonl:")

    def test_reader_of_the_output_that_goes_away(self):
        process = self.start("train", self.config(training={"max_steps": 300, "logging_steps": 1}))
        process.stdout.close()
        process.stdout = None
        self.assertEqual(self.finish(process).code, 1)
        self.assertEqual(len(self.metrics()), 300)
        self.expect(0, "generate", "out", "--prompt", "a", "--max-new-tokens", "4")

    def test_previous_model(self):
        """The earlier model can be used until the next run has saved its own, and the run prints where it is."""
        self.train()
        process = self.start_steps(1000000, training={"overwrite_output_dir": True})
        process.terminate()
        result = self.finish(process)
        self.assertIn("out/previous-model until the new one is saved", result.out)
        self.assert_no_finished_model_but_previous()
        self.expect(0, "generate", "out/previous-model", "--prompt", "a", "--max-new-tokens", "4")
        self.expect(0, "train", self.config(training={"overwrite_output_dir": True}), says="previous-model")
        self.assertFalse((self.dir / "out/previous-model").exists())

    def assert_no_finished_model_but_previous(self):
        present = [f for f in self.files() if "checkpoint-" not in f and
                   (f == "config.json" or f.endswith((".safetensors", ".incomplete")))]
        self.assertEqual(present, ["previous-model/model.safetensors"])

    @unittest.skipUnless(can_mount(), "may not mount")
    def test_full_disk(self):
        """The model's space is reserved at the start, and it needs no more at the end."""
        script = """mount -t tmpfs -o size=8m none out
            "$0" train config.json & run=$!
            while ! [ -s out/metrics.jsonl ]; do sleep 0.05; kill -0 $run || break; done
            cat /dev/zero > out/filler 2>/dev/null
            wait $run; [ $? = 1 ] || exit 3
            ls out; exec "$0" generate out --prompt a --max-new-tokens 4"""
        (self.dir / "out").mkdir()
        self.config(training={"max_steps": 300, "save_strategy": "no"}, p=2, model=LARGER, runtime=SMALL_RECORDS)
        done = subprocess.run(["unshare", "-m", "bash", "-c", script, PROGRAM], cwd=self.dir, env=self.env,
                              capture_output=True, text=True, timeout=300)
        self.assertIn("the model is saved in out, but: metrics.jsonl:", done.stderr, done.stdout + done.stderr)
        self.assertIn("No space left", done.stderr)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)  # the exit code of generate
        self.assertIn("model.safetensors", done.stdout.split())

    @unittest.skipUnless(can_mount(), "may not mount")
    def test_room_of_a_killed_run_is_found_again(self):
        script = """mount -t tmpfs -o size=8m none out
            "$0" train config.json & run=$!
            while ! [ -s out/metrics.jsonl ]; do sleep 0.05; kill -0 $run || exit 3; done
            kill -9 $run; wait $run; ls out; rm out/metrics.jsonl
            "$0" train config.json --set training.max_steps=2 --set training.overwrite_output_dir=true"""
        (self.dir / "out").mkdir()
        self.config(training={"max_steps": 100000, "save_strategy": "no"}, model=LARGER, runtime=SMALL_RECORDS)
        done = subprocess.run(["unshare", "-m", "bash", "-c", script, PROGRAM], cwd=self.dir, env=self.env,
                              capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("model.safetensors.incomplete", done.stdout)
        self.assertIn("saved the model", done.stdout)

    @unittest.skipUnless(can_mount(), "may not mount")
    def test_hosts_without_a_shared_directory(self):
        """Rank 1 is on another host, which has another name and another file system mounted at output_dir."""
        rank = """if [ $OMPI_COMM_WORLD_RANK = 1 ]; then
                exec unshare -mu bash -c 'hostname elsewhere; mount -t tmpfs none out; exec "$0" train config.json' "$0"
            fi; exec "$0" train config.json"""
        environment = dict(self.env, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                           OMPI_MCA_mpi_yield_when_idle="1")

        def run():
            return subprocess.run(["mpirun", "--quiet", "-np", "2", "--oversubscribe", "--bind-to", "none", "bash", "-c",
                                   rank, PROGRAM], cwd=self.dir, env=environment, capture_output=True, text=True,
                                  timeout=300)
        (self.dir / "out").mkdir()
        self.config(p=2)
        done = run()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("host elsewhere (rank 1)", done.stderr)
        self.assertIn("share", done.stderr)
        self.assertNotIn("step 1/", done.stdout)
        # The second of two replicas writes no part of the model.
        self.config(p=1, mpi_options={"processes_per_host": 2})
        done = run()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.expect(0, "generate", "out", "--prompt", "a", "--max-new-tokens", "4")


if __name__ == "__main__":
    unittest.main()
