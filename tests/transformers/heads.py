"""The heads that compare_heads.py compares: for each, rows of data, the samples that they become with the tokenizers
library, and the loss, metrics and predictions of transformers' logits. Samples are padded only inside transformers; the
logits of their own tokens are compared, so neither padding nor its side matters.
"""
import collections
import re
import string

import numpy as np
import scipy.stats
import seqeval.metrics
import sklearn.metrics
import torch
import transformers

LENGTH = 32  # maximum number of tokens in a sample; some rows have more
STRIDE = 4
NOTHING = -100
TEXT = """the plot of this film is not bad but a little dull and nobody that I know would return value for such a very
long import of self references where every scene if none else has one more function than the last""".split()
Sample = collections.namedtuple("Sample", "ids types labels")


def words(draw, most, least=1):
    return [draw.choice(TEXT) for _ in range(draw.randrange(least, most))]


def cross_entropy(logits, labels):
    return torch.nn.functional.cross_entropy(logits, labels)


def encode(tokenizer, text, pair=None, strategy="longest_first", stride=0, is_words=False):
    tokenizer.enable_truncation(LENGTH, stride=stride, strategy=strategy)
    return tokenizer.encode(text, pair, is_pretokenized=is_words)


class Head:
    """What is compared for the logits of samples and for predictions."""
    def without_bias(self, logits):
        return logits

    def predictions_without_bias(self, predictions):
        return predictions


class Classes(Head):
    """Pairs of texts."""
    task, title, auto = "sequence-classification", "classes of pairs", transformers.AutoModelForSequenceClassification
    names = ["a", "b", "c"]
    config = {"id2label": dict(enumerate(names)), "label2id": {n: i for i, n in enumerate(names)},
              "problem_type": "single_label_classification"}
    data = {"text_column": "first", "text_pair_column": "second"}
    predicted = True

    def row(self, draw):
        return {"first": " ".join(words(draw, 16)), "second": " ".join(words(draw, 8)), "label": self.label(draw)}

    def label(self, draw):
        return draw.choice(self.names)

    def target(self, label):
        return self.names.index(label)

    def samples(self, tokenizer, rows, seed):
        for row in rows:
            e = encode(tokenizer, row["first"], row.get("second"))
            yield Sample(e.ids, e.type_ids, self.target(row["label"]))

    def targets(self, labels):
        return torch.tensor(labels)

    def loss(self, outputs, labels):
        return cross_entropy(torch.stack(outputs), self.targets(labels))

    def model_labels(self, labels, places, shape):
        return {"labels": self.targets(labels)}

    def metrics(self, outputs, samples, rows, tokenizer):
        best, expected = [int(o.argmax()) for o in outputs], [s.labels for s in samples]
        return {"accuracy": sklearn.metrics.accuracy_score(expected, best),
                "f1": sklearn.metrics.f1_score(expected, best, average="macro", zero_division=0),
                "matthews_correlation": sklearn.metrics.matthews_corrcoef(expected, best)}

    def predictions(self, outputs, samples, rows, tokenizer):
        """Writes predictions as shardline does; numbers are compared up to rounding, everything else exactly."""
        for output in outputs:
            score, best = output.softmax(0).max(0)
            yield {"label": self.names[best], "score": score.item()}


class LabelSets(Classes):
    title = "several labels"
    config = {**Classes.config, "problem_type": "multi_label_classification"}
    data = {"text_column": "first"}

    def row(self, draw):
        return {"first": " ".join(words(draw, 24)), "label": draw.sample(self.names, draw.randrange(4))}

    def target(self, label):
        return [float(name in label) for name in self.names]

    def targets(self, labels):
        return torch.tensor(labels, dtype=torch.float64)

    def loss(self, outputs, labels):
        logits = torch.stack(outputs)
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, self.targets(labels).to(logits))

    def model_labels(self, labels, places, shape):
        return {"labels": self.targets(labels).float()}

    def metrics(self, outputs, samples, rows, tokenizer):
        chosen, expected = [(o > 0).int().tolist() for o in outputs], [[int(x) for x in s.labels] for s in samples]
        return {"accuracy": sklearn.metrics.accuracy_score(expected, chosen),
                "f1": sklearn.metrics.f1_score(expected, chosen, average="micro", zero_division=0)}

    def predictions(self, outputs, samples, rows, tokenizer):
        for output in outputs:
            scores = dict(zip(self.names, output.sigmoid().tolist()))
            yield {"labels": [n for n in self.names if scores[n] > 0.5], "scores": scores}


