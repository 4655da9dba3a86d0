"""Makes golden/: random inputs of metrics and what other projects compute from them.

    python make_golden.py [--cases N] [--out FOLDER]

With the default number of cases it makes the committed files. For a larger comparison, write them somewhere else and let
the tests read them: SHARDLINE_METRICS_GOLDEN=FOLDER metrics_tests. With at least 1000 cases, tokens.json also covers
every assigned code point.

Made with Python 3.11, scikit-learn 1.9.1, scipy 1.17.1, seqeval 1.2.2, transformers 4.57.6 (squad_metrics), and
sparseml 1.7.0, whose package has the function postprocess_qa_predictions of transformers' run_qa. Only the source of that
function is used: its package need not be importable, only unpacked on the module path:

    pip download --no-deps sparseml==1.7.0 && unzip -q -d sparseml sparseml-*.whl && export PYTHONPATH=$PWD/sparseml

NaN is written as null.
"""
import argparse
import ast
import collections
import importlib.util
import json
import logging
import math
import os
import pathlib
import random
import tempfile
import types
import typing
import unicodedata
import warnings

import numpy as np
import scipy.stats
import seqeval.metrics
import sklearn.metrics
from transformers.data.metrics import squad_metrics

HERE = pathlib.Path(__file__).parent
WORDS = ["a", "an", "the", "The", "AN", "cat", "Cat's", "cats", "42", "U.S.", "co-op", "x_y", "e\u0301t\u00e9", "\u00c9T\u00c9",
         "a\u0301", "\u20aca\u20ac", "\u20acthe", "\u0391\u03a3", "\u03a3", "\u0130an", "stra\u00dfe", "a\u00b2", "\u2167", "\u4e00a", "the\u3000an", "a\u00a0b",
         "\u201cthe\u201d", "a\u2019s", "\u0661\u0662", "a\x1cthe", "!", "...", "\u200b", "a\u200bthe", "\U0001f600a", "the-", "_a_", "a+b"]


def number(value):
    """A float for JSON."""
    return None if math.isnan(value) else float(value)


def classification(rng):
    """Makes predictions and labels of classes, and all their scores."""
    count = rng.choice([1, 1, 2, 3, 5, 10, 30, 60])
    classes = rng.choice([[0, 1], [0, 1], [1], [0], [0, 1, 2], [0, 2], [-7, 1, 5, 1 << 40], list(range(10))])
    labels = [rng.choice(classes) for _ in range(count)]
    right = rng.choice([0, 0.2, 0.5, 0.9, 1])
    predictions = [label if rng.random() < right else rng.choice(classes) for label in labels]
    if rng.random() < 0.1:
        predictions = [rng.choice(classes)] * count
    if rng.random() < 0.1:
        labels = [rng.choice(classes)] * count
    scores = {name: prf(labels, predictions, average=name) for name in ("macro", "micro", "weighted")}
    if set(classes) <= {0, 1}:
        scores["binary"] = prf(labels, predictions, average="binary")
    else:
        scores["binary"] = prf(labels, predictions, labels=[1], average="macro")
    return {
        "predictions": predictions,
        "labels": labels,
        "accuracy": sklearn.metrics.accuracy_score(labels, predictions),
        "matthews": sklearn.metrics.matthews_corrcoef(labels, predictions),
        "scores": scores,
    }


def prf(*args, **options):
    return [float(score) for score in sklearn.metrics.precision_recall_fscore_support(*args, **options)[:3]]


def multi_label(rng):
    examples, labels = rng.choice([1, 2, 5, 12]), rng.choice([2, 3, 6])
    truth, guess = (np.array([[int(rng.random() < share) for _ in range(labels)] for _ in range(examples)])
                    for share in (rng.choice([0, 0.2, 0.6, 1]) for _ in range(2)))
    return {"predictions": guess.flatten().tolist(), "labels": truth.flatten().tolist(), "micro": prf(truth, guess, average="micro")}


def regression(rng):
    """Makes predicted numbers, including ties, constants, large and small ones."""
    count = rng.choice([2, 2, 3, 4, 7, 15, 40])
    kind = rng.randrange(7)
    if kind == 0:  # ties
        a, b = ([float(rng.randrange(4)) for _ in range(count)] for _ in range(2))
    elif kind == 1:  # one constant
        a, b = [rng.choice([0.0, 0.1, 7.3])] * count, [round(rng.gauss(0, 1), 4) for _ in range(count)]
        if rng.random() < 0.5:
            a, b = b, a
    elif kind == 2:  # both constant
        a, b = [0.1] * count, [0.1] * count
    elif kind == 3:  # squares overflow or vanish
        scale = rng.choice([1e150, 1e-170])
        a, b = ([round(rng.gauss(0, 1), 3) * scale for _ in range(count)] for _ in range(2))
    elif kind == 4:  # a line
        a = [round(rng.gauss(0, 1), 3) for _ in range(count)]
        b = [rng.choice([-2.0, 3.0]) * x + 1 for x in a] if rng.random() < 0.5 else list(a)
    else:
        a = [round(rng.gauss(2.5, 1.5), 4) for _ in range(count)]
        b = [round(x + rng.gauss(0, rng.choice([0.1, 1, 5])), 4) for x in a]
    return {
        "predictions": a,
        "labels": b,
        "pearson": number(scipy.stats.pearsonr(a, b)[0]),
        "spearman": number(scipy.stats.spearmanr(a, b)[0]),
        "squared": float(sklearn.metrics.mean_squared_error(b, a)),
    }


