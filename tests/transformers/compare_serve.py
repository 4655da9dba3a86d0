"""Compares the answers of `shardline serve` with those of transformers' pipelines, on small models with random weights.

    python tests/transformers/compare_serve.py build/tools/shardline [--family NAME ...] [--task NAME ...]

For each family and task: single inputs, batches, and the parameters of the pipeline. Scores agree to 1e-5, everything
else exactly; texts are continued greedily, token by token. Prints the largest difference of two scores. Version 5 of
transformers has no pipeline for questions: with it, answers are compared with a transcription; with version 4.57, with
the pipeline. Needs torch 2.11, transformers 5.24 or 4.57.6.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import urllib.request

import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
TOKENIZERS = HERE.parent / "engine/data/golden"
ENCODER = dict(hidden_size=36, num_attention_heads=3, num_hidden_layers=3, intermediate_size=50,
               max_position_embeddings=130, initializer_range=0.25)
FAMILIES = {
    "bert": ("examples/bert", dict(ENCODER, vocab_size=1201)),
    "distilbert": ("examples/bert", dict(hidden_dim=50, dim=36, n_heads=3, n_layers=3, max_position_embeddings=130,
                                         vocab_size=1201, initializer_range=0.25)),
    "roberta": ("examples/roberta", dict(ENCODER, vocab_size=803, type_vocab_size=1)),
    "xlm-roberta": ("examples/unigram", dict(ENCODER, vocab_size=907, type_vocab_size=1)),
    "gpt2": ("gpt2", dict(n_embd=36, n_head=3, n_layer=3, n_positions=160, vocab_size=1213, initializer_range=0.25)),
    "gptj": ("gpt2", dict(n_embd=36, n_head=3, n_layer=3, n_positions=160, rotary_dim=4, vocab_size=1213,
                          initializer_range=0.25)),
    "gpt_neo": ("gpt2", dict(hidden_size=36, num_heads=3, num_layers=3, window_size=5, max_position_embeddings=160,
                             attention_types=[[["global", "local", "global"], 1]], vocab_size=1213,
                             initializer_range=0.25)),
}
# The roles of a tokenizer whose files do not name them.
ROLES = {"xlm-roberta": dict(bos_token="<s>", cls_token="<s>", eos_token="</s>", sep_token="</s>", pad_token="<pad>",
                             unk_token="<unk>", mask_token="<mask>")}
# Tokenizers whose config has clean_up_tokenization_spaces. (Version 4 also sets it for BERT's.)
CLEANED = ("distilbert", "xlm-roberta")
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
TEXT = """the plot of this film is not bad but a little dull and nobody that I know would return value for such a very
long import of self references where every scene if none else has one more function than the last""".split()
SCORE = 1e-5
MAJOR = int(transformers.__version__.split(".")[0])


class Server:
    def __init__(self, program, directory, task):
        self.process = subprocess.Popen([program, "serve", str(directory), "--port", "0", "--task", task],
                                        stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        while line and not line.startswith("serving "):
            line = self.process.stdout.readline()
        self.url = line.split()[-1] + "/invocations"

    def ask(self, inputs, parameters):
        body = json.dumps({"inputs": inputs, "parameters": parameters}).encode()
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)


def differences(got, expected, where=""):
    """Returns lines about scores that differ by more than SCORE, and about all other differences."""
    if isinstance(expected, dict) and isinstance(got, dict):
        if got.keys() != expected.keys():
            return [f"{where}: keys {sorted(got)} instead of {sorted(expected)}"]
        return sum((differences(got[key], expected[key], f"{where}/{key}") for key in expected), [])
    if isinstance(expected, list) and isinstance(got, list):
        if len(got) != len(expected):
            return [f"{where}: {len(got)} entries instead of {len(expected)}"]
        return sum((differences(g, e, f"{where}/{i}") for i, (g, e) in enumerate(zip(got, expected))), [])
    if isinstance(expected, float) and isinstance(got, (int, float)):
        return [] if abs(got - expected) <= SCORE * max(1, abs(expected)) else [f"{where}: {got} instead of {expected}"]
    return [] if got == expected else [f"{where}: {got!r} instead of {expected!r}"]


def score_difference(got, expected):
    """The largest difference of two scores at one place, in answers without other differences."""
    if isinstance(expected, dict):
        return max((score_difference(got[key], expected[key]) for key in expected), default=0)
    if isinstance(expected, list):
        return max((score_difference(g, e) for g, e in zip(got, expected)), default=0)
    return abs(got - expected) if isinstance(expected, float) else 0


def texts(draw, count, most=20):
    return [" ".join(draw.choice(TEXT) for _ in range(draw.randrange(1, most))) for _ in range(count)]


def plain(value):
    """Converts numpy's numbers to Python's."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value


