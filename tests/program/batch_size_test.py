"""Batch sizes that fit the memory (training.auto_find_batch_size)."""
import json
import re
import resource

from harness import ProgramTest, unittest


class BatchSize(ProgramTest):
    def needed(self, config, *changes):
        """Planned bytes of the rank that needs the most."""
        settings = [word for change in changes for word in ("--set", change)]
        result = self.expect(2, "train", config, *settings, "--set", "runtime.memory_cap=1", "--set",
                             "training.auto_find_batch_size=false", says="/runtime/memory_cap")
        return int(re.search(r"raise it to more than (\d+)", result.err)[1])

    def between(self, config, fits, not_fits):
        """Returns a limit that the plan meets with one change and exceeds with another one; the run needs slightly more
        than the plan counts."""
        small, large = self.needed(config, fits), self.needed(config, not_fits)
        self.assertLess(small, large)
        return (small + large) // 2

    def sizes(self, folder="out"):
        resolved = json.loads((self.dir / folder / "config.resolved.json").read_text())
        return resolved["training"]["per_device_train_batch_size"], resolved["derived"]["sizes"]

    def test_global_batch_stays(self):
        """Accumulation makes up for smaller microbatches: the same losses, on two stages, too."""
        for name, layout in {"one": {}, "ranks": {"p": 2}}.items():
            with self.subTest(name):
                training = {"global_batch_size": 16, "auto_find_batch_size": True}
                config = self.config(training=training, output_dir=name + "/whole", **layout)
                self.assertNotIn("auto_find_batch_size", self.expect(0, "train", config).err)
                cap = self.between(config, *(f"training.gradient_accumulation_steps={steps}" for steps in (4, 2)))
                config = self.config(training=training, output_dir=name + "/fits", runtime={"memory_cap": cap},
                                     **layout)
                result = self.expect(0, "train", config)
                self.assertIn("accumulation steps 1 -> 4; the global batch stays 16", result.err)
                self.assertEqual(self.sizes(name + "/fits")[1]["accumulation_steps"], 4)
                for got, expected in zip(self.metrics(name + "/fits"), self.metrics(name + "/whole"), strict=True):
                    self.assertAlmostEqual(got["loss"], expected["loss"], 5)
                result = self.expect(0, "plan", config, "--json")
                self.assertEqual(json.loads(result.out)["sizes"]["accumulation_steps"], 4)

    def test_global_batch_shrinks(self):
        """Without global_batch_size, the batch becomes smaller, and the run reports this."""
        training = {"global_batch_size": None, "per_device_train_batch_size": 12, "auto_find_batch_size": True}
        config = self.config(training=training)
        cap = self.between(config, *(f"training.per_device_train_batch_size={samples}" for samples in (3, 6)))
        config = self.config(training=training, runtime={"memory_cap": cap})
        result = self.expect(0, "train", config)
        self.assertIn("per_device_train_batch_size 12 -> 3", result.err)
        self.assertIn("the global batch is 3 instead of 12", result.err)
        self.assertEqual(self.sizes()[0], 3)
        self.assertEqual(self.sizes()[1]["global_batch"], 3)

    def test_continues_with_the_batch_of_the_checkpoint(self):
        """A run with a halved batch continues with it, even if a larger one would fit."""
        training = {"global_batch_size": None, "per_device_train_batch_size": 12, "auto_find_batch_size": True,
                    "max_steps": 4, "save_steps": 2}
        config = self.config(training=training)
        cap = self.between(config, *(f"training.per_device_train_batch_size={samples}" for samples in (3, 6)))
        self.expect(0, "train", self.config(training=training, runtime={"memory_cap": cap}, output_dir="small"))
        again = self.config(training={**training, "resume_from_checkpoint": "small/checkpoint-2"}, output_dir="again")
        result = self.expect(0, "train", again)
        self.assertIn("per_device_train_batch_size 12 -> 3", result.err)
        self.assertEqual(self.sizes("again")[1]["global_batch"], 3)
        self.assertEqual([line["loss"] for line in self.metrics("again")],
                         [line["loss"] for line in self.metrics("small")][2:])

    def test_nothing_fits(self):
        config = self.config(training={"auto_find_batch_size": True}, runtime={"memory_cap": 10000})
        self.expect(2, "train", config, says=["/training/auto_find_batch_size", "no batch size fits"])

    def test_retry(self):
        """The plan fits, but the system provides less memory: the run starts again with half of the batch."""
        wide = {"config": {"model_type": "gpt2", "vocab_size": 256, "n_positions": 32, "n_embd": 64, "n_layer": 2,
                           "n_head": 2}}
        whole = {"global_batch_size": 4096}
        smaller = {"global_batch_size": None, "per_device_train_batch_size": 4096}
        (self.dir / "text.txt").write_text("the same line again and again\n" * 4000)
        for name, layout, sizes in (("one", {}, whole), ("ranks", {"p": 2}, whole), ("smaller", {}, smaller)):
            with self.subTest(name):
                training = {**sizes, "max_steps": 1, "auto_find_batch_size": True}
                config = self.config(model=wide, training=training, output_dir=name, **layout)
                # Between the needs of the whole batch and of half of it: in addition to its tensors, a rank takes 75 to
                # 110 MiB.
                needed = self.needed(config)
                self.assertGreater(needed, 300 * 2**20)
                limit = 100 * 2**20 + needed * 3 // 4

                def limit_memory():
                    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
                result = self.expect(0, "train", config, preexec_fn=limit_memory)
                self.assertIn("out of memory on rank", result.err)
                global_batch = "is 2048 instead of 4096" if sizes is smaller else "stays 4096"
                self.assertRegex(result.err, f"starting again with .*; the global batch {global_batch}")
                self.assertEqual(self.sizes(name)[1]["accumulation_steps"], 1 if sizes is smaller else 2)


if __name__ == "__main__":
    unittest.main()
