"""The cap on a rank's memory: a run that keeps too much says what the memory is used for, and fits with offloading."""
import json
import re
import unittest

import harness

CAP = 32 << 20
# Each of 12 microbatches keeps more than 4 MB.
KEEPING = {"microbatches": 12, "pipeline": "simple"}
AWAY = {"offload_activations": True, "offload_scope": "all", "activation_loading_horizon": 1}


class MemoryTest(harness.ProgramTest):
    def memory_config(self, name, smp_options, **runtime):
        """A model of 12 x 4 MB of activations; writes to the folder `name`."""
        model = {"config": {"model_type": "gpt2", "vocab_size": 256, "n_positions": 32, "n_embd": 64, "n_layer": 4,
                            "n_head": 4}}
        return self.config(f"{name}.json", model=model, data={"sequence_length": 32},
                           training={"global_batch_size": 96, "max_steps": 3}, smp_options=smp_options,
                           runtime=runtime, output_dir=name)

    def planned(self, config):
        """Returns the bytes in the message about a plan that exceeds its cap."""
        return int(re.search(r"raise it to more than (\d+)", self.expect(2, "plan", config).err)[1])

    def test_over_the_cap_without_offload_and_within_it_with(self):
        self.expect(0, "train", self.memory_config("free", KEEPING))
        planned = self.planned(self.memory_config("kept", KEEPING, memory_cap="32MiB"))
        # The plan does not include memory that is kept for reuse.
        result = self.expect(1, "train", self.memory_config("kept", KEEPING, memory_cap=planned + 100000),
                             says=["runtime.memory_cap", 'offload_scope "all"', "weights ", "optimizer "])
        kept = re.search(r"activations (\d+)", result.err)
        self.assertTrue(kept, str(result))
        self.assertGreater(int(kept[1]), CAP // 2)
        self.expect(0, "train", self.memory_config("away", {**KEEPING, **AWAY}, memory_cap=CAP))
        losses = {name: [(line["loss"], line["grad_norm"]) for line in self.metrics(name)] for name in ("free", "away")}
        self.assertEqual(len(losses["free"]), 3)
        self.assertEqual(losses["free"], losses["away"])
        for line in self.metrics("away"):
            self.assertLess(line["peak_memory_bytes"][0]["counted"], CAP)
        self.assertGreater(self.metrics("free")[-1]["peak_memory_bytes"][0]["counted"], CAP)

    def test_a_plan_beyond_the_cap_is_refused(self):
        """`plan` and `train` refuse the config before a rank starts, and suggest what would help."""
        for name, smp_options in (("one", KEEPING), ("two", {**KEEPING, "pipeline_parallel_degree": 2})):
            for command in ("plan", "train"):
                config = self.memory_config(name, smp_options, memory_cap="8MiB")
                result = self.expect(2, command, config, says=["/runtime/memory_cap: rank ", "activations ",
                                                               "but the cap is 8.0 MiB", "raise it to more than ", " bytes ("])
                self.assertNotIn("mpirun -np", result.err)
                self.assertEqual(self.files(name), [])
            self.expect(0, "plan", self.memory_config(name, smp_options, memory_cap=self.planned(config) + 1))

    def test_a_run_here_is_judged_by_this_machine(self):
        """The run is not judged by the GPUs in the cluster file of its plan."""
        self.env["CUDA_VISIBLE_DEVICES"] = ""
        gpus = str(harness.ROOT / "configs/clusters/p4d.24xlarge.json")
        config = harness.tiny(cluster=gpus, training={"optim": "adafactor"},
                              runtime={"device": "auto", "memory_cap": "900MiB"})
        del config["training"]["use_cpu"]
        (self.dir / "here.json").write_text(json.dumps(config))
        self.expect(0, "train", "here.json", says="saved the model")
        self.expect(2, "plan", "here.json", says="runs on CPUs only")

    def test_optimizer_states_of_cpus_stay_where_they_are(self):
        self.expect(0, "train", self.memory_config("plain", {}))
        said = self.expect(0, "train", self.memory_config("key", {"offload_optimizer_states": True})).out
        self.assertIn("note: smp_options.offload_optimizer_states has no effect on CPU ranks", said)
        losses = {name: [(line["loss"], line["grad_norm"]) for line in self.metrics(name)] for name in ("plain", "key")}
        self.assertEqual(losses["plain"], losses["key"])

    def test_refused_where_a_cap_makes_no_sense(self):
        for runtime in ({"memory_cap": "1GiB", "communicator": "threads"}, {"memory_cap": "much"}, {"memory_cap": 0},
                        {"memory_cap": "1GiB", "device": "cuda"}):
            config = self.memory_config("refused", {**KEEPING, "pipeline_parallel_degree": 2}, **runtime)
            self.expect(2, "train", config, says="/runtime/memory_cap")


if __name__ == "__main__":
    unittest.main()
