"""A run that was stopped, or ran out of disk space, continues like an uninterrupted run."""
import os
import re
import shlex
import shutil
import subprocess
import time

from harness import ALL_CASES, LIMIT, PROGRAM, ROOT, TINY, ProgramTest, signal, unittest

STEPS = 60
MODEL = {"config": dict(TINY["model"]["config"], n_layer=4, attn_pdrop=0.1)}
LAYOUTS = {"one": {"communicator": "local"},
           "threads": {"p": 2, "t": 2, "communicator": "threads"},
           "mpi": {"p": 2, "communicator": "mpi"},
           "ZeRO": {"communicator": "mpi", "smp_options": {"shard_optimizer_state": True},
                    "mpi_options": {"processes_per_host": 2}}}
CAN_MOUNT = subprocess.run(["unshare", "-mu", "true"], stderr=subprocess.DEVNULL).returncode == 0

# Answers requests for a token and, with the token, for a notice, which appears once the file `notice` exists.
CURL = """#!/bin/sh
echo "$*" >> "$FOLDER/asked"
case "$*" in
  "-sf -X PUT -H X-aws-ec2-metadata-token-ttl-seconds: "*" http://169.254.169.254/latest/api/token") echo token-7;;
  "-sf -H X-aws-ec2-metadata-token: token-7 http://169.254.169.254/latest/meta-data/spot/instance-action")
    [ -e "$FOLDER/notice" ] || exit 22;;
  *) exit 3;;
esac
"""


