"""A job whose ranks, hosts or mpirun die is started again; failures that a restart cannot change end it."""
import os
import pathlib
import re
import subprocess
import time

from harness import ALL_CASES, LIMIT, PROGRAM, TINY, ProgramTest, one_of_all, signal, unittest

STEPS = 400
MODEL = {"config": dict(TINY["model"]["config"], attn_pdrop=0.1)}


def can(*command):
    return subprocess.run(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL).returncode == 0


class RestartTest(ProgramTest):
    def sections(self, training=None, mpi=None, **more):
        sections = dict({"p": 2, "communicator": "mpi", "model": MODEL}, **more)
        sections["training"] = {"max_steps": STEPS, "save_steps": 50, **(training or {})}
        sections["mpi_options"] = {"max_restarts": 3, **(mpi or {})}
        return sections

    def numbers(self, folder="out"):
        return [(line["step"], line["loss"], line["grad_norm"], line["learning_rate"]) for line in self.metrics(folder)]

    def start_training(self, **sections):
        process = self.start("train", self.config(**sections))
        self.addCleanup(process.kill)
        return process

    def checkpoints(self, folder="out"):
        return sorted(int(path.parent.name.split("-")[1])
                      for path in (self.dir / folder).glob("checkpoint-*/manifest.json")
                      if path.parent.name.split("-")[1].isdigit())

    def wait_for_checkpoint(self, above=0, folder="out"):
        return self.wait_for(lambda: [step for step in self.checkpoints(folder) if step > above],
                             f"a checkpoint after step {above}")[-1]

    def kill(self, pid):
        os.kill(pid, signal.SIGKILL)

    def kill_rank(self, rank, number=signal.SIGKILL):
        os.kill(self.wait_for(lambda: next((p for p, r in self.processes().items() if r == rank), None), "a rank"), number)

    def wait_for_end_of_ranks(self):
        """Waits until all ranks that are running now have ended."""
        before = {pid for pid, rank in self.processes().items() if rank is not None}
        self.wait_for(lambda: not before & set(self.processes()), "the end of the ranks")

    def first_line_of_metrics(self):
        """Returns a line with the duration of the first step, so each attempt that starts from step 1 has a different one."""
        try:
            return (self.dir / "out/metrics.jsonl").read_bytes().partition(b"\n")[0]
        except FileNotFoundError:
            return b""

    def mpirun_of(self, process):
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return int(children[0])


