"""A learning rate that falls when evaluations stop improving."""
from harness import ProgramTest, unittest

# Only the first evaluation is a gain: no later one is better by 1000.
PLATEAU = {"max_steps": 14, "learning_rate": 1e-3, "eval_strategy": "steps", "eval_steps": 2, "save_steps": 4,
           "lr_scheduler_type": "reduce_lr_on_plateau",
           "lr_scheduler_kwargs": {"patience": 1, "factor": 0.5, "threshold": 1000, "threshold_mode": "abs",
                                   "cooldown": 1}}
# Evaluations without improvement: after steps 4 and 6; after 8, in the cooldown; after 10 and 12.
RATES = [1e-3] * 6 + [5e-4] * 6 + [2.5e-4] * 2


class Plateau(ProgramTest):
    def train(self, folder="out", code=0, layout=None, data=None, says=(), **training):
        data = {"validation": "text.txt", "max_eval_samples": 4, **(data or {})}
        return self.expect(code, "train", self.config(data=data, training={**PLATEAU, **training}, output_dir=folder,
                                                      **(layout or {})), says=says)

    def rates(self, folder="out"):
        return [line["learning_rate"] for line in self.metrics(folder) if "loss" in line]

    def assert_rates(self, folder, wanted):
        rates = self.rates(folder)
        self.assertEqual(len(rates), len(wanted))
        for rate, expected in zip(rates, wanted):
            self.assertAlmostEqual(rate, expected, delta=1e-12)

    def test_resume(self):
        """The rate and the counts survive a resume on another layout, and the ranks agree on them."""
        result = self.train(eval_on_start=True)  # transformers' scheduler does not see this evaluation
        self.assertIn("eval_loss has stopped improving: learning rate 0.0005", result.out)
        self.assert_rates("out", RATES)
        self.train("ranks", layout={"p": 2, "communicator": "threads"})
        self.assert_rates("ranks", RATES)
        # Step 4 is amid evaluations without a gain, step 8 in the cooldown.
        self.train("from4", resume_from_checkpoint="out/checkpoint-4", layout={"t": 2, "communicator": "threads"})
        self.assert_rates("from4", RATES[4:])
        self.train("from8", resume_from_checkpoint="ranks/checkpoint-8")
        self.assert_rates("from8", RATES[8:])
        losses = [[line["loss"] for line in self.metrics(folder) if "loss" in line] for folder in ("out", "from8")]
        for whole, resumed in zip(losses[0][8:], losses[1]):
            self.assertAlmostEqual(whole, resumed, delta=1e-4)
        # More steps need no permission, because the rate does not depend on them; other evaluations do.
        self.train("longer", resume_from_checkpoint="out/checkpoint-8", max_steps=16)
        self.assert_rates("longer", RATES[8:] + [2.5e-4] * 2)
        self.train("rarer", code=2, resume_from_checkpoint="out/checkpoint-8", eval_steps=4,
                   says="/training/eval_steps: 2.0 in the checkpoint, 4.0 now")
        (self.dir / "other.txt").write_text("other words " * 99)
        self.train("unlike", code=2, resume_from_checkpoint="out/checkpoint-8", data={"validation": "other.txt"},
                   says="/training/metric_for_best_model/data")
        # Another metric cannot be compared with those before, so its first evaluation is a gain again.
        self.train("other", resume_from_checkpoint="out/checkpoint-8", metric_for_best_model="perplexity",
                   resume_with_changes=True)
        self.assert_rates("other", [5e-4] * 6)
        # A new peak counts, too.
        self.train("peak", resume_from_checkpoint="out/checkpoint-8", learning_rate=2e-3, resume_with_changes=True)
        self.assert_rates("peak", [rate * 2 for rate in RATES[8:]])

    def test_longer_run(self):
        """A run that continues a shorter one has the same rates as an uninterrupted run, which has no evaluation after
        step 7."""
        self.train(max_steps=7)
        self.train("longer", resume_from_checkpoint="out/checkpoint-7")
        self.assert_rates("longer", RATES[7:])

    def test_mistakes(self):
        self.train(code=2, eval_strategy="no", says="eval_strategy is \"no\"")
        self.train(code=2, data={"validation": []}, says="/training/eval_strategy")
        for more in ({}, {"do_eval": True}):  # which evaluates after the last step
            self.train(code=2, eval_delay=20, **more, says="the run of 14 steps has none that the rate could follow")


if __name__ == "__main__":
    unittest.main()
