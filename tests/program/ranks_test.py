"""How runs end when ranks fail, are killed, hang, or are asked to stop."""
import json
import os
import resource
import subprocess
import time

from harness import ALL_CASES, PROGRAM, ROOT, TINY, ProgramTest, signal, unittest

ENDS_WITHIN = 30  # seconds; a few on an idle machine


class RanksTest(ProgramTest):
    def start_training(self, communicator="mpi", steps=1000000, training=None, **sections):
        sections.setdefault("p", 2)
        sections.setdefault("t", 2)
        config = self.config(communicator=communicator, training={"max_steps": steps, **(training or {})}, **sections)
        process = self.start("train", config)
        self.addCleanup(process.kill)
        self.wait_for_steps(folder=sections.get("output_dir", "out"))
        return process

    def end(self, process):
        result = self.finish(process, ENDS_WITHIN + 30)
        self.assertLess(result.seconds, ENDS_WITHIN, str(result))
        self.assert_all_gone()
        return result


class Failures(RanksTest):
    def test_same_losses_by_processes_threads_and_alone(self):
        for family, more in {"gpt2": {}, "gptj": {"rotary_dim": 4}}.items():
            model = {"config": dict(TINY["model"]["config"], model_type=family, **more)}
            losses = {}
            for name, options in {"local": {}, "threads": {"p": 2, "t": 2, "communicator": "threads"},
                                  "mpi": {"p": 2, "t": 2, "communicator": "mpi"}}.items():
                self.train(output_dir=f"{family}-{name}", model=model, **options)
                losses[name] = [line["loss"] for line in self.metrics(f"{family}-{name}")]
            self.assertEqual(losses["threads"], losses["mpi"])  # to the last bit
            for one, many in zip(losses["local"], losses["mpi"]):
                self.assertAlmostEqual(one, many, delta=2e-5)
            said = self.expect(0, "generate", f"{family}-mpi", "--prompt", "a", "--max-new-tokens", "4", "--json").out
            self.assertEqual(len(json.loads(said)["tokens"]), 4)

    def test_ranks_get_what_the_launcher_chose(self):
        smp = {"pipeline_parallel_degree": 2, "tensor_parallel_degree": 1, "microbatches": "auto"}
        config = self.config(smp_options=smp, communicator="mpi")
        result = self.expect(0, "train", config, says="saved the model")
        self.assertIn("--set smp_options.microbatches=", result.err)

    def run_in_two_folders(self, config, folders, command="train", *arguments):
        """One rank in each of two programs that a user starts with mpirun."""
        words = ["mpirun", "--quiet", "--oversubscribe", "--bind-to", "none"]
        for folder in folders:
            words += [":"] * (folder != folders[0]) + ["-np", "1", "-wdir", str(folder), PROGRAM, command, str(config),
                      *arguments]
        environment = dict(self.env, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                           OMPI_MCA_mpi_yield_when_idle="1")
        return subprocess.run(words, cwd=self.dir, env=environment, capture_output=True, text=True,
                              timeout=ENDS_WITHIN + 30)

    def folder_with(self, name, model, **files):
        folder = self.dir / name
        (folder / "model").mkdir(parents=True)
        (folder / "model/config.json").write_text(json.dumps(model))
        (folder / "text.txt").write_bytes((self.dir / "text.txt").read_bytes())
        for file, text in files.items():
            (folder / file).write_text(text)
        return folder

    def test_ranks_with_different_files(self):
        """Ranks that would compute different models or follow different schedules stop before they start."""
        model = TINY["model"]["config"]
        deep = dict(model, n_layer=4)
        two_chunks = "F0 F1 B0 B1\nF0 B0 F1 B1\n"
        four_chunks = "F0/0 F1/0 F0/2 F1/2 B0/2 B1/2 B0/0 B1/0\nF0/1 F1/1 F0/3 B0/3 F1/3 B1/3 B0/1 B1/1\n"
        cases = {"heads": (model, dict(model, n_head=4), two_chunks, "model config"),
                 "epsilon": (model, dict(model, layer_norm_epsilon=0.5), two_chunks, "model config"),
                 "layers": (model, dict(model, n_layer=6), two_chunks, "model config"),
                 "schedule": (deep, deep, four_chunks, "schedule file")}
        for name, (one, other, schedule, says) in cases.items():
            folders = [self.folder_with(f"{name}-a", one, schedule=two_chunks),
                       self.folder_with(f"{name}-b", other, schedule=schedule)]
            for folder in folders:
                (folder / "schedule").rename(folder / "s.csv")
            config = self.config(p=2, smp_options={"microbatches": 2, "pipeline": "s.csv"},
                                 output_dir=str(self.dir / name), model={"path": "model", "init": "random", "config": {}})
            for order in (folders, folders[::-1]):
                with self.subTest(name, first=order[0].name):
                    run = self.run_in_two_folders(self.dir / config, order)
                    self.assertNotEqual(run.returncode, 0, run.stdout)
                    self.assertIn(f"the ranks do not have the same {says}", run.stderr)
                    self.assert_no_finished_model(name)

    # The first rank alone resolves "auto" and everything else.
    RESOLVED = {"given": {}, "auto": {"microbatches": "auto"},
                "all auto": {"pipeline_parallel_degree": "auto", "tensor_parallel_degree": "auto", "microbatches": "auto",
                             "sharded_data_parallel_degree": "auto"}}

    def plan_on_ranks(self, name, smp, first, second):
        """Starts two ranks with a file `cluster` that has these contents, or without such a file."""
        folders = [self.folder_with(f"{name}-{number}", TINY["model"]["config"],
                                    **({} if text is None else {"cluster": text}))
                   for number, text in enumerate((first, second))]
        config = self.config(p=2, cluster="cluster", output_dir=str(self.dir / name), smp_options=smp,
                             mpi_options={"processes_per_host": 2},
                             model={"path": "model", "init": "random", "config": {}})
        return self.run_in_two_folders(self.dir / config, folders)

    def test_only_the_first_rank_prices(self):
        """Only the first rank needs the file that describes the machines."""
        cluster = (ROOT / "configs/clusters/p4d.24xlarge.json").read_text()
        for name, smp in self.RESOLVED.items():
            with self.subTest(name):
                run = self.plan_on_ranks(name, smp, cluster, None)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertIn("saved the model", run.stdout)
                chosen = json.loads((self.dir / name / "config.resolved.json").read_text())["smp_options"]
                self.assertNotIn("auto", [chosen[key] for key in self.RESOLVED["all auto"]])

    def test_prompts_of_the_first_rank(self):
        """Other ranks may have other prompts or none, because they do not sample."""
        self.train(output_dir="trained")
        model = {"path": str(self.dir / "trained"), "init": "pretrained", "config": {}}
        config = self.dir / self.config(p=2, model=model, output_dir=str(self.dir / "none"))
        prompts, more = "one\nand two\n", ["--prompts", "prompts", "--max-new-tokens", "8"]
        (self.dir / "prompts").write_text(prompts)
        alone = self.expect(0, "generate", "trained", *more).out
        for name, others in {"fewer": {"prompts": "three\n"}, "none": {}}.items():
            with self.subTest(name):
                folders = [self.folder_with(f"{name}-{number}", {}, **files)
                           for number, files in enumerate(({"prompts": prompts}, others))]
                run = self.run_in_two_folders(config, folders, "generate", *more)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertEqual(run.stdout, alone)

    def test_mistake_that_the_first_rank_finds_ends_all(self):
        cluster = json.loads((ROOT / "configs/clusters/p4d.24xlarge.json").read_text())
        small = json.dumps(dict(cluster, devices_per_node=1))
        for name, smp in self.RESOLVED.items():
            with self.subTest(name):
                run = self.plan_on_ranks(name, smp, small, json.dumps(cluster))
                self.assertEqual(run.returncode, 2, run.stderr)
                errors = [line for line in run.stderr.splitlines() if line.startswith("error:")]
                self.assertEqual(len(errors), 1, run.stderr)
                self.assertRegex(errors[0], r"^error: rank 0: ", run.stderr)
                self.assertIn("1 device", errors[0])
                self.assertEqual(self.files(name), [])

    def test_killed_rank(self):
        for rank in (0, 3):
            with self.subTest(rank):
                process = self.start_training(output_dir=f"out{rank}")
                os.kill(self.pid_of_rank(rank), signal.SIGKILL)
                result = self.end(process)
                self.assertEqual(result.code, 1, str(result))
                self.assertRegex(result.last, rf"^error: rank {rank} \(host \S+, stage {rank // 2}\) was killed by "
                                              r"signal 9 \(Killed\); .*last seen in .*step \d+", str(result))
                self.assert_doctor_agrees(result, "killed", [rank], f"out{rank}")
                self.assert_no_finished_model(f"out{rank}")

    def test_rank_that_throws(self):
        # Files of this rank cannot grow any more, so it fails when it writes its part of the model.
        process = self.start_training(steps=300)
        resource.prlimit(self.pid_of_rank(2), resource.RLIMIT_FSIZE, (1000, 1000))
        result = self.finish(process)
        self.assertEqual(result.code, 1, str(result))
        self.assertRegex(result.last, r"^error: rank 2: .*model\.safetensors.*File too large")
        self.assertEqual(len(result.errors), 1, str(result))
        self.assert_no_finished_model()
        self.assert_all_gone()

    def test_hanging_rank(self):
        process = self.start_training(training={"ddp_timeout": 5})
        result = self.assert_ends_hanging(process, "training.ddp_timeout")
        self.assert_doctor_agrees(result, "behind", [1])
        flights = self.expect(0, "flight", "out").out
        for rank in range(4):
            self.assertIn(f"rank-{rank}\n", flights)
        self.assertIn("reduce rows", flights)

    def test_environment_overrides_the_time_limit_of_the_config(self):
        self.env["SHARDLINE_TIMEOUT_SECONDS"] = "5"
        process = self.start_training(training={"ddp_timeout": 1000})
        self.assert_ends_hanging(process, "SHARDLINE_TIMEOUT_SECONDS")

    def assert_ends_hanging(self, process, setting):
        os.kill(self.pid_of_rank(1), signal.SIGSTOP)
        result = self.end(process)
        self.assertEqual(result.code, 1, str(result))
        self.assertRegex(result.errors[0], rf"^error: rank [023]: .*limit 5.*{setting} sets this limit", str(result))
        # mpirun wakes the hanging rank to end it, which does not change the diagnosis.
        self.assertRegex(result.last, r"^error: rank 1 \(host \S+, stage 0\) .*no sign of life for", str(result))
        return result

    def assert_doctor_agrees(self, result, cause, culprits, folder="out"):
        later = json.loads(self.expect(0, "doctor", folder, "--json").out)
        self.assertEqual((later["cause"], later["culprits"]), (cause, culprits), str(result))
        self.assertEqual("error: " + later["verdict"], result.last)
        self.assertEqual(self.expect(0, "doctor", folder).out.splitlines()[-1], later["verdict"])

    def test_doctor_while_ranks_work_and_when_they_have_ended(self):
        process = self.start_training(steps=200)
        while process.poll() is None:
            later = json.loads(self.expect(0, "doctor", "out", "--json").out)
            self.assertEqual((later["cause"], later["culprits"]), ("none", []), later["verdict"])
        self.assertEqual(self.end(process).code, 0)
        self.assertEqual(self.expect(0, "doctor", "out").out.splitlines()[-1], "no fault: all ranks ended normally")

    def test_config_error_on_ranks_gives_2(self):
        """If a user starts mpirun, nothing is checked before the ranks start."""
        config = self.config(p=2)
        environment = dict(self.env, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                           OMPI_MCA_mpi_yield_when_idle="1")
        run = subprocess.run(["mpirun", "--quiet", "-np", "2", "--oversubscribe", "--bind-to", "none", PROGRAM, "train", config,
                              "--set", "model.config.vocab_size=100"],
                             cwd=self.dir, env=environment, stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertRegex(run.stderr, r"error: rank \d: /data/tokenizer: bytes has ids up to 255")
        run = subprocess.run(["mpirun", "--quiet", "-np", "3", "--oversubscribe", "--bind-to", "none", PROGRAM, "train", config],
                             cwd=self.dir, env=environment, stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("asks for 2 ranks", run.stderr)

    def test_ranks_other_than_the_config_says(self):
        environment = dict(self.env, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                           OMPI_MCA_mpi_yield_when_idle="1")
        cores = len(os.sched_getaffinity(0))  # the number that "auto" uses
        for started, sections, product in (
                (2, {"mpi_options": {"processes_per_host": 4}}, "1 x 4"),
                (cores + 1, {"smp_options": {"tensor_parallel_degree": "auto", "microbatches": "auto"},
                             "training": {"global_batch_size": 16 * cores}}, f"1 x {cores}")):
            with self.subTest(product):
                run = subprocess.run(["mpirun", "--quiet", "-np", str(started), "--oversubscribe", "--bind-to", "none",
                                      PROGRAM, "train", self.config(**sections)],
                                     cwd=self.dir, env=environment, stderr=subprocess.PIPE, text=True, timeout=120)
                self.assertEqual(run.returncode, 2, run.stderr)
                self.assertIn(f"hosts x mpi_options.processes_per_host = {product}), but mpirun or srun started {started}", run.stderr)
                self.assertEqual(self.files(), [])

    def test_no_progress_bars_from_an_mpirun_whose_output_is_no_terminal(self):
        """mpirun gives its ranks terminals even if its own output is none."""
        environment = dict(self.env, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                           OMPI_MCA_mpi_yield_when_idle="1")
        run = subprocess.run(["mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none", PROGRAM, "train",
                              self.config(p=2)], cwd=self.dir, env=environment, capture_output=True, text=True, timeout=120)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertNotIn("\x1b", run.stdout)
        self.assertIn("step 3/3 | loss", run.stdout)

    def test_mpirun_that_dies_and_launcher_that_is_killed(self):
        process = self.start_training()
        mpirun = next(pid for pid, rank in self.processes().items() if rank is None and pid != process.pid)
        os.kill(mpirun, signal.SIGKILL)
        result = self.end(process)
        self.assertEqual(result.code, 1, str(result))
        self.assertIn("mpirun was ended by signal 9", result.last)
        process = self.start_training(output_dir="out2")
        process.kill()
        self.assertEqual(self.finish(process).code, -signal.SIGKILL)
        self.assert_all_gone()

    def test_mpirun_that_is_not_there(self):
        self.env["PATH"] = str(self.dir)
        result = self.expect(2, "train", self.config(p=2), says="cannot start mpirun")
        self.assertIn("runtime.communicator=threads", result.err)


class Stops(RanksTest):
    def check(self, result, done, folder="out"):
        self.assertEqual(result.code, 3, str(result))
        self.assertRegex(result.err, rf"(?m)^stopped by a signal after step \d+ of 1000000 and saved {folder}/checkpoint-\d+$")
        self.assertIn("--set training.resume_from_checkpoint=", result.last)
        self.assertEqual(result.errors, [], str(result))
        self.assertGreaterEqual(len(self.metrics(folder)), done)
        self.assert_no_finished_model(folder)

    def test_between_steps(self):
        for communicator, sections in {"mpi": {}, "threads": {}, "local": {"p": 1, "t": 1}}.items():
            numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if ALL_CASES or communicator == "mpi" else (signal.SIGTERM,)
            for number in numbers:
                with self.subTest(f"{communicator} {number.name}"):
                    folder = f"{communicator}-{number.name}"
                    process = self.start_training(communicator, output_dir=folder, **sections)
                    process.send_signal(number)
                    self.check(self.end(process), 2, folder)

    def test_nohup_keeps_a_hangup_away(self):
        for communicator, degree in (("local", 1), ("mpi", 2)):
            config = self.config(p=degree, communicator=communicator, training={"max_steps": 300}, output_dir=communicator)
            process = self.start("train", config, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
            self.wait_for_steps(folder=communicator)
            process.send_signal(signal.SIGHUP)
            self.assertEqual(self.finish(process).code, 0)

    def test_control_c_reaches_everybody(self):
        config = self.config(p=2, training={"max_steps": 1000000})
        process = self.start("train", config, start_new_session=True)
        self.wait_for_steps()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        self.check(self.end(process), 2)

    def test_twice_ends_at_once(self):
        process = self.start_training(data={"sequence_length": 32})
        self.interrupt_twice(process)
        result = self.end(process)
        self.assertEqual(result.code, 1, str(result))
        self.assertEqual(result.errors, ["error: stopped by a signal"], str(result))

    def test_after_the_model_is_saved(self):
        for communicator, degree in (("local", 1), ("threads", 2), ("mpi", 2)):
            with self.subTest(communicator):
                process = self.start("train", self.config(p=degree, communicator=communicator, output_dir=communicator))
                for line in process.stdout:
                    if line.startswith("saved the model in"):
                        process.send_signal(signal.SIGTERM)
                        break
                result = self.end(process)
                self.assertEqual(result.code, 0, str(result))
                self.assertEqual(result.errors, [])

    def test_during_set_up(self):
        for pause in (0, 0.2, 0.5, 1) if ALL_CASES else (0, 0.5):
            with self.subTest(pause):
                process = self.start("train", self.config(p=2, t=2, training={"max_steps": 1000000}))
                first = process.stderr.readline()
                self.assertIn("mpirun", first)
                time.sleep(pause)
                process.send_signal(signal.SIGTERM)
                result = self.end(process)
                if result.code == 3:  # after its first step
                    self.assertIn("training.resume_from_checkpoint", result.last)
                else:
                    self.assertEqual(result.code, 1, str(result))
                    self.assertRegex(result.last, "^error: stopped by a signal")
                self.assert_no_finished_model()
                subprocess.run(["rm", "-rf", str(self.dir / "out")], check=True)

    def test_generation(self):
        self.train(model={"config": {"model_type": "gpt2", "vocab_size": 256, "n_positions": 16384, "n_embd": 16,
                                     "n_layer": 2, "n_head": 2}})
        process = self.start("generate", "out", "--max-new-tokens", "16000", *["--prompt", "a"] * 50)
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        result = self.end(process)
        self.assertIn(result.code, (1, -signal.SIGINT), str(result))  # the latter if the signal came before main began


if __name__ == "__main__":
    unittest.main()