class Resume(ProgramTest):
    def sections(self, layout, training=None, **more):
        sections = dict(LAYOUTS[layout], model=MODEL, **more)
        sections["training"] = {"max_steps": STEPS, "save_steps": 7, **(training or {})}
        return sections

    def numbers(self, folder):
        return [(line["step"], line["loss"], line["grad_norm"], line["learning_rate"]) for line in self.metrics(folder)]

    def whole_run(self, layout, training=None):
        """Runs the job without interruption; returns its numbers and its weights."""
        self.train(output_dir=f"whole-{layout}", **self.sections(layout, training=training))
        folder = self.dir / f"whole-{layout}"
        return self.numbers(folder.name), (folder / "model.safetensors").read_bytes()

    def assert_continued(self, layout, folder, whole):
        self.assertEqual(self.numbers(folder), whole[0], layout)
        self.assertEqual((self.dir / folder / "model.safetensors").read_bytes(), whole[1], layout)

    def printed_command(self, result):
        lines = result.err.splitlines()
        return shlex.split(lines[lines.index("to continue:") + 1])

    def test_signals(self):
        """All ranks stop after the same step, save, and print how to continue."""
        cases = [("one", signal.SIGTERM), ("mpi", signal.SIGUSR1), ("ZeRO", signal.SIGINT)]
        if ALL_CASES:
            cases += [("threads", signal.SIGINT), ("mpi", signal.SIGTERM)]
        for layout, kind in cases:
            with self.subTest(layout, signal=kind.name):
                whole = self.whole_run(layout)
                folder = f"{layout}-{kind.name}"
                process = self.start("train", self.config(output_dir=folder, **self.sections(layout)))
                self.addCleanup(process.kill)
                self.wait_for_steps(5, folder)
                process.send_signal(kind)
                result = self.finish(process)
                self.assertEqual(result.code, 3, str(result))
                self.assertRegex(result.err, rf"stopped by a signal after step \d+ of {STEPS} and saved {folder}/checkpoint-")
                self.assertEqual(result.err.count("a signal: the run stops after its current step"), 1, str(result))
                self.assertEqual(result.errors, [], str(result))
                self.assert_all_gone()
                again = subprocess.run(self.printed_command(result), cwd=self.dir, env=self.env, capture_output=True,
                                       text=True, timeout=LIMIT)
                self.assertEqual(again.returncode, 0, again.stderr)
                self.assert_continued(layout, folder, whole)
                shutil.rmtree(self.dir / folder)
                shutil.rmtree(self.dir / f"whole-{layout}")

    def test_the_printed_command_is_that_of_the_user(self):
        """The command of a rank differs: it has the path of the program, and further settings."""
        link = self.dir / "link"
        link.symlink_to(PROGRAM)
        sections = self.sections("mpi", training={"max_steps": 1000000})
        for signal_of_rank in (False, True):
            process = self.start("train", self.config(**sections), program=str(link))
            self.addCleanup(process.kill)
            self.wait_for(lambda: list((self.dir / "out").glob("checkpoint-*/manifest.json")), "a checkpoint")
            os.kill(self.pid_of_rank(1), signal.SIGKILL) if signal_of_rank else process.terminate()
            command = self.printed_command(self.finish(process))
            self.assertEqual(command[:-1], [str(link), "train", "config.json", "--set"])
            self.assertRegex(command[-1], r"^training\.resume_from_checkpoint=out/checkpoint-\d+$")
            shutil.rmtree(self.dir / "out")

    def test_a_continued_run_that_is_stopped_again(self):
        """The printed command replaces the setting of the command before."""
        sections = self.sections("one", training={"max_steps": 300, "save_strategy": "no"})
        process = self.start("train", self.config(**sections), "--set", "training.seed=3", "training.data_seed=4")
        steps = 0
        for _ in range(2):
            self.addCleanup(process.kill)
            self.wait_for_steps(steps + 5)
            process.terminate()
            result = self.finish(process)
            self.assertEqual(result.code, 3, str(result))
            command = self.printed_command(result)
            self.assertEqual(sum("resume_from_checkpoint" in word for word in command), 1, command)
            self.assertEqual(command.count("--set"), 3, command)
            steps = len(self.metrics())
            process = self.start(*command[1:])
        self.assertEqual(self.finish(process).code, 0)
        again = self.metrics()
        self.expect(0, "train", self.config(**dict(sections, output_dir="whole")), "--set", "training.seed=3",
                    "training.data_seed=4")
        self.assertEqual([line["loss"] for line in again], [line["loss"] for line in self.metrics("whole")])

    def test_what_a_checkpoint_needs_is_read_before_the_first_step(self):
        self.train(output_dir="earlier")
        (self.dir / "tokenizer").mkdir()
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(self.dir / "earlier" / name, self.dir / "tokenizer")
        process = self.start("train", self.config(**self.sections(
            "one", data={"tokenizer": "tokenizer"}, training={"max_steps": 1000000, "save_steps": 1000000})))
        self.addCleanup(process.kill)
        self.wait_for_steps()
        shutil.rmtree(self.dir / "tokenizer")
        process.terminate()
        result = self.finish(process)
        self.assertEqual(result.code, 3, str(result))
        steps = len(self.metrics())
        self.assertTrue((self.dir / f"out/checkpoint-{steps}/tokenizer.json").exists())

    def test_save_that_takes_longer_than_mpirun_would_wait(self):
        """When mpirun receives SIGTERM or SIGINT, it kills its ranks after about a second, so the launcher passes on
        neither."""
        recorder = {"LD_PRELOAD": os.environ["FILE_CALLS"], "FILE_CALLS_LOG": str(self.dir / "calls.log"),
                    "FILE_CALLS_SLOW": "5"}
        many = {"max_steps": 1000, "save_steps": 10000}  # these steps take longer than the signal to the ranks
        whole = self.whole_run("ZeRO", many)
        (self.dir / "calls.log").touch()
        for kind in (signal.SIGTERM, signal.SIGINT) if ALL_CASES else (signal.SIGTERM,):
            with self.subTest(kind.name):
                self.env, kept = dict(self.env, FILE_CALLS_ROOT=str(self.dir / kind.name), **recorder), self.env
                process = self.start("train", self.config(output_dir=kind.name, **self.sections("ZeRO", training=many)),
                                     start_new_session=True)
                self.addCleanup(process.kill)
                self.wait_for_steps(5, kind.name)
                asked = time.monotonic()
                # Sent to the launcher's process group, as terminals and batch systems do.
                os.killpg(process.pid, kind)
                result = self.finish(process)
                self.assertEqual(result.code, 3, str(result))
                self.assertGreater(time.monotonic() - asked, 5)
                self.env = kept
                self.train(output_dir=kind.name,
                           **self.sections("ZeRO", training={**many, "resume_from_checkpoint": True}))
                self.assert_continued("ZeRO", kind.name, whole)

    def test_signal_to_one_rank(self):
        process = self.start("train", self.config(**self.sections("mpi", training={"max_steps": 1000000})))
        self.addCleanup(process.kill)
        self.wait_for_steps()
        os.kill(self.pid_of_rank(1), signal.SIGUSR1)
        result = self.finish(process)
        self.assertEqual(result.code, 3, str(result))
        self.assert_all_gone()

    def test_signals_that_come_together(self):
        """SIGHUP and SIGTERM from a closing terminal count as one request, and so do two SIGTERMs from `timeout`."""
        for layout, first in (("one", signal.SIGHUP), ("mpi", signal.SIGHUP), ("one", signal.SIGTERM),
                              ("mpi", signal.SIGTERM)):
            with self.subTest(layout, first=first.name):
                folder = f"{layout}-{first.name}"
                process = self.start("train", self.config(output_dir=folder, **self.sections(
                    layout, training={"max_steps": 1000000, "save_steps": 1000000})))
                self.addCleanup(process.kill)
                self.wait_for_steps(folder=folder)
                process.send_signal(first)
                time.sleep(0.01)
                process.send_signal(signal.SIGTERM)
                result = self.finish(process)
                self.assertEqual(result.code, 3, str(result))

    def test_stop_file_before_the_first_step(self):
        """A run that continues from a checkpoint still does so later; a new run has nothing to continue from."""
        for layout in ("one", "threads", "mpi"):
            with self.subTest(layout):
                folder = self.dir / layout
                config = self.config(output_dir=layout, **self.sections(layout, training={
                    "max_steps": 20, "save_steps": 10, "resume_from_checkpoint": "auto"}))
                for code, says in ((1, "error: .*before the first step; there is nothing to save"),
                                   (3, f"before the first step.*{layout}/checkpoint-10 was saved\nto continue:\n  .*"
                                       f"--set training.resume_from_checkpoint={layout}/checkpoint-10$")):
                    shutil.rmtree(folder / "flight", ignore_errors=True)
                    folder.mkdir(exist_ok=True)
                    (folder / "stop").symlink_to("flight/rank-0")  # the file exists from the start of the ranks
                    result = self.expect(code, "train", config)
                    self.assertRegex(result.err.rstrip(), says)
                    self.assertFalse((folder / "stop").is_symlink())
                    self.expect(0, "train", config)
                    shutil.rmtree(folder / "checkpoint-20")

    def test_script_that_waits_for_a_spot_notice(self):
        """Runs the script from the docs, with imitations of a provider's metadata and of the clock."""
        (script,) = re.findall(r"^```sh\n(#!/bin/sh\n# stop_on_notice.sh .*?)^```$",
                               (ROOT / "docs/checkpoints.md").read_text(), re.MULTILINE | re.DOTALL)
        (self.dir / "programs").mkdir()
        for name, text in {"../stop_on_notice.sh": script, "curl": CURL, "sleep": "#!/bin/sh\nexec /bin/sleep 0.1\n"}.items():
            file = self.dir / "programs" / name
            file.write_text(text)
            file.chmod(0o755)
        process = self.start("train", self.config(**self.sections("mpi", training={"max_steps": 1000000})))
        self.addCleanup(process.kill)
        waiting = subprocess.Popen([self.dir / "stop_on_notice.sh", "out"], cwd=self.dir, stdin=subprocess.DEVNULL, env={
            "PATH": f"{self.dir}/programs:{os.environ['PATH']}", "FOLDER": str(self.dir)})
        self.addCleanup(waiting.kill)
        self.wait_for_steps()
        asked = self.dir / "asked"
        self.wait_for(lambda: asked.exists() and asked.read_text().count("\n") > 3, "questions")
        self.assertIsNone(process.poll())
        self.assertFalse((self.dir / "out/stop").exists())
        (self.dir / "notice").touch()
        result = self.finish(process)
        self.assertEqual(result.code, 3, str(result))
        self.assertRegex(result.err, r"stopped by the file out/stop after step \d+ of 1000000 and saved out/checkpoint-")
        self.assertEqual(waiting.wait(LIMIT), 0)

    def test_time_limit(self):
        result = self.run_program("train", self.config(**self.sections(
            "mpi", training={"max_steps": 1000000, "max_run_seconds": 2, "save_strategy": "no"})))
        self.assertEqual(result.code, 3, str(result))
        self.assertIn("training.max_run_seconds 2", result.err)
        steps = len(self.metrics())
        self.assertTrue((self.dir / f"out/checkpoint-{steps}/manifest.json").exists())

    def test_other_layout_after_a_stop(self):
        process = self.start("train", self.config(**self.sections("mpi")))
        self.addCleanup(process.kill)
        self.wait_for_steps(5)
        process.terminate()
        self.assertEqual(self.finish(process).code, 3)
        self.train(**self.sections("ZeRO", training={"resume_from_checkpoint": True}))
        self.assertEqual([line["step"] for line in self.metrics()], list(range(1, STEPS + 1)))
        whole = self.whole_run("one")[0]
        for line, (_, loss, _, _) in zip(self.metrics(), whole):
            self.assertAlmostEqual(line["loss"], loss, delta=2e-5)

    def run_with_mounts(self, script):
        return subprocess.run(["unshare", "-m", "bash", "-c", script], cwd=self.dir, env=self.env, capture_output=True,
                              text=True, timeout=LIMIT)

    @unittest.skipUnless(CAN_MOUNT, "cannot mount")
    def test_full_disk(self):
        """A checkpoint that does not fit is abandoned, and the run continues; the last good one stays."""
        script = ("mkdir small && mount -t tmpfs -o size=3m tmpfs small && "
                  f"{PROGRAM} train config.json; code=$?; find small | sort; "
                  f"{PROGRAM} train config.json --set training.resume_from_checkpoint=auto "
                  "--set training.max_steps=20 --set training.save_strategy=no; exit $code")
        larger = {"config": dict(TINY["model"]["config"], n_embd=64, n_layer=4)}
        self.config(model=larger, training={"max_steps": 20, "save_steps": 5, "checkpoint_dir": "small"},
                    runtime={"timeline_steps": 0})
        run = self.run_with_mounts(script)
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        self.assertIn("small/checkpoint-5/manifest.json", run.stdout)
        self.assertNotIn("incomplete", run.stdout.split("small\n")[1].split("\n\n")[0])
        self.assertIn("checkpoint-10 was not saved", run.stdout)
        self.assertIn("free some space there", run.stdout)
        self.assertIn("continues small/checkpoint-5 after step 5", run.stdout)


    @unittest.skipUnless(CAN_MOUNT, "cannot mount")
    def test_room_for_checkpoints(self):
        """There must be space for everything that a run will keep, on whichever disk, before it starts."""
        larger = {"config": dict(TINY["model"]["config"], n_embd=64, n_layer=4)}
        self.config(model=larger, training={"max_steps": 20, "save_steps": 5, "save_total_limit": 2,
                                            "checkpoint_dir": "disk/checkpoints"})
        mount = "mkdir -p disk && mount -t tmpfs -o size={}m tmpfs disk && "
        run = self.run_with_mounts(mount.format(6) + f"{PROGRAM} train config.json")
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        self.assertRegex(run.stderr, r"/training/checkpoint_dir: 3 checkpoints need .* MiB, but .*/disk has 6.0 MiB left; "
                                     "free some space there or choose another checkpoint_dir")
        self.assertFalse((self.dir / "out").exists())
        # Files that exist already need no more space.
        run = self.run_with_mounts(mount.format(9) + f"{PROGRAM} train config.json && {PROGRAM} train config.json "
                                   "--set training.resume_from_checkpoint=disk/checkpoints/checkpoint-15")
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    @unittest.skipUnless(CAN_MOUNT, "cannot mount")
    def test_memory_for_checkpoints(self):
        """A host without room for the copy of a checkpoint is found before the first step."""
        (self.dir / "meminfo").write_text("MemTotal: 1000000 kB\nMemAvailable: 1000 kB\n")
        larger = {"config": dict(TINY["model"]["config"], n_embd=64, n_layer=4)}
        for layout in ("one", "ZeRO"):
            with self.subTest(layout):
                self.config(**dict(self.sections(layout), model=larger, output_dir=layout))
                run = self.run_with_mounts(f"mount --bind meminfo /proc/meminfo && {PROGRAM} train config.json")
                self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
                self.assertIn("but 1000.0 KiB is available", run.stderr)
                self.assertIn("training.save_only_model", run.stderr)
                self.assertFalse((self.dir / layout / "metrics.jsonl").exists())

    @unittest.skipUnless(CAN_MOUNT, "cannot mount")
    def test_stop_on_a_full_disk(self):
        """A run that cannot save a checkpoint when it stops does not claim to have saved one."""
        larger = {"config": dict(TINY["model"]["config"], n_embd=64, n_layer=4)}
        for layout in ("one", "mpi"):
            with self.subTest(layout):
                self.config(**dict(self.sections(layout), model=larger, output_dir=layout, training={
                    "max_steps": 1000000, "max_run_seconds": 1, "save_strategy": "no", "checkpoint_dir": "small"}))
                run = self.run_with_mounts("mkdir -p small && mount -t tmpfs -o size=1m tmpfs small && "
                                           f"{PROGRAM} train config.json; code=$?; ls small; exit $code")
                self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
                self.assertIn("was not saved", run.stderr)
                self.assertIn("free some space there", run.stderr)
                self.assertNotIn("and saved", run.stderr)
                self.assertNotIn("to continue", run.stderr)
                self.assertNotRegex(run.stdout, r"(?m)^checkpoint-\d")

    def test_stop_of_a_run_that_saves_models_only(self):
        """The checkpoint that a run saves when it stops has the optimizer's state, without which it could not
        continue."""
        training = {"save_only_model": True}
        for layout in ("one", "ZeRO"):
            with self.subTest(layout):
                self.train(output_dir=f"whole-{layout}", **self.sections(layout, training))
                whole = self.dir / f"whole-{layout}"
                self.assertEqual(list(whole.glob("checkpoint-*/optimizer*")), [])
                process = self.start("train", self.config(output_dir=layout, **self.sections(layout, training)))
                self.addCleanup(process.kill)
                self.wait_for_steps(14, layout)
                process.send_signal(signal.SIGTERM)
                result = self.finish(process)
                self.assertEqual(result.code, 3, str(result))
                again = subprocess.run(self.printed_command(result), cwd=self.dir, env=self.env, capture_output=True,
                                       text=True, timeout=LIMIT)
                self.assertEqual(again.returncode, 0, again.stderr)
                self.assert_continued(layout, layout, (self.numbers(whole.name), (whole / "model.safetensors").read_bytes()))

    @unittest.skipUnless(CAN_MOUNT, "cannot mount")
    def test_best_checkpoint_that_cannot_be_saved(self):
        """The best checkpoint is the best of those that were saved."""
        self.config(model=MODEL, data={"validation_split_percentage": 20}, training={
            "max_steps": 200, "save_steps": 100, "eval_strategy": "steps", "eval_steps": 100,
            "load_best_model_at_end": True, "learning_rate": 1e-5, "save_total_limit": 1, "checkpoint_dir": "disk"})
        # The loss falls, so the last step has the best evaluation. A directory with its name is created once the run
        # has begun.
        run = self.run_with_mounts(f"{PROGRAM} train config.json & run=$!; until [ -s out/metrics.jsonl ]; do sleep 0.02; "
                                   "done; mkdir disk/checkpoint-200; mount -t tmpfs tmpfs disk/checkpoint-200; wait $run")
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        losses = [line["eval_loss"] for line in self.metrics() if "eval_loss" in line]
        self.assertLess(losses[1], losses[0])
        self.assertIn("checkpoint-200 was not saved", run.stdout)
        self.assertIn("the best model is that of disk/checkpoint-100", run.stdout)
        self.assertEqual((self.dir / "out/model.safetensors").read_bytes(),
                         (self.dir / "disk/checkpoint-100/model.safetensors").read_bytes())


if __name__ == "__main__":
    unittest.main(verbosity=2)