class Task:
    name, auto, config = None, None, {}

    def cases(self, draw, tokenizer):
        """Yields (inputs, parameters) of requests."""

    def expected(self, model, tokenizer, inputs, parameters):
        pipe = transformers.pipeline(self.name, model=model, tokenizer=tokenizer, device="cpu")
        return plain(pipe(inputs, **parameters))


class Classes(Task):
    name, auto = "text-classification", transformers.AutoModelForSequenceClassification
    config = {"id2label": {0: "no", 1: "maybe", 2: "yes"}, "label2id": {"no": 0, "maybe": 1, "yes": 2}}

    def cases(self, draw, tokenizer):
        yield texts(draw, 1)[0], {}
        yield texts(draw, 9), {}
        yield texts(draw, 1)[0], {"top_k": None}
        yield texts(draw, 3), {"top_k": 2}
        yield {"text": texts(draw, 1)[0], "text_pair": texts(draw, 1)[0]}, {}
        yield [{"text": a, "text_pair": b} for a, b in zip(texts(draw, 3), texts(draw, 3))], {}
        for function in ("sigmoid", "softmax", "none"):
            yield texts(draw, 2), {"function_to_apply": function, "top_k": 3}
        yield " ".join(TEXT * 8), {"truncation": True, "max_length": 100}
        if transformers.__version__ < "5":
            yield texts(draw, 1)[0], {"return_all_scores": True, "function_to_apply": "SOFTMAX"}
            yield texts(draw, 2), {"return_all_scores": True}
            yield texts(draw, 2), {"return_all_scores": False}


class LabelSets(Classes):
    config = dict(Classes.config, problem_type="multi_label_classification")

    def cases(self, draw, tokenizer):
        yield texts(draw, 3), {"top_k": None}


class Number(Classes):
    config = {"num_labels": 1, "problem_type": "regression"}

    def cases(self, draw, tokenizer):
        yield texts(draw, 3), {}


class OneOutput(Number):
    config = {"num_labels": 1}


class Tags(Task):
    name, auto = "token-classification", transformers.AutoModelForTokenClassification
    config = {"id2label": dict(enumerate(TAGS)), "label2id": {tag: i for i, tag in enumerate(TAGS)}}

    def cases(self, draw, tokenizer):
        strange = ["Zürich's naïve café, 東京 — 12.5%!", "  two  spaces\tand \n lines ", "qzx%% unknownwordsarelong"]
        yield texts(draw, 1)[0], {}
        yield texts(draw, 6) + strange, {"ignore_labels": []}
        for strategy in ("simple", "first", "average", "max"):
            yield texts(draw, 5) + strange, {"aggregation_strategy": strategy, "ignore_labels": []}
            long = [" ".join(draw.choice(TEXT) for _ in range(300)) for _ in range(2)]
            yield long + texts(draw, 2), {"aggregation_strategy": strategy, "stride": draw.randrange(40)}


