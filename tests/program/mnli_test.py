"""The recipe configs/bert-mnli-p4.json on four ranks, with data in the format of GLUE's archive and a smaller model."""
import json

from harness import ROOT, ProgramTest, unittest
from mnli_files import WORDS, write_mnli

SMALL = {"vocab_size": len(WORDS), "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2,
         "max_position_embeddings": 32, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0,
         "initializer_range": 0.1}


class Mnli(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.dir / "models/bert-base-uncased").mkdir(parents=True)
        (self.dir / "models/bert-base-uncased/vocab.txt").write_text("\n".join(WORDS) + "\n")
        self.rows = write_mnli(self.dir / "glue/MNLI")
        recipe = json.loads((ROOT / "configs/bert-mnli-p4.json").read_text())
        recipe["model"]["config"].update(SMALL)
        recipe["data"]["sequence_length"] = 24
        recipe["training"].update(num_train_epochs=12, learning_rate=3e-3)
        recipe["runtime"] = {"device": "cpu", "threads_per_rank": 1}
        (self.dir / "mnli.json").write_text(json.dumps(recipe))

    def predictions(self, folder="runs/bert-mnli-p4"):
        return [json.loads(line) for line in (self.dir / folder / "predictions.jsonl").read_text().splitlines()]

    def share_right(self, part):
        predictions = self.predictions()
        self.assertEqual(len(predictions), len(self.rows[part]))
        return sum(p["label"] == row[2] for p, row in zip(predictions, self.rows[part])) / len(predictions)

    def test_recipe(self):
        """Trains, evaluates both sets and predicts; evaluation and prediction use the same model."""
        result = self.expect(0, "train", "mnli.json")
        self.assertIn("1 x 4 x 1 (D x P x T), placement TPD", result.out)
        self.assertIn("interleaved (1F1B)", result.out)
        evaluations = [line for line in self.metrics("runs/bert-mnli-p4") if "eval_accuracy" in line]
        self.assertGreaterEqual(len(evaluations), 12)
        last = evaluations[-1]
        self.assertGreater(last["eval_accuracy"], 0.8)
        self.assertGreater(last["eval_accuracy_mm"], 0.8)
        saved = ["--set", "model.path=runs/bert-mnli-p4"]
        result = self.expect(0, "eval", "mnli.json", *saved)
        again = json.loads(result.out.splitlines()[-1])
        for name in ("eval_accuracy", "eval_accuracy_mm"):
            self.assertEqual(again[name], last[name], result.out)
        self.assertEqual(again["eval_samples"], 41)
        for part, options in {"test_matched": [],
                              "test_mismatched": ["--set", "data.test=glue/MNLI/test_mismatched.tsv"],
                              "dev_matched": ["--set", "data.test=glue/MNLI/dev_matched.tsv"],
                              "dev_mismatched": ["--set", "data.test=glue/MNLI/dev_mismatched.tsv"]}.items():
            with self.subTest(part):
                self.expect(0, "predict", "mnli.json", *saved, *options,
                            says=f"wrote {len(self.rows[part])} predictions")
                right = self.share_right(part)
                if part.startswith("dev"):
                    name = "eval_accuracy" if part == "dev_matched" else "eval_accuracy_mm"
                    self.assertAlmostEqual(right, last[name], 9)
                else:
                    self.assertGreater(right, 0.7)


if __name__ == "__main__":
    unittest.main()