class Restarts(RestartTest):
    def test_killed_ranks_and_mpirun(self):
        """The run continues with the same bits, and its records read like those of one run."""
        self.train(**self.sections(output_dir="whole"))
        for victim in ("rank 0", "rank 1", "mpirun") if ALL_CASES else ("rank 1",):
            with self.subTest(victim):
                folder = victim.replace(" ", "-")
                process = self.start_training(**self.sections(output_dir=folder))
                self.wait_for_checkpoint(folder=folder)
                self.kill(self.mpirun_of(process) if victim == "mpirun" else self.pid_of_rank(int(victim[-1])))
                result = self.finish(process)
                self.assertEqual(result.code, 0, str(result))
                self.assertEqual(result.errors, [], str(result))
                ended = ("mpirun was ended by signal 9" if victim == "mpirun"
                         else rf"{victim} \(host \S+, stage \d\) was killed by signal 9 \(Killed\); last seen in ")
                self.assertRegex(result.err, rf"attempt 1 failed:\n(    .*\n|  what the ranks were doing:\n)*  {ended}")
                self.assertRegex(result.err, f"attempt 2 of at most 4 continues from the newest intact checkpoint in {folder}\n")
                self.assertRegex(result.out, rf"(?m)^continues {folder}/checkpoint-\d+ after step \d+$")
                self.assertEqual(self.numbers(folder), self.numbers("whole"))
                self.assertEqual((self.dir / folder / "model.safetensors").read_bytes(),
                                 (self.dir / "whole/model.safetensors").read_bytes())
                self.assert_all_gone()

    def test_as_often_as_allowed(self):
        process = self.start_training(**self.sections(training={"max_steps": 1000000}, mpi={"max_restarts": 2}))
        step = 0
        for _ in range(3):
            step = self.wait_for_checkpoint(above=step)
            self.kill_rank(1)
            self.wait_for_end_of_ranks()
        result = self.finish(process)
        self.assertEqual(result.code, 1, str(result))
        self.assertIn("the run was started again 2 times, which is all that mpi_options.max_restarts allows", result.err)
        self.assertRegex(result.errors[-1], "^error: rank 1 .* was killed by signal 9")
        self.assertIn("--set training.resume_from_checkpoint=out/checkpoint-", result.last)
        self.assert_all_gone()

    def test_models_alone(self):
        """The launcher prints no command that could not continue from the checkpoints."""
        process = self.start_training(**self.sections(training={"max_steps": 1000000, "save_only_model": True},
                                                      mpi={"max_restarts": 0}))
        self.wait_for_checkpoint()
        self.kill_rank(1)
        result = self.finish(process)
        self.assertEqual(result.code, 1, str(result))
        self.assertRegex(result.last, r"^the newest checkpoint is out/checkpoint-\d+; no run can continue from it, because "
                                      "training.save_only_model leaves out")
        self.assertNotIn("to continue", result.err)

    def test_crash_loop(self):
        process = self.start_training(**self.sections(training={"max_steps": 1000000, "save_steps": 1000000}))
        for _ in range(2):
            self.wait_for_steps(3)
            self.kill_rank(1)
            first = self.first_line_of_metrics()
            self.wait_for(lambda: process.poll() is not None or self.first_line_of_metrics() != first, "a new attempt")
        result = self.finish(process)
        self.assertEqual(result.code, 1, str(result))
        self.assertIn("attempt 2 of at most 4 starts as the first one did: no checkpoint is known to have been saved",
                      result.err)
        self.assertIn("the last 2 attempts saved no checkpoint, so the run is not started again", result.err)
        self.assertRegex(result.last, "^error: rank 1 .* was killed by signal 9")

    def test_what_a_restart_cannot_change(self):
        """Mistakes in the config or in files that only the ranks find end the run."""
        self.train(**self.sections(training={"max_steps": 5}))
        changed = self.config(**self.sections(training={"learning_rate": 0.5, "resume_from_checkpoint": "auto"}))
        (self.dir / "text.jsonl").write_text('{"text": 1}\n')
        broken = self.config("broken.json", **self.sections(output_dir="broken", data={"train": "text.jsonl"}))
        for code, config, says in ((2, changed, "/training/learning_rate: 0.01 in the checkpoint"),
                                   (1, broken, "text.jsonl")):
            with self.subTest(says):
                result = self.expect(code, "train", config, says=says)
                self.assertNotIn("attempt", result.err)
                if config == changed:  # all ranks see it
                    self.assertRegex(result.errors[0], "^error: /training/resume_from_checkpoint: the run would not continue")
                    self.assertEqual(len(result.errors), 1)

    @one_of_all
    def test_restart_from_the_checkpoint_of_another_run(self):
        """Until the job has saved a checkpoint itself, it starts from the other run's."""
        self.train(**self.sections(training={"max_steps": 100, "lr_scheduler_type": "constant"}, output_dir="other"))
        process = self.start_training(**self.sections(training={
            "lr_scheduler_type": "constant", "save_steps": 1000000, "resume_from_checkpoint": "other/checkpoint-100"}))
        self.wait_for_steps(3)
        self.kill_rank(1)
        result = self.finish(process)
        self.assertEqual(result.code, 0, str(result))
        self.assertEqual(result.out.count("continues other/checkpoint-100 after step 100"), 2, str(result))
        self.assertEqual([line["step"] for line in self.metrics()], list(range(101, STEPS + 1)))

    def test_signals(self):
        """The first signal stops a restarted run like any other; a run that was asked to stop is not started again."""
        process = self.start_training(**self.sections(training={"max_steps": 1000000}))
        step = self.wait_for_checkpoint()
        self.kill_rank(0)
        self.wait_for_checkpoint(above=step)
        process.terminate()
        result = self.finish(process)
        self.assertEqual(result.code, 3, str(result))
        self.assertIn("to continue:", result.err)
        self.assertNotIn("attempt 3", result.err)
        self.assert_all_gone()

        process = self.start_training(**self.sections(training={"max_steps": 1000000}, output_dir="again"))
        self.wait_for_checkpoint(folder="again")
        self.interrupt_twice(process)
        result = self.finish(process)
        self.assertEqual(result.code, 1, str(result))
        self.assertNotIn("attempt", result.err)
        self.assert_all_gone()

    def break_directory(self, name):
        """Makes sure that nothing can be saved in the directory from now on."""
        (self.dir / name).rename(self.dir / f"{name}-away")
        (self.dir / name).touch()

    def repair_directory(self, name):
        (self.dir / name).unlink()
        (self.dir / f"{name}-away").rename(self.dir / name)

    @one_of_all
    def test_requests_when_nothing_can_be_saved(self):
        """Requests to stop end the run with the reason, and nothing is started again."""
        seconds = {"max_run_seconds": 2}
        ways = {"the file": lambda process, folder: (self.dir / folder / "stop").touch(),
                "training.max_run_seconds": lambda process, folder: None,
                "a signal": lambda process, folder: os.kill(self.pid_of_rank(1), signal.SIGUSR1)}
        for number, (why, ask) in enumerate(ways.items()):
            with self.subTest(why):
                folder, disk = f"out{number}", f"disk{number}"
                process = self.start_training(output_dir=folder, **self.sections(training={
                    "max_steps": 1000000, "save_steps": 1000000, "checkpoint_dir": disk,
                    **(seconds if "seconds" in why else {})}))
                self.wait_for_steps(folder=folder)
                self.break_directory(disk)
                ask(process, folder)
                result = self.finish(process)
                self.assertEqual(result.code, 1, str(result))
                self.assertRegex(result.last, rf"^error: stopped by {why}.* after step \d+ of 1000000, but: checkpoint-")
                self.assertIn("was not saved", result.last)
                self.assertIn("the run was asked to stop, so it is not started again", result.err)
                self.assertNotIn("attempt", result.err)
                self.assert_all_gone()

    def test_failure_with_a_directory_that_cannot_be_read(self):
        """The failure is still reported."""
        process = self.start_training(**self.sections(training={"max_steps": 1000000, "checkpoint_dir": "disk"}))
        self.wait_for_checkpoint(folder="disk")
        (self.dir / "disk").rename(self.dir / "disk-away")
        (self.dir / "disk").symlink_to("disk")
        self.kill_rank(1)
        result = self.finish(process)
        self.assertEqual(result.code, 1, str(result))
        self.assertRegex(result.err, r"attempt 1 failed:\n(    .*\n|  what the ranks were doing:\n)*  rank 1 .* was killed")
        self.assertRegex(result.last, "^error: disk: the checkpoints there cannot be listed: Too many levels")

    def test_requests_before_the_first_step(self):
        """A rank that a signal ends is not started again, and a stop file is not forgotten."""
        process = self.start_training(**self.sections(training={"max_steps": 1000000}))
        self.kill_rank(1, signal.SIGTERM)
        result = self.finish(process)
        self.assertIn(result.code, (1, 3), str(result))  # 3: the machine was busy, and the rank has trained a step
        self.assertNotIn("attempt", result.err)

        process = self.start_training(output_dir="again", **self.sections(
            training={"max_steps": 1000000, "eval_on_start": True, "eval_strategy": "steps", "eval_steps": 1000000},
            data={"validation": "text.txt"}))
        self.wait_for((self.dir / "again/.lock").exists, "the lock")
        (self.dir / "again/stop").touch()
        result = self.finish(process)
        self.assertIn(result.code, (1, 3), str(result))
        self.assertNotIn("attempt", result.err)

    def test_request_before_the_first_step_of_another_attempt(self):
        """The checkpoint of an earlier attempt continues the run."""
        process = self.start_training(**self.sections(training={"max_steps": 1000000}))
        self.wait_for_checkpoint()
        self.kill_rank(0)
        for line in process.stderr:
            if line.startswith("attempt 2 "):
                break
        process.terminate()
        result = self.finish(process)
        self.assertEqual(result.code, 3, str(result))
        self.assertIn("--set training.resume_from_checkpoint=", result.last)
        self.assertEqual(result.errors, [])

    def test_finished_with_gaps(self):
        """Another attempt would hide that records are missing."""
        process = self.start_training(**self.sections(training={"checkpoint_dir": "disk"}))
        self.wait_for_checkpoint(folder="disk")
        self.break_directory("disk")
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "the run continues" in line:
                break
        self.repair_directory("disk")
        result = self.finish(process)
        self.assertEqual(result.code, 1, "".join(lines) + str(result))
        self.assertRegex(result.last, "^error: rank 0: the model is saved in out, but: checkpoints: . could not be written")
        self.assertNotIn("attempt", result.err)

    def test_ranks_end_without_their_launcher(self):
        """The ranks end even if mpirun, which should end them, does nothing."""
        process = self.start_training(**self.sections(training={"max_steps": 1000000}))
        self.wait_for_steps()
        mpirun = self.mpirun_of(process)
        os.kill(mpirun, signal.SIGSTOP)
        self.addCleanup(lambda: self.end_stopped(mpirun))
        process.kill()
        self.wait_for(lambda: all(rank is None for rank in self.processes().values()), "the end of the ranks", 30)

    def end_stopped(self, pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Stops(RestartTest):
    def test_stop_file(self):
        for communicator in ("mpi", "threads"):
            with self.subTest(communicator):
                process = self.start_training(**self.sections(training={"max_steps": 1000000}, output_dir=communicator,
                                                              communicator=communicator))
                self.wait_for_steps(folder=communicator)
                (self.dir / communicator / "stop").touch()
                result = self.finish(process)
                self.assertEqual(result.code, 3, str(result))
                self.assertRegex(result.err, rf"stopped by the file {communicator}/stop after step \d+")
                self.assertFalse((self.dir / communicator / "stop").exists())

    @one_of_all
    def test_stop_file_of_an_earlier_run(self):
        """A stop request is not meant for a run that starts later."""
        for communicator in ("mpi", "threads"):
            with self.subTest(communicator):
                (self.dir / communicator).mkdir()
                (self.dir / communicator / "stop").touch()
                process = self.start_training(**self.sections(training={"max_steps": 5}, output_dir=communicator,
                                                              communicator=communicator))
                result = self.finish(process)
                self.assertEqual(result.code, 0, str(result))
                self.assertIn(f"note: removed {communicator}/stop, which was there before this run started", result.err)
        environment = dict(self.env, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        (self.dir / "own").mkdir()
        (self.dir / "own/stop").touch()
        config = self.config(**self.sections(training={"max_steps": 5}, output_dir="own", mpi={"max_restarts": 0}))
        run = subprocess.run(["mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none", PROGRAM, "train", config],
                             cwd=self.dir, env=environment, capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertIn("note: removed own/stop", run.stdout)

    def test_a_refused_run_leaves_the_request_to_the_run_that_is_there(self):
        sections = self.sections(training={"max_steps": 1000000})
        process = self.start_training(**sections)
        self.wait_for_steps()
        rank = self.pid_of_rank(1)
        os.kill(rank, signal.SIGSTOP)
        (self.dir / "out/stop").touch()
        self.expect(2, "train", "config.json", says="is in use by another run")
        self.assertTrue((self.dir / "out/stop").exists())
        os.kill(rank, signal.SIGCONT)
        result = self.finish(process)
        self.assertEqual(result.code, 3, str(result))

    def test_own_mpirun(self):
        environment = dict(self.env, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        config = self.config(**self.sections(training={"max_steps": 1000000}, mpi={"max_restarts": 0}))
        process = subprocess.Popen(["mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none", PROGRAM, "train", config],
                                   cwd=self.dir, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        self.wait_for_steps()
        process.send_signal(signal.SIGUSR1)
        result = self.finish(process)
        self.assertEqual(result.code, 3, str(result))
        self.assertIn("to continue:", result.err)
        self.assertNotIn("shardline-rank", result.err)

    @unittest.skipUnless(can("unshare", "--pid", "--fork", "--mount-proc", "true"), "cannot make pid namespaces")
    def test_first_process_of_a_container(self):
        """The first process of a container receives SIGTERM when the container is stopped; when it ends, the kernel
        ends the rest."""
        process = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--mount-proc", PROGRAM, "train",
             self.config(**self.sections(training={"max_steps": 1000000}))],
            cwd=self.dir, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        self.wait_for_steps()
        os.kill(self.mpirun_of(process), signal.SIGTERM)  # the child of unshare
        result = self.finish(process)
        self.assertEqual(result.code, 3, str(result))
        self.assertRegex(result.err, r"stopped by a signal after step \d+ of 1000000 and saved out/checkpoint-")
        self.assert_all_gone()


AGENT = """#!/bin/sh
# Replaces ssh: a host is this machine under another name, or a network namespace of that name.
host=$1; shift
[ ! -e {folder}/slow-$host ] || sleep $(cat {folder}/slow-$host)
if [ -e {folder}/down-$host ]; then echo "ssh: connect to host $host: No route to host" >&2; exit 255; fi
exec {enter} unshare -u sh -c 'hostname "$0"; exec env -i PATH="$PATH" sh -c "$1"' "$host" "$*"
"""


@unittest.skipUnless(can("unshare", "-u", "true"), "cannot make host names")
class Hosts(RestartTest):
    def on_hosts(self, hosts, enter="", **more):
        agent = self.dir / "agent"
        agent.write_text(AGENT.format(folder=self.dir, enter=enter))
        agent.chmod(0o755)
        mpi = {"hosts": hosts, "processes_per_host": 1, "custom_mpi_options": f"--mca plm_rsh_agent {agent}",
               **more.pop("mpi", {})}
        return self.sections(p=1, mpi=mpi, **more)

    def lose(self, host):
        """Ends all processes of a host, which no longer answers."""
        (self.dir / f"down-{host}").touch()
        for pid in self.processes():
            try:
                nodename = subprocess.run(["nsenter", "-u", "-t", str(pid), "hostname"], capture_output=True, text=True)
                if nodename.stdout.strip() == host:
                    self.kill(pid)
            except ProcessLookupError:
                pass

    def test_goes_on_without_a_host(self):
        runtime = {"dtype": "float64"}  # so that only rounding differs, and only slightly
        self.train(**self.sections(p=1, communicator="local", mpi={"max_restarts": 0}, runtime=runtime,
                                   output_dir="whole"))
        process = self.start_training(**self.on_hosts(["hosta", "hostb"], mpi={"elastic": True}, runtime=runtime))
        self.wait_for_checkpoint()
        self.lose("hostb")
        result = self.finish(process)
        self.assertEqual(result.code, 0, str(result))
        self.assertIn("continuing without hostb, on hosta: D 2 -> 1, accumulation steps 1 -> 2; the global batch stays 8",
                      result.err)
        self.assertNotIn("mpi_options.elastic has no effect", result.out + result.err)
        self.assertEqual([line["step"] for line in self.metrics()], list(range(1, STEPS + 1)))
        for line, (_, loss, _, _) in zip(self.metrics(), self.numbers("whole")):
            self.assertAlmostEqual(line["loss"], loss, delta=1e-9)

    @one_of_all
    def test_waits_for_a_host(self):
        process = self.start_training(**self.on_hosts(["hosta", "hostb"]))
        self.wait_for_checkpoint()
        self.lose("hostb")
        for line in process.stderr:
            if line == "waiting for these hosts to answer: hostb\n":
                break
        (self.dir / "down-hostb").unlink()
        result = self.finish(process)
        self.assertEqual(result.code, 0, str(result))
        self.assertRegex(result.err, "attempt 2 of at most 4 continues from the newest intact checkpoint in out\n")
        self.assertEqual([line["step"] for line in self.metrics()], list(range(1, STEPS + 1)))

    @one_of_all
    def test_progress_on_other_hosts(self):
        """Each host has a disk of its own, and the launcher's has no checkpoint."""
        process = self.start_training(**self.with_own_disks(training={"max_steps": 1000000, "save_steps": 10}))
        step = 0
        for _ in range(3):
            step = self.wait_for_parts(above=step)
            self.wait_for_steps(len(self.metrics()) + 2)  # until rank 0 knows it
            self.kill_rank(1)
            self.wait_for_end_of_ranks()
        last = next(line for line in process.stderr if line.startswith("attempt 4 of"))
        self.assertEqual(last, "attempt 4 of at most 4 continues from the newest intact checkpoint in disk/checkpoints\n")
        self.wait_for_steps(len(self.metrics()) + 2)
        (self.dir / "out/stop").touch()
        result = self.finish(process)
        self.assertEqual(result.code, 3, str(result))
        self.assertFalse(list((self.dir / "disk").iterdir()))

    def test_parts_of_a_host_that_is_away(self):
        """The other hosts hold parts of each checkpoint, so they wait, even if the run is elastic."""
        process = self.start_training(**self.with_own_disks(mpi={"elastic": True}, training={
            "max_steps": 1000000, "save_steps": 10}))
        self.wait_for_parts(above=0)
        self.wait_for_steps(len(self.metrics()) + 2)
        # The launcher's disk becomes the first host's.
        (self.dir / "disk/checkpoints").symlink_to(self.dir / "disk-of-hosta/checkpoints")
        self.lose("hostb")
        line = next(line for line in process.stderr if line.startswith("waiting for "))
        self.assertRegex(line, r"^waiting for these hosts to answer: hostb; disk/checkpoints/checkpoint-\d+ has parts on "
                               "the missing hosts; with training.save_on_each_node, ")
        (self.dir / "disk/checkpoints").unlink()
        (self.dir / "down-hostb").unlink()
        last = next(line for line in process.stderr if line.startswith("attempt 2 of"))
        self.assertEqual(last, "attempt 2 of at most 4 continues from the newest intact checkpoint in disk/checkpoints\n")
        self.wait_for_steps(len(self.metrics()) + 2)
        (self.dir / "out/stop").touch()
        result = self.finish(process)
        self.assertEqual(result.code, 3, str(result))
        steps = [line["step"] for line in self.metrics()]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))

    @one_of_all
    def test_host_that_cannot_save(self):
        """The run is refused, because the part of this host would be missing in every checkpoint."""
        sections = self.with_own_disks(mpi={"max_restarts": 0})
        (self.dir / "disk-of-hostb/checkpoints").write_text("a file")
        result = self.expect(1, "train", self.config(**sections), says=[
            "these hosts cannot write to disk/checkpoints", "host hostb: "])
        self.assertNotIn("step 1/", result.out)
        sections["training"]["save_strategy"] = "no"
        self.expect(0, "train", self.config(**sections))

    def with_own_disks(self, training=None, **more):
        """Config sections for two hosts whose `disk` is a directory of their own; the launcher's is empty."""
        for host in ("hosta", "hostb"):
            (self.dir / f"disk-of-{host}").mkdir()
        (self.dir / "disk").mkdir()
        sections = self.on_hosts(["hosta", "hostb"], training={"checkpoint_dir": "disk/checkpoints", **(training or {})},
                                 **more)
        agent = self.dir / "agent"
        mounted = f'mount --bind {self.dir}/disk-of-"$0" {self.dir}/disk && exec env'
        agent.write_text(agent.read_text().replace("unshare -u", "unshare -um").replace("exec env", mounted))
        return sections

    def wait_for_parts(self, above):
        """Waits until both hosts have a later checkpoint; returns its step."""
        def newest(host):
            parts = (self.dir / f"disk-of-{host}/checkpoints").glob("checkpoint-*/manifest.json")
            return max((int(re.match(r"checkpoint-(\d+)", part.parent.name)[1]) for part in parts), default=0)
        step = lambda: min(newest("hosta"), newest("hostb"))
        return self.wait_for(lambda: step() if step() > above else None, f"a checkpoint after step {above}")

    @one_of_all
    def test_host_that_does_not_answer_the_first_time(self):
        """The wait ends at the limit for starting, or with a signal."""
        (self.dir / "slow-hostb").write_text("1000")
        self.env["SHARDLINE_TIMEOUT_SECONDS"] = "6"
        config = self.config(**self.on_hosts(["hosta", "hostb"], mpi={"max_restarts": 0}))
        result = self.expect(1, "train", config, says="error: mpirun did not start a rank within 6 s; "
                             "SHARDLINE_TIMEOUT_SECONDS sets this limit\n")
        self.assertRegex(result.last, r"^error: mpirun cannot start a program on (hosta, )?hostb; check that it can be ")
        self.assert_all_gone()

    def test_signal_while_ranks_are_being_started(self):
        """After such a signal, mpirun ends with 0, or not at all."""
        for seconds in (2, 1000):
            with self.subTest(seconds):
                (self.dir / "slow-hostb").write_text(str(seconds))
                process = self.start_training(**self.on_hosts(["hosta", "hostb"], training={"max_steps": 1000000}))
                self.assertTrue(process.stderr.readline().startswith("$ mpirun"))
                time.sleep(1)
                process.terminate()
                result = self.finish(process, 60)
                self.assertEqual(result.code, 1, str(result))
                self.assertEqual(result.last, "error: stopped by a signal")
                self.assertNotIn("attempt", result.err)
                self.assert_no_finished_model()
                self.assert_all_gone()

    def test_signal_while_it_waits(self):
        process = self.start_training(**self.on_hosts(["hosta", "hostb"], training={"max_steps": 1000000}))
        step = self.wait_for_checkpoint()
        self.lose("hostb")
        for line in process.stderr:
            if line == "waiting for these hosts to answer: hostb\n":
                break
        process.terminate()
        result = self.finish(process, 30)
        self.assertEqual(result.code, 3, str(result))
        self.assertIn("stopped on request before the run started again; it continues from a checkpoint", result.err)
        self.assertIn("--set training.resume_from_checkpoint=auto", result.last)
        self.assert_all_gone()


def make_namespaces():
    """Makes two hosts, each with its own network, and a link between them; returns whether that works here."""
    commands = """ip netns add sl-a && ip netns add sl-b && ip link add va netns sl-a type veth peer name vb netns sl-b &&
        ip -n sl-a address add 10.213.77.1/24 dev va && ip -n sl-b address add 10.213.77.2/24 dev vb &&
        for host in a b; do ip -n sl-$host link set lo up && ip -n sl-$host link set v$host up || exit; done"""
    return can("sh", "-c", commands)


def remove_namespaces():
    can("sh", "-c", "ip netns delete sl-a; ip netns delete sl-b")


class Links(Hosts):
    """Tests in which hosts are network namespaces."""

    def setUp(self):
        super().setUp()
        remove_namespaces()
        self.addCleanup(remove_namespaces)
        if not make_namespaces():
            self.skipTest("cannot make network namespaces")

    test_goes_on_without_a_host = test_waits_for_a_host = test_signal_while_it_waits = None
    test_progress_on_other_hosts = test_host_that_does_not_answer_the_first_time = None
    test_signal_while_ranks_are_being_started = None
    test_parts_of_a_host_that_is_away = test_host_that_cannot_save = None

    def test_link_that_goes_down_and_comes_back(self):
        sections = self.on_hosts(["sl-a", "sl-b"], enter="ip netns exec $host", training={"max_steps": 1000000},
                                 mpi={"host_timeout": 6})
        config = self.config(**sections)
        process = subprocess.Popen(
            ["ip", "netns", "exec", "sl-a", "unshare", "-u", "sh", "-c", f"hostname sl-a; exec {PROGRAM} train {config}"],
            cwd=self.dir, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        self.wait_for_checkpoint()
        (self.dir / "down-sl-b").touch()
        begin = time.monotonic()
        self.assertTrue(can("ip", "-n", "sl-a", "link", "set", "va", "down"))
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line == "waiting for these hosts to answer: sl-b\n":
                break
        self.assertIn("  sl-b has not answered for 6 s (mpi_options.host_timeout)\n", lines)
        self.assertLess(time.monotonic() - begin, 60)
        # The link is still down.
        self.wait_for(lambda: all(rank is None for rank in self.processes().values()), "the end of the ranks", 20)
        step = self.checkpoints()[-1]
        self.assertTrue(can("ip", "-n", "sl-a", "link", "set", "va", "up"))
        (self.dir / "down-sl-b").unlink()
        self.wait_for_checkpoint(above=step)
        (self.dir / "out/stop").touch()
        result = self.finish(process)
        self.assertEqual(result.code, 3, str(result))
        self.assertRegex(result.err, "attempt 2 of at most 4 continues from the newest intact checkpoint in out\n")
        steps = [line["step"] for line in self.metrics()]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        self.assert_all_gone()


if __name__ == "__main__":
    unittest.main(verbosity=2)