class Answers(Task):
    name, auto = "question-answering", transformers.AutoModelForQuestionAnswering

    def cases(self, draw, tokenizer):
        def question(most):
            return {"question": texts(draw, 1, 8)[0], "context": texts(draw, 1, most)[0]}
        yield question(30), {}
        yield [question(120) for _ in range(4)], {}
        yield question(60), {"top_k": 4}
        yield question(250), {"max_seq_len": 60, "doc_stride": 20, "top_k": 3}
        yield question(60), {"max_answer_len": 3, "align_to_words": False, "top_k": 2}
        yield question(60), {"handle_impossible_answer": True, "top_k": 3}
        yield {"question": "naïve?", "context": "Zürich's naïve café, 東京 — 12.5%!"}, {}

    def expected(self, model, tokenizer, inputs, parameters):
        if MAJOR < 5:
            return super().expected(model, tokenizer, inputs, parameters)
        answers = [self.answer(model, tokenizer, one, **parameters)
                   for one in (inputs if isinstance(inputs, list) else [inputs])]
        return answers if len(answers) > 1 else answers[0]

    def answer(self, model, tokenizer, one, top_k=1, doc_stride=None, max_seq_len=None, max_answer_len=15,
               handle_impossible_answer=False, align_to_words=True):
        max_seq_len = max_seq_len or min(model.config.max_position_embeddings, 384, tokenizer.model_max_length)
        stride = min(max_seq_len // 2, 128) if doc_stride is None else doc_stride
        encoded = tokenizer(one["question"], one["context"], truncation="only_second", max_length=max_seq_len,
                            stride=stride, return_overflowing_tokens=True, return_token_type_ids=True)
        none, found = 1e6, []
        for i, ids in enumerate(encoded["input_ids"]):
            e = encoded.encodings[i]
            inputs = {key: torch.tensor([encoded[key][i]]) for key in tokenizer.model_input_names}
            with torch.no_grad():
                outputs = model(**inputs)
            wanted = np.array([sequence == 1 or token == tokenizer.cls_token_id
                               for token, sequence in zip(ids, e.sequence_ids)])
            def probabilities(logits):
                logits = np.where(wanted, logits[0].numpy(), -10000.0)
                powers = np.exp(logits - logits.max())
                return powers / powers.sum()
            start, end = probabilities(outputs.start_logits), probabilities(outputs.end_logits)
            none = min(none, start[0] * end[0])
            start[0] = end[0] = 0
            candidates = np.tril(np.triu(np.outer(start, end)), max_answer_len - 1)
            count = top_k * 2 + 10 if align_to_words else top_k
            order = np.argsort(-candidates.flatten(), kind="stable")[:count]
            for s, t in zip(*np.unravel_index(order, candidates.shape)):
                if not (wanted[s] and wanted[t]) or candidates[s, t] == 0:
                    continue
                begin, finish = e.offsets[s][0], e.offsets[t][1]
                if align_to_words:
                    begin = e.word_to_chars(e.token_to_word(s), 1)[0]
                    finish = e.word_to_chars(e.token_to_word(t), 1)[1]
                text = one["context"][begin:finish]
                same = next((a for a in found if a["answer"].lower() == text.lower()), None)
                if same:
                    same["score"] += candidates[s, t].item()
                else:
                    found.append({"score": candidates[s, t].item(), "start": begin, "end": finish, "answer": text})
        if handle_impossible_answer:
            found.append({"score": float(none), "start": 0, "end": 0, "answer": ""})
        found = sorted(found, key=lambda a: a["score"], reverse=True)[:top_k]
        return found[0] if len(found) == 1 else found


class Masks(Task):
    name, auto = "fill-mask", transformers.AutoModelForMaskedLM

    def cases(self, draw, tokenizer):
        def masked(count):
            words = texts(draw, 1)[0].split() + ["the"] * count
            for place in draw.sample(range(len(words)), count):
                words[place] = tokenizer.mask_token
            return " ".join(words)
        yield masked(1), {}
        yield [masked(1) for _ in range(5)], {}
        yield masked(2), {"top_k": 3}
        yield [masked(2), masked(1)], {}
        yield [masked(1) for _ in range(3)], {"top_k": 60}
        words = sorted(tokenizer.get_vocab())
        yield [masked(1), masked(2)], {"targets": draw.sample(words, 12), "top_k": 9}
        yield masked(1), {"targets": draw.sample(words, 3) + ["unknownwordsarelong", "film", "film"]}
        yield masked(1), {"targets": "film"}
        yield f"I do n't think they 're good , {tokenizer.mask_token} 's it .", {"top_k": 20}


class Texts(Task):
    name, auto = "text-generation", transformers.AutoModelForCausalLM

    def cases(self, draw, tokenizer):
        yield texts(draw, 1)[0], {"max_new_tokens": 40}
        yield texts(draw, 7), {"max_new_tokens": 25}
        yield texts(draw, 3), {"max_new_tokens": 25, "return_full_text": False}
        yield texts(draw, 1, 4)[0], {"max_new_tokens": 100}
        yield texts(draw, 4, 6), {"max_length": 60}
        yield texts(draw, 4), {"max_new_tokens": 25, "repetition_penalty": 1.3}
        yield texts(draw, 4), {"max_new_tokens": 25, "repetition_penalty": 0.7, "no_repeat_ngram_size": 3}
        yield texts(draw, 4), {"max_new_tokens": 40, "no_repeat_ngram_size": 2}
        yield texts(draw, 4), {"max_new_tokens": 40, "no_repeat_ngram_size": 1, "repetition_penalty": 1.1}
        yield texts(draw, 6), {"max_new_tokens": 40, "stop": "e"}
        yield texts(draw, 6), {"max_new_tokens": 40, "stop": ["er", "an", "in", "on", "ur", "th"]}

    def expected(self, model, tokenizer, inputs, parameters):
        pipe = transformers.pipeline(self.name, model=model, tokenizer=tokenizer, device="cpu")
        rest = {key: parameters.pop(key) for key in ("return_full_text",) if key in parameters}
        if "stop" in parameters:
            parameters["stop_strings"] = parameters.pop("stop")
            rest["tokenizer"] = tokenizer
        if MAJOR < 5:  # the pipeline of version 4 removes spaces before punctuation unless told not to
            rest["clean_up_tokenization_spaces"] = False
        config = transformers.GenerationConfig(do_sample=False, eos_token_id=model.config.eos_token_id, pad_token_id=0,
                                               **parameters)
        return plain(pipe(inputs, generation_config=config, **rest))


class Endings(Texts):
    """Texts that end early, because many tokens end them."""
    ends = list(range(0, 1213, 16))

    def cases(self, draw, tokenizer):
        yield texts(draw, 8), {"max_new_tokens": 40}
        yield texts(draw, 8), {"max_new_tokens": 40, "min_new_tokens": 20}
        yield texts(draw, 8), {"max_new_tokens": 40, "min_new_tokens": 5, "repetition_penalty": 1.2,
                               "no_repeat_ngram_size": 2}


ENCODERS = {"classes": Classes(), "label sets": LabelSets(), "a number": Number(), "one output": OneOutput(),
            "tags": Tags(), "answers": Answers(), "masked words": Masks()}
GENERATORS = {"texts": Texts(), "endings": Endings(), "classes": Classes()}
TASKS = {family: GENERATORS if family.startswith("gpt") else ENCODERS for family in FAMILIES}


def compare(program, folder, family, title, task):
    place, keys = FAMILIES[family]
    # Version 4 finds no class for a tokenizer.json alone, and its general class makes token types.
    named = MAJOR >= 5 or family != "xlm-roberta"
    settings = dict(ROLES.get(family, {}), **({"clean_up_tokenization_spaces": True} if family in CLEANED else {}))
    tokenizer = (transformers.AutoTokenizer if named else transformers.PreTrainedTokenizerFast).from_pretrained(
        TOKENIZERS / place, **settings)
    if MAJOR < 5 and family in ("distilbert", "xlm-roberta"):
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
    if family.startswith("gpt"):
        keys = dict(keys, bos_token_id=0, pad_token_id=0)
        keys["eos_token_id"] = getattr(task, "ends", 0)
    torch.manual_seed(5)
    model = task.auto.from_config(transformers.AutoConfig.for_model(family, **keys, **task.config)).eval()
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokenizer.model_max_length = 128
    tokenizer.save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, model_input_names=tokenizer.model_input_names)
    problems, count, largest = [], 0, 0
    with Server(program, folder, task.name) as server:
        for inputs, parameters in task.cases(random.Random(title), tokenizer):
            expected = task.expected(model, tokenizer, inputs, dict(parameters))
            got = server.ask(inputs, parameters)
            count += 1
            found = differences(got, expected)
            problems += [f"{parameters}{line}" for line in found]
            largest = largest if found else max(largest, score_difference(got, expected))
    print(f"{family:12} {title:14} {count:3} requests  {'DIFFER' if problems else 'agree'}  "
          f"largest difference of scores {largest:.1e}", flush=True)
    for line in problems[:8]:
        print("    " + line)
    return not problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--family", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--task", nargs="+")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    agree = True
    for family in options.family:
        for title, task in TASKS[family].items():
            if options.task and title not in options.task:
                continue
            with tempfile.TemporaryDirectory() as folder:
                agree &= compare(options.program, pathlib.Path(folder), family, title, task)
    sys.exit(0 if agree else 1)


if __name__ == "__main__":
    main()
