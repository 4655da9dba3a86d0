"""Exported programs that are split by tensor parallelism."""
import array
import json
import unittest

from harness import ROOT, ProgramTest, tiny

MODEL = ROOT / "tests/models/golden/program/heads.pt2"
WORDS, LENGTH, STEPS = 11, 6, 4


class ExportedSplit(ProgramTest):
    def setUp(self):
        super().setUp()
        tokens = array.array("H", (i * i % 7 + i % 5 for i in range(8 * LENGTH * STEPS)))
        (self.dir / "tokens.bin").write_bytes(tokens.tobytes())

    def exported(self, name="config.json", optimize="speed", dtype="float64", **sections):
        config = tiny(**sections)
        config["model"] = {"path": str(MODEL)}
        config["data"] = {"train": "tokens.bin", "format": "tokens", "sequence_length": LENGTH, "shuffle": False}
        if optimize:
            config["smp_options"]["optimize"] = optimize
        if dtype:
            config["runtime"]["dtype"] = dtype
        (self.dir / name).write_text(json.dumps(config))
        return name

    def losses(self, out, **sections):
        training = {"max_steps": STEPS, **sections.pop("training", {})}
        self.expect(0, "train", self.exported(output_dir=out, training=training, **sections))
        return [row["loss"] for row in self.metrics(out)]

    def assert_same(self, some, others):
        self.assertEqual(len(some), len(others))
        for one, other in zip(some, others):
            self.assertAlmostEqual(one, other, delta=1e-12 * abs(other))

    def test_losses_are_those_of_one_process(self):
        one = self.losses("one")
        self.assert_same(self.losses("threads", t=2, communicator="threads", training={"save_steps": 2}), one)
        self.assert_same(self.losses("mpi", t=3), one)
        # A checkpoint of two ranks is continued in one process.
        checkpoint = str(self.dir / "threads/checkpoint-2")
        self.assert_same(self.losses("resumed", training={"resume_from_checkpoint": checkpoint}), one[2:])

    def test_ranks_divide_rows_by_default(self):
        one = self.losses("one")
        self.assert_same(self.losses("rows", t=2, communicator="threads", optimize=None), one)
        self.assert_same(self.losses("stages", t=2, p=2, optimize=None), one)
        self.expect(0, "plan", self.exported(t=2, optimize=None), says=["memory (sequence parallel), 92.3 %"])

    def test_half_precision_is_split(self):
        half = {"training": {"bf16": True, "max_steps": STEPS}, "dtype": None}
        self.expect(0, "plan", self.exported(t=2, **half), says=["92.3 % of the products with weights are split"])
        one, two = self.losses("one", **half), self.losses("two", t=2, communicator="threads", **half)
        for a, b in zip(one, two):
            self.assertAlmostEqual(a, b, delta=0.01 * a)

    def test_the_plan_says_what_is_split_and_why_not(self):
        self.expect(0, "plan", self.exported(t=2), says=[
            "speed, 92.3 % of the products with weights are split", "3 heads over 2 ranks", "7 columns over 2 ranks",
            "softmax in blocks.0.gated needs all of them"])

    def test_messages_name_the_file_of_the_trained_program(self):
        self.losses("out")
        use = ["--set", "data.validation=tokens.bin"]
        config = self.exported(output_dir="out")
        self.assertIn("; the model in output_dir is used with --set model.path=out/model.pt2\n",
                      self.expect(0, "eval", config, *use).err)
        self.assertNotIn("the model in output_dir",
                         self.expect(0, "eval", config, *use, "--set", "model.path=out/model.pt2").err)
        names_file = "/model/path: out holds an exported program; name its file, for instance --set model.path=out/model.pt2"
        self.expect(2, "eval", config, *use, "--set", "model.path=out", says=names_file)
        self.expect(2, "generate", "out", "--prompt", "a", says=names_file)

    def test_units_stay_whole_by_name(self):
        gated = [{"pattern": "blocks.*.gated", "split": False}]
        self.expect(0, "plan", self.exported(t=2, smp_options={"tensor_parallel_layers": gated}),
                    says='asked for by "blocks.*.gated"')

    def test_what_cannot_be_split_is_refused_with_the_reason(self):
        mixed = [{"pattern": "blocks.0.gated.mixed", "split": True}]
        self.expect(2, "plan", self.exported(t=2, smp_options={"tensor_parallel_layers": mixed}),
                    says=["blocks.0.gated.mixed cannot be split over 2 ranks", "softmax in blocks.0.gated"])


if __name__ == "__main__":
    unittest.main()
