"""Pages of `shardline report` and `shardline study` in a headless Chromium, light and dark, phone and desktop.

SHARDLINE_SCREENSHOTS=FOLDER writes pictures of them there.
"""
import json
import os
import pathlib
import random
import sys

from browser import Browser, find_browser
from harness import NOT_RUN, ROOT, ProgramTest, unittest

CHECK = (pathlib.Path(__file__).parent / "page_check.js").read_text()
PHONE, DESK = 390, 1280


class PagesTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser(find_browser())
        cls.addClassCleanup(cls.browser.close)

    def problems(self, path, width, dark):
        self.browser.open(self.dir / path, width, dark)
        found = self.browser.run(CHECK)
        if (laid_out := self.browser.run("document.documentElement.clientWidth")) != width:
            found.append(f"width: the page is laid out for {laid_out}, not {width}")
        found += [f"request: {address}" for address in self.browser.requests if address != (self.dir / path).as_uri()]
        return found + [f"console: {text}" for text in self.browser.errors]

    def check(self, path, figures):
        """The page has no problem, and figures with these titles."""
        for width in (PHONE, DESK):
            for dark in (False, True):
                with self.subTest(page=str(path), width=width, dark=dark):
                    self.assertEqual(self.problems(path, width, dark), [])
                    titles = self.browser.run("[...document.querySelectorAll('figure > svg')].map("
                                              "(svg) => svg.getAttribute('aria-label'))")
                    self.assertEqual([title for title in figures if title not in titles], [], titles)
                self.keep_picture(f"{pathlib.Path(path).stem}-{width}-{'dark' if dark else 'light'}.png")

    def keep_picture(self, name):
        if folder := os.environ.get("SHARDLINE_SCREENSHOTS"):
            pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
            (pathlib.Path(folder) / name).write_bytes(self.browser.picture())