def phrase(rng, most):
    return rng.choice(["", " "]) + rng.choice([" ", "  ", "\t", "\u2003", ""]).join(rng.choice(WORDS) for _ in range(rng.randint(0, most)))


def tokens(rng):
    """Makes a text, and its normal form in the comparison of answers."""
    text = phrase(rng, 8)
    if rng.random() < 0.3:
        text = "".join(rng.choice(assigned()) for _ in range(6)) + text + rng.choice(assigned())
    return [text, squad_metrics.normalize_answer(text)]


def assigned(found=[]):
    if not found:
        found += [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    return found


def all_code_points():
    """Each code point inside and around words, a few hundred a case."""
    cases = []
    for start in range(0, len(assigned()), 300):
        text = " ".join(f"x{c}the{c}y a{c} {c}\u03a3 b\u03a3{c} b\u03a3{c}d" for c in assigned()[start : start + 300])
        cases.append([text, squad_metrics.normalize_answer(text)])
    return cases


def questions(rng):
    """Makes questions with predictions, and their SQuAD metrics."""
    version_2 = rng.random() < 0.6
    rows, probabilities = [], []
    for _ in range(rng.choice([1, 1, 2, 4, 8])):
        gold = [] if version_2 and rng.random() < 0.4 else [phrase(rng, 4) for _ in range(rng.randint(1, 3))]
        prediction = rng.choice(gold) if gold and rng.random() < 0.4 else phrase(rng, 4)
        if version_2 and rng.random() < 0.3:
            prediction = ""
        rows.append([gold, prediction])
        probabilities.append(rng.choice([0.0, 1.0, 0.25, round(rng.random(), 3)]) if version_2 else 0.0)
    examples = [types.SimpleNamespace(qas_id=str(i), answers=[{"text": text} for text in gold]) for i, (gold, _) in enumerate(rows)]
    predictions = {str(i): prediction for i, (_, prediction) in enumerate(rows)}
    threshold = rng.choice([1.0, 0.5, 0.25, 0.0])
    if version_2:
        probability = {str(i): value for i, value in enumerate(probabilities)}
        metrics = squad_metrics.squad_evaluate(examples, predictions, probability, threshold)
    else:
        threshold = 1.0
        metrics = squad_metrics.squad_evaluate(examples, predictions)
    return {"questions": rows, "probabilities": probabilities, "threshold": threshold, "metrics": metrics}


def stable_numpy():
    """Replaces numpy for the function below, because numpy's argsort orders equal logits arbitrarily; this one is
    stable."""
    class Numpy:
        def __getattr__(self, name):
            return getattr(np, name)

        def argsort(self, values):
            return np.argsort(values, kind="stable")

    return Numpy()


def run_qa_function():
    [folder] = importlib.util.find_spec("sparseml").submodule_search_locations
    source = (pathlib.Path(folder) / "transformers/sparsification/question_answering.py").read_text(encoding="utf-8")
    [function] = [node for node in ast.parse(source).body if getattr(node, "name", None) == "postprocess_qa_predictions"]
    names = {"np": stable_numpy(), "collections": collections, "logging": logging, "_LOGGER": logging.getLogger("reference"),
             "Tuple": typing.Tuple, "Optional": typing.Optional, "tqdm": lambda rows: rows, "json": json, "os": os}
    exec(compile(ast.Module([function], []), "postprocess_qa_predictions", "exec"), names)
    return names["postprocess_qa_predictions"]


def spans(rng, reference=[]):
    """Makes windows of a question with logits, and the choice of answers. Offsets count bytes here and characters
    there."""
    if not reference:
        reference.append(run_qa_function())
    length, most_tokens = (400, 384) if rng.random() < 0.05 else (rng.randint(1, 40), rng.choice([6, 30]))
    context = "".join(rng.choice(["ab", "c", "\u00e9", "\u4e00\u4e8c", "\U0001f600", " "]) for _ in range(length))
    places = [len(context[:i].encode()) for i in range(len(context) + 1)]
    version_2 = rng.random() < 0.6
    options = dict(n_best_size=rng.choice([20, 20, 20, 3, 1]), max_answer_length=rng.choice([30, 30, 4, 1]), version_2_with_negative=version_2,
                   null_score_diff_threshold=rng.choice([0.0, 0.0, -2.5, 1.1]))
    features, windows, all_starts, all_ends = [], [], [], []
    marks_context = rng.random() < 0.2
    for _ in range(rng.choice([1, 1, 2, 3])):
        offsets = [None] * rng.randint(1, 4)
        begin = rng.randrange(min(len(context), 40))
        while begin < len(context) and len(offsets) < most_tokens:
            end = min(len(context), begin + rng.randint(1, 3))
            if rng.random() < 0.03:
                end = begin  # a token without text
            offsets.append((begin, end))
            begin = end
        offsets += [None] * rng.randint(0, 2)
        if rng.random() < 0.1:
            offsets = [None] * len(offsets)
        digits = rng.choice([3, 3, 3, 0])  # no digits: many ties
        starts, ends = ([round(rng.gauss(0, 4), digits) for _ in offsets] for _ in range(2))
        if rng.random() < 0.2:
            starts[0] += 8.0
        all_starts.append(np.array(starts, dtype=np.float32))
        all_ends.append(np.array(ends, dtype=np.float32))
        features.append({"example_id": "q", "offset_mapping": offsets})
        windows.append({"start": starts, "end": ends, "offsets": [o and [places[o[0]], places[o[1]]] for o in offsets]})
        if marks_context:
            marks = [int(rng.random() < 0.6) for _ in offsets]
            features[-1]["token_is_max_context"] = {str(i): True for i, mark in enumerate(marks) if mark}
            windows[-1]["most_context"] = marks

    class Examples(list):
        def __getitem__(self, key):
            return [row["id"] for row in self] if key == "id" else super().__getitem__(key)

    with tempfile.TemporaryDirectory() as folder:
        try:
            answers = reference[0](Examples([{"id": "q", "context": context}]), features, (all_starts, all_ends), output_dir=folder, **options)
        except IndexError:  # several answers, none with text: it has no result
            return spans(rng)
        saved = {file.stem: json.loads(file.read_text())["q"] for file in pathlib.Path(folder).iterdir()}
    best = [[row["text"], float(str(np.float32(row["start_logit"]))), float(str(np.float32(row["end_logit"]))), float(f"{row['probability']:.9g}")]
            for row in saved["nbest_predictions"]]
    result = {"text": answers["q"], "best": best}
    if version_2:
        result["null_score_diff"] = saved["null_odds"]
    return {"context": context, "windows": windows, "options": options, "result": result}


def tagging(rng):
    """Makes sentences with tags of any scheme, and their seqeval metrics."""
    letters = rng.choice(["BI", "IE", "BIES", "BIO", "BIESXo."])
    kinds = rng.choice([["-PER"], ["-PER", "-LOC", "-ORG"], ["-PER", "-LOC", "", "PER", "-A-B", "-", "-\u00e9"]])
    others = ["O"] if rng.random() < 0.8 else ["O", "\u00e9-PER", "O-PER", "MISC", "-PER", "."]

    def tag():
        return rng.choice(others) if rng.random() < 0.4 else rng.choice(letters) + rng.choice(kinds)

    labels = [[tag() for _ in range(rng.choice([0, 1, 3, 8]))] for _ in range(rng.choice([1, 2, 4]))]
    if not any(labels):
        labels[0] = [tag()]
    right = rng.choice([0, 0.5, 0.9, 1])
    predictions = [[label if rng.random() < right else tag() for label in row] for row in labels]
    if rng.random() < 0.05:
        predictions = [["O"] * len(row) for row in labels]
    report = seqeval.metrics.classification_report(labels, predictions, output_dict=True)
    report = {name: [float(row["precision"]), float(row["recall"]), float(row["f1-score"]), int(row["support"])] for name, row in report.items()}
    overall = report.pop("micro avg")
    del report["macro avg"], report["weighted avg"]
    return {"predictions": predictions, "labels": labels, "overall": overall, "types": report, "accuracy": seqeval.metrics.accuracy_score(labels, predictions)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "golden")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    args.out.mkdir(parents=True, exist_ok=True)
    for make in (classification, multi_label, regression, tokens, questions, spans, tagging):
        rng = random.Random(make.__name__)
        cases = [make(rng) for _ in range(args.cases)]
        if make is tokens and args.cases >= 1000:
            cases += all_code_points()
        text = "[\n" + ",\n".join(json.dumps(case, separators=(",", ":"), allow_nan=False) for case in cases) + "\n]\n"
        (args.out / f"{make.__name__}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
