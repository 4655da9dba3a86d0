"""How ranks are started: the mpirun command, hosts of an allocation, tasks of Slurm."""
import json
import os
import shlex
import signal
import subprocess

from harness import PROGRAM, ProgramTest, unittest

MPIRUN = """#!/bin/sh
for word in "$@"; do printf '%s\\0' "$word"; done > words
"""
TWO_EACH = {"processes_per_host": 2}
ALLOCATION = {"SLURM_JOB_NODELIST": "n[08-09],gpu"}


class Launch(ProgramTest):
    """Runs the program with an mpirun that only records its arguments."""

    def setUp(self):
        super().setUp()
        for variable in [name for name in self.env if name.startswith(("SLURM_", "PBS_", "LSB_", "PE_", "OMPI_", "PMI"))]:
            del self.env[variable]
        mpirun = self.dir / "mpirun"
        mpirun.write_text(MPIRUN)
        mpirun.chmod(0o755)
        self.env["PATH"] = f"{self.dir}:{self.env['PATH']}"

    def words(self, environment=None, *, arguments=(), **sections):
        """The words that mpirun receives; the printed ones are the same."""
        self.env.update(environment or {})
        result = self.expect(0, "train", self.config(**sections), *arguments)
        words = (self.dir / "words").read_bytes().decode().split("\0")[:-1]
        printed = next(line for line in result.err.splitlines() if line.startswith("$ "))
        self.assertEqual(shlex.split(printed[2:]), ["mpirun", *words])
        return words[:words.index(next(word for word in words if word.endswith("shardline")))]

    def test_alone(self):
        self.assertEqual(self.words(mpi_options=TWO_EACH), ["-np", "2", "--bind-to", "none", "--oversubscribe"])

    def test_hosts_of_the_config(self):
        words = self.words(ALLOCATION, mpi_options=dict(TWO_EACH, hosts=["a", "b"]))
        self.assertEqual(words, ["-np", "4", "--bind-to", "none", "--oversubscribe", "--host", "a:2,b:2"])

    def test_hosts_of_an_allocation(self):
        words = self.words(ALLOCATION, mpi_options=TWO_EACH, training={"global_batch_size": 12})
        self.assertEqual(words[:2], ["-np", "6"])
        self.assertEqual(words[5:], ["--host", "n08:2,n09:2,gpu:2", "-x", "SHARDLINE_HOSTS=n08,n09,gpu"])
        plan = json.loads(self.expect(0, "plan", "config.json", "--json").out)
        self.assertEqual(len(plan["ranks"]), 6)

    def test_degrees_alone_are_one_host_of_an_allocation(self):
        words = self.words(ALLOCATION, p=2)
        self.assertEqual(words[:2], ["-np", "2"])
        self.assertEqual(words[5:7], ["--host", "n08:2"])

    def test_auto_uses_all_hosts_of_an_allocation(self):
        cores = len(os.sched_getaffinity(0))
        words = self.words({"SLURM_JOB_NODELIST": "n[1-2]"}, training={"global_batch_size": 16 * cores},
                           smp_options={"tensor_parallel_degree": "auto", "microbatches": "auto"})
        self.assertEqual(words[:2], ["-np", str(2 * cores)])
        self.assertEqual(words[5:7], ["--host", f"n1:{cores},n2:{cores}"])
        # On one host, the degrees alone determine the number of ranks.
        words = self.words(p=2, smp_options={"microbatches": "auto"})
        self.assertEqual(words[:2], ["-np", "2"])
        self.assertEqual(words[5:7], ["--host", "n1:2"])

    def test_one_host_is_left_to_mpirun(self):
        self.assertEqual(self.words({"SLURM_JOB_NODELIST": "n1"}, p=2),
                         ["-np", "2", "--bind-to", "none", "--oversubscribe"])

    def test_files_of_hosts(self):
        (self.dir / "hosts").write_text("n1\nn1\nn2\nn2\n")
        words = self.words({"PBS_NODEFILE": "hosts"}, mpi_options=TWO_EACH)
        self.assertEqual(words[5:7], ["--host", "n1:2,n2:2"])

    def test_hosts_that_cannot_be_read(self):
        self.env["SLURM_JOB_NODELIST"] = "n[1-"
        self.expect(2, "train", self.config(mpi_options=TWO_EACH), says=["n[1-", "mpi_options.hosts"])

    def test_parent_that_waits_for_no_children(self):
        """A parent that ignores SIGCHLD passes this on; then nobody could wait for mpirun."""
        process = self.start("train", self.config(p=2), preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(self.finish(process, 60).code, 0)

    def test_quotes_in_custom_options(self):
        options = """-x 'A=one two' --mca btl ^openib -x B="it's" """
        words = self.words(mpi_options=dict(TWO_EACH, custom_mpi_options=options))
        self.assertEqual(words[5:], ["-x", "A=one two", "--mca", "btl", "^openib", "-x", "B=it's"])
        self.expect(2, "train", self.config(mpi_options=dict(TWO_EACH, custom_mpi_options="-x 'A=1")),
                    says=["/mpi_options/custom_mpi_options: has a ' at character 4 that is not closed", "-x 'A=1"])

    def test_printed_words_can_be_pasted(self):
        """The words include some that naive quoting would break."""
        value = "output_dir=it's (1) \\ `x` #~"
        self.assertIn("-np", self.words(p=2, arguments=("--set", value)))


class SlurmTasks(ProgramTest):
    """Several tasks that MPI does not connect."""

    def refuse(self, command, **environment):
        self.env.update(environment, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        for communicator, degree in (("mpi", 2), ("auto", 1), ("auto", 2)):
            with self.subTest(communicator):
                config = self.config(p=degree, communicator=communicator)
                self.expect(2, command, config, says=["4 tasks", "srun --mpi=pmix -n 4"])
                self.assertEqual(self.files(), [])

    def test_without_pmi(self):
        self.refuse("train", SLURM_STEP_NUM_TASKS="4")

    def test_with_a_pmi_that_open_mpi_does_not_know(self):
        self.env.update(SLURM_STEP_NUM_TASKS="4", PMI_RANK="0", OMPI_ALLOW_RUN_AS_ROOT="1",
                        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        self.expect(2, "train", self.config(mpi_options={"processes_per_host": 1}, communicator="mpi"),
                    says=["4 tasks", "srun --mpi=pmix -n 4"])
        self.assertEqual(self.files(), [])

    def test_tasks_that_are_to_be_alone(self):
        self.env.update(SLURM_STEP_NUM_TASKS="4")
        for communicator, degree in (("local", 1), ("threads", 2)):
            with self.subTest(communicator):
                self.train(p=degree, communicator=communicator, output_dir=communicator)

    def test_a_batch_script_is_no_step_of_several_tasks(self):
        self.env.update(SLURM_NTASKS="4", SLURM_PROCID="0")
        self.train()

    def test_one_task_starts_ranks(self):
        self.env.update(SLURM_STEP_NUM_TASKS="1")
        self.train(p=2)

    def test_tasks_that_mpi_connects(self):
        environment = dict(self.env, SLURM_STEP_NUM_TASKS="2", OMPI_ALLOW_RUN_AS_ROOT="1",
                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1")
        run = subprocess.run(["mpirun", "--quiet", "-np", "2", "--oversubscribe", "--bind-to", "none", PROGRAM, "train",
                              self.config(p=2)], cwd=self.dir, env=environment, stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual(run.returncode, 0, run.stderr)


if __name__ == "__main__":
    unittest.main()
