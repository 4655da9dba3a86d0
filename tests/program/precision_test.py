"""Half precision from a config to metrics, the saved model and its evaluation."""
import json
import struct
import unittest

import harness

HALF = {"bf16": {"bf16": True}, "fp16": {"fp16": True, "dynamic_loss_args": {"init_scale": 4096, "scale_window": 2}}}
STEPS = 6


def dtypes(path):
    """The number types in a safetensors file."""
    data = path.read_bytes()
    header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
    return {entry["dtype"] for name, entry in header.items() if name != "__metadata__"}


class PrecisionTest(harness.ProgramTest):
    def losses(self, folder, **sections):
        training = {"max_steps": STEPS, **sections.pop("training", {})}
        self.train(training=training, output_dir=folder, **sections)
        return [line["loss"] for line in self.metrics(folder)]

    def test_losses_are_those_of_fp32_to_rounding(self):
        exact = self.losses("fp32")
        for name, keys in HALF.items():
            one = self.losses(name, training=keys)
            four = self.losses(f"{name}-4", training=keys, p=2, t=2, smp_options={"pipeline": "zb_h1"})
            self.assertNotEqual(one, exact)
            for losses in (one, four):
                self.assertLess(max(abs(a - b) for a, b in zip(exact, losses)), 0.02)
            self.assertEqual(dtypes(self.dir / name / "model.safetensors"), {"F32"})

    def test_fp16_writes_its_loss_scale(self):
        result = self.train(training={"max_steps": STEPS, **HALF["fp16"]}, p=2)
        self.assertIn("fp16 with fp32 masters, loss scale from 4096", result.out)
        lines = self.metrics()
        self.assertEqual([line["loss_scale"] for line in lines], [4096, 4096, 8192, 8192, 16384, 16384])
        self.assertEqual([line["overflow"] for line in lines], [False] * STEPS)
        self.losses("bf16", training=HALF["bf16"])
        self.assertNotIn("loss_scale", self.metrics("bf16")[0])

    def test_a_scale_that_is_too_large_is_told_and_found(self):
        result = self.train(training={"max_steps": STEPS, "fp16": True, "dynamic_loss_args": {"init_scale": 2.0**100}})
        self.assertIn("step 1 is skipped: gradients overflowed with loss scale 1.26765e+30", result.out)
        self.assertTrue(all(line["overflow"] for line in self.metrics()))
        self.assertEqual(self.metrics()[-1]["loss_scale"], 2.0**95)

    def test_plan_and_evaluation(self):
        plans = [self.expect(0, "plan", self.config(training=keys), "--json", "--cluster", "local").out
                 for keys in ({}, HALF["bf16"])]
        memory = [json.loads(plan)["ranks"][0]["memory_bytes"] for plan in plans]
        self.assertEqual(memory[1]["weights"], memory[0]["weights"] / 2)
        self.assertEqual(memory[1]["gradients"], memory[0]["gradients"])
        self.assertEqual(memory[1]["optimizer"], 1.5 * memory[0]["optimizer"])  # and the masters
        self.assertLess(memory[1]["activations"], 0.6 * memory[0]["activations"])
        data = {"validation": "text.txt"}
        full = {"bf16_full_eval": True}, {"fp16_full_eval": True}, {"fp16": True, "bf16_full_eval": True}
        losses = [json.loads(self.expect(0, "eval", self.config(data=data, training=keys, model={"init": "random"})).out.splitlines()[-1])
                  for keys in ({}, HALF["bf16"], HALF["fp16"], *full)]
        self.assertEqual(losses[3:], [losses[1], losses[2], losses[1]])
        self.assertNotEqual(losses[0]["eval_loss"], losses[1]["eval_loss"])
        for loss in losses[1:]:
            self.assertAlmostEqual(loss["eval_loss"], losses[0]["eval_loss"], delta=0.01)


if __name__ == "__main__":
    unittest.main()