class Numbers(LabelSets):
    title = "numbers"
    config = {"num_labels": 1, "problem_type": None}

    def row(self, draw):
        return {"first": " ".join(words(draw, 24)), "label": round(draw.uniform(-2, 2), 3)}

    def target(self, label):
        return [label]

    def loss(self, outputs, labels):
        logits = torch.stack(outputs)
        return torch.nn.functional.mse_loss(logits, self.targets(labels).to(torch.float32).to(logits))

    def metrics(self, outputs, samples, rows, tokenizer):
        predicted, expected = torch.cat(outputs).numpy(), np.array([s.labels[0] for s in samples], dtype=np.float32)
        predicted, expected = predicted.astype(float), expected.astype(float)
        return {"mse": float(np.mean((predicted - expected) ** 2)),
                "pearson": float(scipy.stats.pearsonr(predicted, expected)[0]),
                "spearmanr": float(scipy.stats.spearmanr(predicted, expected)[0])}

    def predictions(self, outputs, samples, rows, tokenizer):
        for output in outputs:
            yield {"score": output.item()}


class OfRows(Head):
    """A label for each token."""
    def loss(self, outputs, labels):
        return cross_entropy(torch.cat(outputs), torch.tensor(sum(labels, [])))

    def model_labels(self, labels, places, shape):
        padded = torch.full(shape, NOTHING)
        for row, (place, of_sample) in enumerate(zip(places, labels)):
            padded[row, place] = torch.tensor(of_sample)
        return {"labels": padded}


class Tags(OfRows):
    task, title, auto = "token-classification", "tags", transformers.AutoModelForTokenClassification
    names = ["B-X", "I-X", "O"]
    config = {"id2label": dict(enumerate(names)), "label2id": {n: i for i, n in enumerate(names)}}
    data = {"label_column": "tags"}
    predicted = True

    def row(self, draw):
        tokens = words(draw, 24)
        return {"tokens": tokens, "tags": [draw.choice(self.names) for _ in tokens]}

    def samples(self, tokenizer, rows, seed):
        for row in rows:
            spaces = getattr(tokenizer.pre_tokenizer, "add_prefix_space", None) is False  # run_ner.py sets it to True
            e = encode(tokenizer, [" " + word if spaces else word for word in row["tokens"]], is_words=True)
            new = [word is not None and word != before for word, before in zip(e.word_ids, [None] + e.word_ids)]
            yield Sample(e.ids, e.type_ids, [self.names.index(row["tags"][word]) if is_new else NOTHING
                                             for word, is_new in zip(e.word_ids, new)])

    def tags(self, outputs, samples):
        for output, sample in zip(outputs, samples):
            scores, best = output.softmax(-1).max(-1)
            yield [(self.names[b], s, self.names[label]) for b, s, label
                   in zip(best.tolist(), scores.tolist(), sample.labels) if label != NOTHING]

    def metrics(self, outputs, samples, rows, tokenizer):
        tags = list(self.tags(outputs, samples))
        given, expected = [[t[0] for t in row] for row in tags], [[t[2] for t in row] for row in tags]
        return {"precision": seqeval.metrics.precision_score(expected, given),
                "recall": seqeval.metrics.recall_score(expected, given),
                "f1": seqeval.metrics.f1_score(expected, given),
                "accuracy": seqeval.metrics.accuracy_score(expected, given)}

    def predictions(self, outputs, samples, rows, tokenizer):
        for row in self.tags(outputs, samples):
            yield {"tags": [t[0] for t in row], "scores": [t[1] for t in row]}


