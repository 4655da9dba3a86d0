#!/usr/bin/env python3
"""Makes short film reviews with labels for configs/studies/sentiment-devices.json.

  python3 configs/studies/make_reviews.py FOLDER

A review has one or three judgements, some of which are negated ("not dull"), and sentences without a judgement. Its
label is that of the majority of its judgements. Writes train.jsonl, validation.jsonl and vocab.txt, the vocabulary of
a tokenizer of whole words, to FOLDER.
"""
import json
import pathlib
import random
import sys

ROWS = {"train": 3000, "validation": 600}
WORDS = {
    "positive": "good fine moving clever warm funny bold lively witty tender sharp rich".split(),
    "negative": "bad dull flat clumsy cold tedious timid lifeless silly harsh vague poor".split(),
}
PARTS = "film plot cast music ending pace dialogue camera".split()
DEGREES = ["", "very", "rather", "quite", "really"]
ASIDES = ["i saw it on a sunday .", "we watched it with friends .", "it runs for two hours .", "there is a sequel ."]


def judgement(draw, label):
    """A clause with this label."""
    is_negated = draw.random() < 0.3
    other = {"positive": "negative", "negative": "positive"}[label]
    word = draw.choice(WORDS[other if is_negated else label])
    parts = ["the", draw.choice(PARTS), "was", "not" if is_negated else "", draw.choice(DEGREES), word]
    return " ".join(filter(None, parts))


def review(draw):
    label, other = draw.sample(sorted(WORDS), 2)
    labels = draw.choice([[label], [label, label, label], [label, label, other]])
    draw.shuffle(labels)
    sentences = [judgement(draw, one) + " ." for one in labels]
    if draw.random() < 0.7:
        sentences.insert(draw.randrange(len(sentences) + 1), draw.choice(ASIDES))
    return {"text": " ".join(sentences), "label": label}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)
    words = set()
    for name, count in ROWS.items():
        rows = [review(draw) for _ in range(count)]
        words.update(word for row in rows for word in row["text"].split())
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(words)]) + "\n")


if __name__ == "__main__":
    main()
