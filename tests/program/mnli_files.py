"""Tables in the format of GLUE's MNLI.zip, with sentences whose label can be learned."""
import random

LABELS = ["entailment", "neutral", "contradiction"]
SUBJECTS, VERBS = "cats dogs birds people".split(), "sleep eat run sing".split()
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "not", "old", "in", "town", *SUBJECTS, *VERBS]
COLUMNS = ("index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse "
           "sentence1 sentence2").split()
PARTS = [("train", 240, ["label1"]), ("dev_matched", 41, [f"label{i}" for i in range(1, 6)]),
         ("dev_mismatched", 37, [f"label{i}" for i in range(1, 6)]), ("test_matched", 23, None),
         ("test_mismatched", 19, None)]


def pairs(count, seed):
    """Yields premises with a hypothesis and its label."""
    draw = random.Random(seed)
    for _ in range(count):
        subject, verb, label = draw.choice(SUBJECTS), draw.choice(VERBS), draw.choice(LABELS)
        premise = " ".join([*["old"] * draw.randrange(3), subject, verb, *["in", "town"] * draw.randrange(3)])
        if label == "entailment":
            hypothesis = f"{subject} {verb}"
        elif label == "contradiction":
            hypothesis = f"{subject} not {verb}"
        else:
            hypothesis = f"old {subject} {verb}"
        yield premise, hypothesis, label


def write_part(path, rows, labels):
    header = COLUMNS + (labels + ["gold_label"] if labels else [])
    lines = ["\t".join(header)]
    for i, (premise, hypothesis, label) in enumerate(rows):
        fields = [str(i), f"{i}", f"{i}n", "fiction", f"( {premise} )", f"( {hypothesis} )", f"(ROOT ({premise}))",
                  f"(ROOT ({hypothesis}))", premise, hypothesis]
        lines.append("\t".join(fields + ([label] * (len(labels) + 1) if labels else [])))
    path.write_text("\n".join(lines) + "\n")


def write_mnli(folder):
    """Writes all tables into the folder. Returns the rows of each."""
    folder.mkdir(parents=True)
    rows = {}
    for seed, (part, count, labels) in enumerate(PARTS):
        rows[part] = list(pairs(count, seed))
        write_part(folder / f"{part}.tsv", rows[part], labels)
    return rows