FAULTY = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">%s
<style>body { margin: 0; background: white; color: black; } figure { margin: 0; }
@media (prefers-color-scheme: dark) { body { background: #111; color: #eee; } }</style></head><body><p>text</p>%s</body></html>"""
VIEWPORT = '<meta name="viewport" content="width=device-width, initial-scale=1">'


def figure(inside):
    return f'<figure><svg viewBox="0 0 390 100" font-size="12" aria-label="one" style="display: block">{inside}</svg></figure>'


class Faults(PagesTest):
    """Each rule finds what breaks it, and nothing else."""
    SQUARE = '<rect x="10" y="10" width="20" height="20" fill="#06c"/>'

    def found(self, body, head=VIEWPORT, dark=False):
        (self.dir / "faulty.html").write_text(FAULTY % (head, body))
        return sorted({problem.split(":")[0] for problem in self.problems("faulty.html", PHONE, dark)})

    def test_a_good_page_has_none(self):
        for dark in (False, True):
            self.assertEqual(self.found(figure(self.SQUARE) + '<div class="scroll" style="overflow-x: auto">'
                                        '<div style="width: 800px">wide</div></div>', dark=dark), [])

    def test_overflow(self):
        self.assertEqual(self.found('<div style="width: 800px">wide</div>'), ["overflow"])
        self.assertEqual(self.found('<div style="overflow: hidden"><p style="width: 800px">wide</p></div>'), ["overflow"])

    def test_contrast(self):
        self.assertEqual(self.found('<p style="color: #888">grey</p>'), ["contrast"])
        self.assertEqual(self.found('<p style="color: #666">grey</p>'), [])
        self.assertEqual(self.found('<p style="color: #666">grey</p>', dark=True), ["contrast"])
        text = '<text x="12" y="25" fill="black">12</text>'
        self.assertEqual(self.found(figure(text + '<rect x="200" y="10" width="20" height="20" fill="#039"/>')), [])
        self.assertEqual(self.found(figure('<rect x="5" y="5" width="40" height="40" fill="#039"/>' + text)), ["contrast"])
        line = '<polyline fill="none" stroke-width="2" style="stroke: %s" points="10,10 200,90"/>'
        self.assertEqual(self.found(figure(line % "#ddd")), ["contrast"])
        self.assertEqual(self.found(figure(line % "#666")), [])

    def test_fonts(self):
        self.assertEqual(self.found('<p style="font-size: 8px">small</p>'), ["font"])
        self.assertEqual(self.found(figure(self.SQUARE + '<text x="50" y="50" font-size="8">small</text>')), ["font"])

    def test_figures(self):
        self.assertEqual(self.found(figure('<text x="50" y="50">only a title</text>')), ["empty"])
        self.assertEqual(self.found(figure('<polyline fill="none" stroke="#06c" points=""/>')), ["empty"])
        self.assertEqual(self.found(figure(self.SQUARE + '<text x="350" y="50">it does not end here</text>')),
                         ["cut", "overflow"])
        self.assertEqual(self.found(figure('<circle cx="50" cy="120" r="5" fill="#06c"/>')), ["cut"])
        two = '<text x="50" y="50">one label</text><text x="%d" y="55">another</text>'
        self.assertEqual(self.found(figure(self.SQUARE + two % 80)), ["overlap"])
        self.assertEqual(self.found(figure(self.SQUARE + two % 180)), [])

    def test_what_the_page_loads_and_reports(self):
        self.assertEqual(self.found("<script>console.error('no')</script>"), ["console"])
        self.assertEqual(self.found("<script>undefined_function()</script>"), ["console"])
        self.assertEqual(self.found('<img src="missing.png">'), ["console", "request"])

    def test_a_page_that_does_not_follow_the_screen(self):
        self.assertEqual(self.found(figure(self.SQUARE), head=""), ["width"])


class Pages(PagesTest):
    def setUp(self):
        super().setUp()
        os.symlink(ROOT / "configs", self.dir / "configs")
        draw = random.Random(7)
        words = {"positive": ["fine", "good", "moving", "clever"], "negative": ["dull", "bad", "flat", "clumsy"]}
        rows = []
        for number in range(160):
            label = draw.choice(sorted(words))
            rows.append({"text": f"film {number}: a plot that is {draw.choice(words[label])}, and {draw.choice(words[label])} "
                                 f"actors <in> & around it", "label": label})
        (self.dir / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        model = {"config": {"model_type": "distilbert", "vocab_size": 300, "dim": 16, "n_layers": 2, "n_heads": 2,
                            "hidden_dim": 32, "max_position_embeddings": 96}}
        (self.dir / "config.json").write_text(json.dumps({
            "task": "sequence-classification", "model": model,
            "data": {"train": "rows.jsonl", "validation": "rows.jsonl", "test": "rows.jsonl", "tokenizer": "bytes",
                     "sequence_length": 96},
            "training": {"learning_rate": 1e-2, "use_cpu": True, "eval_strategy": "steps", "eval_steps": 4,
                         "max_steps": 12, "per_device_train_batch_size": 8, "do_predict": True, "save_strategy": "no"},
            "runtime": {"threads_per_rank": 1}, "output_dir": "out"}))

    def test_a_run(self):
        self.expect(0, "train", "config.json", "--set", "smp_options.pipeline_parallel_degree=2", "--set",
                    "smp_options.microbatches=4")
        self.expect(0, "report", "out", "--output", "run.html")
        self.check("run.html", ["Loss", "eval_f1", "Learning rate", "Gradient norm", "Throughput",
                                "Idle share of the ranks", "Memory of tensors by rank"])

    def test_several_runs(self):
        folders = []
        for rate in ("0.001", "0.01", "0.03"):
            folders.append(f"runs/with-a-rather-long-name-and-learning-rate-{rate}")
            self.expect(0, "train", "config.json", "--set", f"training.learning_rate={rate}", "--set",
                        f"output_dir={folders[-1]}")
        self.expect(0, "report", *folders, "--output", "comparison.html")
        self.check("comparison.html", ["Loss", "eval_f1", "Learning rate", "Gradient norm", "Throughput"])

    def test_a_study(self):
        (self.dir / "prices.json").write_text('{"currency": "EUR", "hourly_prices": {"local": 3.6}}')
        (self.dir / "study.json").write_text(json.dumps({
            "config": "config.json", "rules": {"samples": 64, "epochs": 1, "training.max_steps": -1},
            "matrix": {"devices": [1, 2], "batch": [4, 8], "learning_rate": [1e-3, 1e-2]}, "repeats": 2,
            "metric": "eval_f1", "prices": "prices.json", "output_dir": "study"}))
        self.expect(0, "study", "study.json")
        figures = ["Time over devices", "Throughput over devices", "Cost over devices", "eval_f1 over global batch",
                   "Time against cost", "Correlation of the design"]
        self.check("study/study.html", figures)
        self.expect(0, "report", "study", "--output", "study-report.html")
        self.check("study-report.html", [*figures, "Loss", "eval_f1"])

    def test_a_planned_study_with_published_results(self):
        study = json.loads((ROOT / "configs/studies/distilbert-polarity-p3.json").read_text())
        for run in study["runs"]:
            run["published"] = {"minutes": 100, "cost": 24.48, "metric": 0.9}
        (self.dir / "study.json").write_text(json.dumps({**study, "source": "Numbers of this test.", "output_dir": "planned"}))
        self.expect(0, "study", "study.json")
        (self.dir / "planned/study.html").rename(self.dir / "planned.html")
        self.check("planned.html", ["Time over devices", "Cost over devices", "Time against cost"])


if __name__ == "__main__":
    if not find_browser():
        print("SKIPPED: no Chromium; install one (apt-get install chromium), or name it in SHARDLINE_BROWSER")
        sys.exit(NOT_RUN)
    unittest.main(verbosity=2)
