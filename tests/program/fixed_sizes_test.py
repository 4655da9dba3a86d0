"""Exported programs that take batches and samples of one size."""
import array
import json
import unittest

from harness import ROOT, ProgramTest, tiny

MODELS = ROOT / "tests/models/golden/program"
SAMPLES, LENGTH, STEPS = 4, 5, 5  # of fixed_heads.pt2; steps with a short last batch of an epoch


class FixedSizes(ProgramTest):
    def setUp(self):
        super().setUp()
        tokens = array.array("H", (i * i % 7 + i % 5 for i in range((3 * 2 * SAMPLES + 5) * LENGTH)))
        (self.dir / "tokens.bin").write_bytes(tokens.tobytes())

    def exported(self, model="fixed_heads", name="config.json", **sections):
        options = {"microbatches": 2, **sections.pop("smp_options", {})}
        config = tiny(smp_options=options, **sections)
        config["model"] = {"path": str(MODELS / f"{model}.pt2")}
        config["data"] = {"train": "tokens.bin", "format": "tokens", "sequence_length": LENGTH, "shuffle": False,
                          **sections.get("data", {})}
        config["runtime"]["dtype"] = "float64"
        (self.dir / name).write_text(json.dumps(config))
        return name

    def losses(self, out, model="fixed_heads", training=None, **sections):
        training = {"max_steps": STEPS, **(training or {})}
        self.expect(0, "train", self.exported(model, output_dir=out, training=training, **sections))
        return [row["loss"] for row in self.metrics(out) if "loss" in row]

    def assert_same(self, some, others):
        self.assertEqual(len(some), len(others))
        for one, other in zip(some, others):
            self.assertAlmostEqual(one, other, delta=1e-12 * abs(other))

    def test_losses_are_those_of_the_program_for_any_size(self):
        any_size = self.losses("any", model="heads")
        self.assertEqual(len(any_size), STEPS)
        self.assert_same(self.losses("one"), any_size)
        self.assert_same(self.losses("stages", p=2, communicator="threads"), any_size)
        self.assert_same(self.losses("tensor", t=2, communicator="threads"), any_size)
        self.assert_same(self.losses("replicas", communicator="threads",
                                     smp_options={"microbatches": 1}, mpi_options={"processes_per_host": 2}), any_size)

    def test_evaluations_fill_up_their_microbatches(self):
        data = {"data": {"validation": "tokens.bin"}, "training": {"eval_strategy": "epoch"}}
        evaluated = []
        for model in ("heads", "fixed_heads"):
            self.losses(model, model=model, **data)
            evaluated.append([row["eval_loss"] for row in self.metrics(model) if "eval_loss" in row])
        self.assertTrue(evaluated[0])
        self.assert_same(*evaluated)

    def test_evaluations_need_no_batch_size(self):
        losses = []
        for model in ("heads", "fixed_heads"):
            result = self.expect(0, "eval", self.exported(model, data={"validation": "tokens.bin"}))
            losses.append(json.loads(result.out.splitlines()[-1])["eval_loss"])
        self.assertAlmostEqual(*losses, delta=1e-12)

    def test_layouts_are_compared_with_one_process_of_smaller_microbatches(self):
        self.expect(0, "check", self.exported(p=2, communicator="threads"),
                    says="the layout gives the same numbers as one process")

    def test_other_sizes_are_refused_with_both_numbers(self):
        self.expect(2, "plan", self.exported(smp_options={"microbatches": 1}), says=[
            "/training/global_batch_size: makes microbatches of 8 samples", "takes exactly 4", "make the global batch 4"])
        self.expect(2, "train", self.exported(data={"sequence_length": 4}), says=[
            "/data/sequence_length: is 4", "takes samples of exactly 5 tokens; set it to 5", "{1: Dim.AUTO}"])
        self.expect(2, "plan", self.exported(data={"sequence_length": 16}), says=["got 16; set it to 5"])
        evaluating = {"data": {"validation": "tokens.bin"}, "training": {"per_device_eval_batch_size": 16}}
        self.expect(2, "plan", self.exported(**evaluating), says=[
            "/training/per_device_eval_batch_size: makes microbatches of 8 samples", "takes at most 4; set it to 8"])
        self.expect(2, "eval", self.exported(**evaluating), says="makes microbatches of 8 samples")
        for command in ("plan", "train"):
            self.expect(2, command, self.exported(data={"packing": "bfd"}), says=[
                '/data/packing: "bfd" puts several documents into a sample', "takes exactly 4", '"wrapped" or "none"'])


if __name__ == "__main__":
    unittest.main()
