"""`shardline study` and `shardline report`: runs of a study, their tables and pages, and the recipe of a published study."""
import csv
import html.parser
import json
import math
import os
import random
import re
import subprocess
import sys

from harness import ProgramTest, ROOT, signal, tiny, unittest


class Page(html.parser.HTMLParser):
    """Collects the texts of a page, and fails for tags that are not closed."""
    VOID = {"meta", "br", "wbr", "rect", "line", "circle", "path", "polyline"}

    def __init__(self, text):
        super().__init__()
        self.open, self.texts, self.continues = [], [], False
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            assert name not in ("src", "href", "onload"), (tag, name, value)
        assert tag not in ("script", "link", "iframe"), tag
        self.continues = tag == "wbr"  # the line may break there, but the text continues
        if tag not in self.VOID or tag in ("rect", "circle"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag
        self.continues = False

    def handle_data(self, data):
        if self.continues:
            self.texts[-1] += data
        else:
            self.texts.append(data)


class StudyTest(ProgramTest):
    def write(self, name="study.json", **study):
        (self.dir / name).write_text(json.dumps({"config": "config.json", "output_dir": "study", **study}))
        return name

    def records(self, folder="study"):
        lines = (self.dir / folder / "study.jsonl").read_text().splitlines()
        return {record["run"]: record for record in map(json.loads, lines)}

    def rows(self, folder="study"):
        with open(self.dir / folder / "study.csv", newline="") as file:
            return {row["run"]: row for row in csv.DictReader(file)}

    def page(self, path):
        return Page((self.dir / path).read_text())

    def sentiment(self, count=48):
        """Writes rows whose label follows from a word."""
        draw = random.Random(5)
        rows = [{"text": f"{word} film {i}", "label": label}
                for i in range(count) for label, word in [draw.choice([("good", "fine"), ("bad", "dull")])]]
        (self.dir / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        model = {"config": {"model_type": "distilbert", "vocab_size": 300, "dim": 16, "n_layers": 1, "n_heads": 2,
                            "hidden_dim": 16, "max_position_embeddings": 32}}
        config = {"task": "sequence-classification", "model": model,
                  "data": {"train": "rows.jsonl", "validation": "rows.jsonl", "test": "rows.jsonl", "tokenizer": "bytes",
                           "sequence_length": 32},
                  "training": {"learning_rate": 1e-2, "use_cpu": True, "do_eval": True, "do_predict": True},
                  "runtime": {"threads_per_rank": 1}, "output_dir": "unused"}
        (self.dir / "config.json").write_text(json.dumps(config))


class Runs(StudyTest):
    def test_a_study_of_sentiment(self):
        self.sentiment()
        study = self.write(rules={"samples": 38, "epochs": 1, "learning_rate_scaling": "sqrt", "reference_batch": 4},
                           matrix={"batch": [4, 16]}, repeats=2, metric="eval_f1", prices="prices.json")
        (self.dir / "prices.json").write_text('{"currency": "EUR", "hourly_prices": {"local": 3.6}}')
        said = self.expect(0, "study", study, says=["[4/4]", "eval_f1", "batch=16", "measured x 2", "+-"]).out
        records, rows = self.records(), self.rows()
        self.assertEqual(list(records), ["batch=4,seed=42", "batch=4,seed=43", "batch=16,seed=42", "batch=16,seed=43"])
        for record in records.values():
            batch = record["factors"]["batch"]
            self.assertEqual(record["steps"], math.ceil(38 / batch))
            self.assertEqual(record["nominal_steps"], 38 / batch)
            self.assertAlmostEqual(record["learning_rate"], 1e-2 * math.sqrt(batch / 4))
            self.assertAlmostEqual(record["cost"], 3.6 * record["job_seconds"] / 3600)
            directory = self.dir / "study/runs" / record["run"]
            resolved = json.loads((directory / "output/config.resolved.json").read_text())
            self.assertEqual(resolved["training"]["seed"], record["seed"])
            self.assertIn("saved the model", (directory / "log.txt").read_text())
            last = json.loads((directory / "output/metrics.jsonl").read_text().splitlines()[-1])
            self.assertEqual(record["metrics"]["eval_f1"], last["eval_f1"])
        pair = [records[f"batch=4,seed={seed}"]["metrics"]["eval_f1"] for seed in (42, 43)]
        row = rows["batch=4"]
        self.assertAlmostEqual(float(row["eval_f1"]), sum(pair) / 2)
        half = 12.706204736432095 * abs(pair[0] - pair[1]) / 2
        self.assertAlmostEqual(float(row["eval_f1_high"]) - float(row["eval_f1"]), half)
        self.assertIn(" 3 (nominal 2) ", said)
        texts = " ".join(self.page("study/study.html").texts)
        for words in ("Time over devices", "Pareto front", "eval_f1 over global batch", "least squares"):
            self.assertIn(words, texts)
        self.finished_runs_stay(study, records)
        self.reports(records)

    def finished_runs_stay(self, study, records):
        name = "batch=4,seed=43"
        lines = [json.dumps(record) for run, record in records.items() if run != name]
        (self.dir / "study/study.jsonl").write_text("\n".join(lines) + "\n")
        self.expect(0, "study", study, says=["3 of 4 runs had already finished", f"[4/4] {name}"])
        again = self.records()
        for run in records:
            self.assertEqual(run == name, again[run]["job_seconds"] != records[run]["job_seconds"], run)
        text = (self.dir / study).read_text()
        self.write(**{**json.loads(text), "rules": {"samples": 36, "epochs": 1}})
        self.expect(2, "study", study, says=["has finished, but with different settings", "data.max_train_samples=36"])

    def reports(self, records):
        self.expect(0, "report", "study/", says="wrote study/report.html")
        texts = " ".join(self.page("study/report.html").texts)
        for words in ("Curves of the runs", "Learning rate", "batch=16,seed=42", "Time over devices"):
            self.assertIn(words, texts)
        run = "study/runs/batch=4,seed=42/output"
        self.expect(0, "report", run, "--output", "one.html")
        page = self.page("one.html")
        texts = " ".join(page.texts)
        for words in ("Loss", "Learning rate", "Throughput", "Idle share", "Memory of tensors by rank", "rank 0 plan",
                      "Timeline", "step 2", "Predictions", "eval_f1", "label counts"):
            self.assertIn(words, texts)
        self.assertNotIn("Left out", texts)
        # Labels are counted in the first 38 rows.
        labels = [json.loads(line)["label"] for line in (self.dir / "rows.jsonl").read_text().splitlines()[:38]]
        shown = [f"{name} {labels.count(name)} ({100 * labels.count(name) / 38:.1f} %)" for name in ("bad", "good")]
        self.assertEqual(page.texts[page.texts.index("label counts") + 1], ", ".join(shown))
        self.assertRegex((self.dir / run / "../log.txt").read_text(), "label counts +" + re.escape(", ".join(shown)))
        # The worst predictions are those of the files.
        predictions = [json.loads(line) for line in (self.dir / run / "predictions.jsonl").read_text().splitlines()]
        rows = [json.loads(line) for line in (self.dir / "rows.jsonl").read_text().splitlines()]
        wrong = sum(p["label"] != r["label"] for p, r in zip(predictions, rows))
        self.assertIn(f"Of {len(rows)} predictions {wrong} differ", texts)
        badness = [1 + p["score"] if p["label"] != r["label"] else 1 - p["score"] for p, r in zip(predictions, rows)]
        worst = max(range(len(rows)), key=lambda i: badness[i])
        self.assertEqual(page.texts[page.texts.index("prediction") + 1:].count("wrong"), min(wrong, 20))
        self.assertIn(rows[worst]["text"], texts)
        # Without its data, the page says so.
        (self.dir / "rows.jsonl").rename(self.dir / "moved.jsonl")
        self.expect(0, "report", run, "--output", "one.html")
        self.assertIn("predictions: ", " ".join(self.page("one.html").texts))
        (self.dir / "moved.jsonl").rename(self.dir / "rows.jsonl")
        self.expect(0, "report", run, "study/runs/batch=16,seed=42/output", "--output", "two.html")
        self.assertIn("2 runs", " ".join(self.page("two.html").texts))
        self.expect(2, "report", ".", says="config.resolved.json")

    def test_what_does_not_fit_here_is_planned(self):
        self.config(training={"max_steps": -1})
        self.write(rules={"samples": 50, "epochs": 2, "global_batch": 16},
                   runs=[{"devices": 1}, {"devices": 16, "learning_rate": 0.5}], repeats=2)
        self.expect(2, "study", "study.json", says=["devices=16", "needs 16 devices on 1 nodes", "--cluster"])
        self.assertFalse((self.dir / "study").exists())
        cluster = str(ROOT / "configs/clusters/p3.16xlarge.json")
        self.expect(0, "study", "study.json", "--cluster", cluster, "--at-once", "1", says=["planned", "measured x 2"])
        records = self.records()
        self.assertEqual([r["kind"] for r in records.values()], ["measured", "measured", "planned"])
        planned = list(records.values())[-1]
        self.assertEqual((planned["machine"], planned["nodes"], planned["steps"]), ("p3.16xlarge", 2, 8))
        self.assertEqual(planned["layout"], "D=16 P=1 T=1")
        self.assertAlmostEqual(planned["job_seconds"], 8 * planned["step_seconds"])
        self.assertAlmostEqual(planned["cost"], 2 * 24.48 * planned["job_seconds"] / 3600)
        self.assertNotIn("cost", records["devices=1,seed=42"])

    def test_runs_that_fail_are_named_and_tried_again(self):
        self.config()
        (self.dir / "broken.txt").write_bytes(b"\0\0")
        self.write(runs=[{"name": "good"}, {"name": "broken", "data.train": "broken.txt"}])
        self.expect(1, "study", "study.json")
        records = self.records()
        self.assertEqual((records["good"]["kind"], records["broken"]["kind"]), ("measured", "failed"))
        self.assertIn("NUL", records["broken"]["error"])
        self.assertIn("log.txt", records["broken"]["error"])
        self.assertIn("broken failed: ", " ".join(self.page("study/study.html").texts))
        (self.dir / "broken.txt").write_bytes((self.dir / "text.txt").read_bytes())
        self.expect(0, "study", "study.json", says=["1 of 2 runs had already finished", "[2/2] broken: measured"])

    def test_a_run_that_diverges_has_failed(self):
        self.config(training={"max_steps": 3, "do_eval": True}, data={"validation": "text.txt"})
        study = self.write(matrix={"learning_rate": [1e-3, 1e30]}, metric="eval_loss")
        for _ in range(2):
            self.assertIn("the run has diverged", self.expect(1, "study", study).out)
            self.assertEqual([r["kind"] for r in self.records().values()], ["measured", "failed"])
            self.assertNotIn("nan%", (self.dir / "study/study.html").read_text())

    def test_a_study_that_grows_keeps_its_runs(self):
        self.config()
        self.expect(0, "study", self.write(matrix={"learning_rate": [1e-3, 2e-3]}))
        before = self.records()
        self.assertEqual(list(before), ["learning_rate=0.001", "learning_rate=0.002"])
        larger = dict(matrix={"learning_rate": [1e-3], "training.weight_decay": [0.0, 0.5]}, repeats=2)
        self.expect(0, "study", self.write(**larger), says="1 of 4 runs had already finished")
        records = self.records()
        self.assertEqual(records["learning_rate=0.001"]["job_seconds"], before["learning_rate=0.001"]["job_seconds"])
        self.assertEqual(records["learning_rate=0.001"]["group"], "training.weight_decay=0.0")
        self.assertEqual(len(records), 4)
        # Runs that the study no longer contains stay, too.
        self.expect(0, "study", self.write(matrix={"learning_rate": [1e-3, 2e-3]}),
                    says="2 of 2 runs had already finished")
        self.assertEqual(self.records(), before)
        self.expect(0, "study", self.write(**larger), says="4 of 4 runs had already finished")

    def test_a_run_that_was_interrupted_starts_from_the_beginning(self):
        self.config(training={"max_steps": 1000000, "save_steps": 5, "resume_from_checkpoint": "auto"})
        self.write(runs=[{}])
        process = self.start("study", "study.json")
        self.wait_for_steps(folder="study/runs/run/output", count=7)
        process.send_signal(signal.SIGKILL)
        self.finish(process)
        self.assert_all_gone()
        self.config(training={"max_steps": 12, "save_steps": 5, "resume_from_checkpoint": "auto"})
        self.expect(0, "study", "study.json")
        self.assertNotIn("continues", (self.dir / "study/runs/run/log.txt").read_text())
        steps = [json.loads(line) for line in (self.dir / "study/runs/run/output/metrics.jsonl").open()]
        self.assertEqual([s["step"] for s in steps if "loss" in s][:1], [1])

    def test_a_run_that_takes_too_long_ends(self):
        self.config(training={"max_steps": 1000000})
        self.write(runs=[{}], timeout_seconds=2)
        self.expect(1, "study", "study.json", says=())
        self.assertIn("took longer than 2 s", self.records()["run"]["error"])
        self.assert_all_gone()

    def test_no_run_outlives_the_study(self):
        self.config(training={"max_steps": 1000000})
        self.write(runs=[{}])
        process = self.start("study", "study.json")
        self.wait_for_steps(folder="study/runs/run/output")
        process.send_signal(signal.SIGINT)
        result = self.finish(process)
        self.assertEqual(result.code, 3, str(result))
        self.assertIn("run the same command again", result.err)
        self.assert_all_gone()

    def test_mistakes_are_found_before_anything_runs(self):
        self.config()
        for study, words in [
            (dict(runs=[{"device": 1}]), ["/device", "devices"]),
            (dict(runs=[{"training.max_step": 1}]), ["study.json, run run", "max_step", "max_steps"]),
            (dict(runs=[{}], metric="eval_f1"), ["eval_f1", "evaluates nothing"]),
            (dict(runs=[{"training.do_eval": True, "data.validation": "text.txt"}], metric="eval_f1"),
             ["eval_f1", "its evaluations have eval_loss, eval_perplexity"]),
            (dict(runs=[{}], config="none.json"), ["none.json"]),
            (dict(runs=[{}], prices="none.json"), ["none.json"]),
            (dict(runs=[{"epochs": 1, "cluster": str(ROOT / "configs/clusters/p3.2xlarge.json")}]), ["samples"]),
        ]:
            with self.subTest(study):
                self.expect(2, "study", self.write(**study), says=words)
                self.assertFalse((self.dir / "study/runs").exists())


class Recipe(StudyTest):
    def setUp(self):
        super().setUp()
        os.symlink(ROOT / "configs", self.dir / "configs")

    def test_the_published_design_is_planned(self):
        self.expect(0, "study", "configs/studies/distilbert-polarity-p3.json", says=["84375", "2637"])
        records = self.records("runs/distilbert-polarity-p3")
        by_devices = {r["devices"]: r for r in records.values() if "batch" not in r["run"] and "rate" not in r["run"]}
        self.assertEqual([round(by_devices[d]["nominal_steps"]) for d in (1, 4, 8, 16, 32)],
                         [84375, 21094, 10547, 5273, 2637])
        self.assertEqual([by_devices[d]["steps"] for d in (1, 4, 8, 16, 32)], [84375, 21096, 10548, 5274, 2637])
        self.assertEqual({r["kind"] for r in records.values()}, {"planned"})
        self.assertEqual({r["parameters"] for r in records.values()}, {66_955_010})
        self.assertEqual([by_devices[d]["nodes"] for d in (1, 4, 8, 16, 32)], [1, 1, 1, 2, 4])
        scaled = [r for r in records.values() if "rate" in r["run"]]
        self.assertEqual([f"{r['learning_rate']:.2e}" for r in scaled], ["2.83e-04"] * 2)
        self.assertEqual([r["global_batch"] for r in scaled], [32 * 32] * 2)
        small = records["1-device,-batch-16"]
        self.assertEqual((small["global_batch"], small["steps"], small["learning_rate"]), (16, 168750, 5e-5))
        prices = {1: 3.825, 4: 14.688, 8: 28.152, 16: 2 * 28.152, 32: 4 * 28.152}
        for devices, record in by_devices.items():
            self.assertAlmostEqual(record["cost"], prices[devices] * record["job_seconds"] / 3600)

    def test_published_times_stand_beside_the_plan(self):
        study = json.loads((ROOT / "configs/studies/distilbert-polarity-p3.json").read_text())
        study["runs"] = [dict(study["runs"][1], published={"minutes": 100, "cost": 24.48}),
                         dict(study["runs"][2], published={"minutes": 100, "cost": 64.92})]
        study["source"] = "numbers of this test"
        (self.dir / "s.json").write_text(json.dumps(study))
        said = self.expect(0, "study", "s.json", says=["numbers of this test", "24.36 to 24.60"]).out
        self.assertEqual(said.count("misprint"), 1)  # 100 minutes of p3.16xlarge cost 46.92
        record = self.records("runs/distilbert-polarity-p3")["4-devices"]
        ratio = f"{record['job_seconds'] / 6000:.2f}"
        self.assertRegex(said, rf"4-devices +p3.8xlarge +1 +[0-9.]+ +100 +{re.escape(ratio)} ")

    def test_the_recipe_of_the_quickstart(self):
        study = json.loads((ROOT / "configs/studies/quickstart-devices.json").read_text())
        study["rules"]["steps"] = 2
        study["repeats"] = 1
        (self.dir / "s.json").write_text(json.dumps(study))
        self.expect(0, "study", "s.json", says=["[4/4]", "speed-up", "eval_loss"])

    def test_the_recipe_of_sentiment(self):
        """A part of it: docs/study.md has all of it, which takes minutes."""
        subprocess.run([sys.executable, ROOT / "configs/studies/make_reviews.py", self.dir / "reviews"], check=True)
        study = json.loads((ROOT / "configs/studies/sentiment-devices.json").read_text())
        study["rules"].update(samples=64, epochs=1)
        study["repeats"] = 1
        (self.dir / "s.json").write_text(json.dumps(study))
        self.expect(0, "study", "s.json", says=["[4/4]", "speed-up", "eval_f1"])
        records = self.records("runs/sentiment-devices")
        self.assertEqual([(r["devices"], r["global_batch"], r["steps"]) for r in records.values()],
                         [(1, 16, 4), (1, 16, 4), (2, 32, 2), (2, 32, 2)])
        words = (self.dir / "reviews/vocab.txt").read_text().split()
        self.assertEqual(study["config"]["model"]["config"]["vocab_size"], len(words))


if __name__ == "__main__":
    unittest.main()