class Philox:
    """Philox4x32-10 as core/numbers/philox.h describes it, to mask the tokens that shardline masks."""
    def __init__(self, seed, op, step, sample):
        self.key, self.rest = (seed & 0xFFFFFFFF, seed >> 32), (op << 16, sample, step)

    def word(self, element):
        c, (k0, k1) = [element // 4 & 0xFFFFFFFF, element // 4 >> 32 | self.rest[0], *self.rest[1:]], self.key
        for _ in range(10):
            a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [b >> 32 ^ c[1] ^ k0, b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k1, a & 0xFFFFFFFF]
            k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
        return c[element % 4]


class HiddenWords(OfRows):
    task, title, auto = "masked-lm", "masked words", transformers.AutoModelForMaskedLM
    config, data = {}, {"line_by_line": True, "mlm_probability": 0.3}
    predicted = True

    def row(self, draw):
        return {"text": " ".join(words(draw, 24, 2))}

    def samples(self, tokenizer, rows, seed):
        mask = next(id for id in map(tokenizer.token_to_id, ("[MASK]", "<mask>")) if id is not None)
        for index, row in enumerate(rows):
            e = encode(tokenizer, row["text"])
            if seed is None:  # the text itself has masks
                yield Sample(e.ids, e.type_ids, [id if id == mask else NOTHING for id in e.ids])
                continue
            random, ids, labels = Philox(seed, 65533, 0, index), list(e.ids), [NOTHING] * len(e.ids)
            draws = {i: random.word(4 * i) for i in range(len(ids)) if not e.special_tokens_mask[i]}
            limit = int(self.data["mlm_probability"] * 2**32)
            chosen = [i for i, word in draws.items() if word < limit] or [min(draws, key=draws.get)]
            for i in chosen:
                labels[i], share = ids[i], random.word(4 * i + 1)
                if share < int(0.8 * 2**32):
                    ids[i] = mask
                elif share < int(0.9 * 2**32):
                    ids[i] = random.word(4 * i + 2) * tokenizer.get_vocab_size() >> 32
            yield Sample(ids, e.type_ids, labels)

    def test_rows(self, rows, tokenizer):
        """A word in each row is masked."""
        mask = "[MASK]" if tokenizer.token_to_id("[MASK]") is not None else "<mask>"
        for i, row in enumerate(rows):
            hidden = row["text"].split()[:5]  # tokens that any tokenizer fits into a sample
            hidden[i % len(hidden)] = mask
            yield {"text": " ".join(hidden)}

    def metrics(self, outputs, samples, rows, tokenizer):
        pairs = [(int(o[i].argmax()), label) for o, s in zip(outputs, samples)
                 for i, label in enumerate(s.labels) if label != NOTHING]
        return {"accuracy": sum(a == b for a, b in pairs) / len(pairs),
                "perplexity": float(self.loss(outputs, [s.labels for s in samples]).exp())}

    def predictions(self, outputs, samples, rows, tokenizer):
        for output, sample in zip(outputs, samples):
            masked = [i for i, label in enumerate(sample.labels) if label != NOTHING]
            yield {"masks": [{"scores": output[i].softmax(-1).topk(5).values.tolist()} for i in masked]}


class Answers(Head):
    """Questions with and without an answer; some contexts are longer than a sample."""
    task, title, auto = "question-answering", "answers", transformers.AutoModelForQuestionAnswering
    config = {}
    data = {"doc_stride": STRIDE, "version_2_with_negative": True}
    predicted = True

    def row(self, draw):
        context = words(draw, 30, 3)
        place, count = draw.randrange(len(context)), draw.randrange(1, 3)
        answer = " ".join(context[place: place + count])
        answers = {"text": [answer], "answer_start": [len(" ".join(context[:place])) + (place > 0)]}
        return {"id": str(draw.random()), "question": " ".join(words(draw, 4)), "context": " ".join(context),
                "answers": answers if draw.random() < 0.7 else {"text": [], "answer_start": []}}

    def windows(self, tokenizer, row):
        first = encode(tokenizer, row["question"], row["context"], "only_second", STRIDE)
        return [first, *first.overflowing]

    def samples(self, tokenizer, rows, seed):
        """Samples with the labels of run_qa.py."""
        starts = {tokenizer.token_to_id(name) for name in ("[CLS]", "<s>", "<|endoftext|>")} - {None}
        for row in rows:
            for e in self.windows(tokenizer, row):
                none = next((i for i, id in enumerate(e.ids) if id in starts), 0)
                first = last = none
                if row["answers"]["text"]:
                    begin = row["answers"]["answer_start"][0]
                    end = begin + len(row["answers"]["text"][0])
                    places = [i for i, sequence in enumerate(e.sequence_ids) if sequence == 1]
                    if places and e.offsets[places[0]][0] <= begin and e.offsets[places[-1]][1] >= end:
                        first = max(i for i in places if e.offsets[i][0] <= begin)
                        last = min(i for i in places if e.offsets[i][1] >= end)
                yield Sample(e.ids, e.type_ids, [first, last])

    def loss(self, outputs, labels):
        """Computes the loss over each sample's own tokens. In transformers, padding takes a share of the softmax."""
        losses = [(cross_entropy(o[:, 0], torch.tensor(first)) + cross_entropy(o[:, 1], torch.tensor(last))) / 2
                  for o, (first, last) in zip(outputs, labels)]
        return torch.stack(losses).mean()

    def model_labels(self, labels, places, shape):
        return None

    def answers(self, outputs, rows, tokenizer):
        """Does the same as postprocess_qa_predictions in transformers' utils_qa.py with its default options."""
        outputs = iter(outputs)
        for row in rows:
            found, nulls = [], []
            for e in self.windows(tokenizer, row):
                start, end = (column.float() for column in next(outputs).T)
                nulls.append((float(start[0]), float(end[0])))
                for i in start.argsort(descending=True)[:20].tolist():
                    for j in end.argsort(descending=True)[:20].tolist():
                        if e.sequence_ids[i] == e.sequence_ids[j] == 1 and i <= j < i + 30:
                            text = row["context"][e.offsets[i][0]: e.offsets[j][1]]
                            found.append((float(start[i]), float(end[j]), text))
            null = (*min(nulls, key=sum), "")
            best = sorted(found + [null], key=lambda answer: -(answer[0] + answer[1]))[:20]
            if null not in best:
                best.append(null)
            text = next(answer for answer in best if answer[2])
            yield "" if sum(null[:2]) > sum(text[:2]) else text[2], best

    def metrics(self, outputs, samples, rows, tokenizer):
        exact, f1 = [], []
        for row, (answer, _) in zip(rows, self.answers(outputs, rows, tokenizer)):
            given, gold = normal(answer), [normal(text) for text in row["answers"]["text"]] or [[]]
            exact.append(max(given == g for g in gold))
            f1.append(max(f1_of(given, g) for g in gold))
        has = [bool(row["answers"]["text"]) for row in rows]
        means = {"": [True] * len(rows), "HasAns_": has, "NoAns_": [not h for h in has]}
        return {prefix + name: 100 * sum(v for v, c in zip(values, counts) if c) / sum(counts)
                for prefix, counts in means.items() for name, values in (("exact", exact), ("f1", f1))}

    def predictions(self, outputs, samples, rows, tokenizer):
        for row, (answer, best) in zip(rows, self.answers(outputs, rows, tokenizer)):
            yield {"answer": answer, "id": row["id"],
                   "n_best": [{"start_logit": start, "end_logit": end} for start, end, _ in best]}

    # Without rounding errors, the gradient of the bias of logits would be zero; AdamW turns these errors into steps as
    # large as any other. The softmax removes what such a bias adds to all logits of a sample, and so do these.

    def without_bias(self, logits):
        return [row - row.mean(0) for row in logits]

    def predictions_without_bias(self, predictions):
        for prediction in predictions:
            for key in ("start_logit", "end_logit"):
                mean = sum(answer[key] for answer in prediction["n_best"]) / len(prediction["n_best"])
                for answer in prediction["n_best"]:
                    answer[key] -= mean
        return predictions


def normal(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def f1_of(given, gold):
    if not given or not gold:
        return float(given == gold)
    same = sum((collections.Counter(given) & collections.Counter(gold)).values())
    return 2 * same / (len(given) + len(gold))


class NextWords(OfRows):
    """Completions of prompts."""
    task, title, auto = "causal-lm", "completions", transformers.AutoModelForCausalLM
    config, data = {}, {"completion_only_loss": True}
    predicted = False

    def row(self, draw):
        return {"prompt": " ".join(words(draw, 12)), "completion": " " + " ".join(words(draw, 12))}

    def samples(self, tokenizer, rows, seed):
        eos = tokenizer.token_to_id("<|endoftext|>")
        tokenizer.no_truncation()
        for row in rows:
            e = tokenizer.encode(row["prompt"] + row["completion"])
            labels = [id if end > len(row["prompt"]) else NOTHING for id, (_, end) in zip(e.ids, e.offsets)] + [eos]
            if any(label != NOTHING for label in labels[1:LENGTH]):
                yield Sample((e.ids + [eos])[:LENGTH], [0] * min(LENGTH, len(labels)), labels[:LENGTH])

    def loss(self, outputs, labels):
        return cross_entropy(torch.cat([o[:-1] for o in outputs]), torch.tensor(sum((row[1:] for row in labels), [])))

    def metrics(self, outputs, samples, rows, tokenizer):
        return {"perplexity": float(self.loss(outputs, [s.labels for s in samples]).exp())}


class Blocks(NextWords):
    """All samples have the same length."""
    title = "next words"
    data = {"format": "tokens"}

    def samples(self, tokenizer, rows, seed):
        tokenizer.no_truncation()
        ids = sum((tokenizer.encode(row["prompt"] + row["completion"]).ids for row in rows), [])
        for i in range(0, len(ids) - LENGTH + 1, LENGTH):
            yield Sample(ids[i: i + LENGTH], [0] * LENGTH, ids[i: i + LENGTH])


HEADS = {head.title: head for head in (NextWords(), Blocks(), HiddenWords(), Classes(), LabelSets(), Numbers(), Tags(),
                                       Answers())}
