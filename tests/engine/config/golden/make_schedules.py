"""Makes schedules.json: learning rates of the schedules of transformers, step by step, even beyond the last one.

    python tests/engine/config/golden/make_schedules.py      (torch 2.11, transformers 5.23)

Each entry holds config keys of "training", the steps of the run, and the learning rate of steps 1, 2, ... Those of
"annealing", which transformers does not have, follow the formulas in docs/config.md.
"""
import json
import math
import pathlib

import torch
import transformers

PEAK = 3e-4
RUNS = [  # warm-up steps, steps of the run
    (0, 9), (3, 9), (4, 4),
]
SCHEDULES = [
    ("linear", {}),
    ("cosine", {}),
    ("cosine", {"num_cycles": 1.25}),
    ("cosine_with_restarts", {}),
    ("cosine_with_restarts", {"num_cycles": 3}),
    ("polynomial", {}),
    ("polynomial", {"lr_end": 2e-5, "power": 2.5}),
    ("constant", {}),
    ("constant_with_warmup", {}),
    ("inverse_sqrt", {}),
    ("inverse_sqrt", {"timescale": 7}),
    ("cosine_with_min_lr", {"min_lr": 3e-5}),
    ("cosine_with_min_lr", {"min_lr_rate": 0.25, "num_cycles": 0.75}),
    ("cosine_warmup_with_min_lr", {"min_lr": 3e-5}),
    ("cosine_warmup_with_min_lr", {"min_lr_rate": 0.25, "num_cycles": 0.75, "warmup_lr_rate": 0.1}),
    ("warmup_stable_decay", {"num_decay_steps": 4}),
    ("warmup_stable_decay", {"num_decay_steps": 2, "num_stable_steps": 1, "min_lr_ratio": 0.2}),
    ("warmup_stable_decay", {"num_decay_steps": 4, "warmup_type": "cosine", "decay_type": "linear", "min_lr_ratio": 0.1}),
    ("warmup_stable_decay", {"num_decay_steps": 4, "warmup_type": "1-sqrt", "decay_type": "1-sqrt"}),
    ("warmup_stable_decay", {"num_decay_steps": 4, "decay_type": "cosine", "num_cycles": 1.5}),
]
ANNEALING = [
    ({}, 0), ({"min_lr": 1e-4}, 0.2), ({"lr_decay_style": "cosine", "lr_decay_iters": 20}, 0.1),
    ({"lr_decay_style": "exponential", "min_lr": 2e-4}, 0.3), ({"lr_decay_style": "constant"}, 2),
    ({"lr_decay_style": "plateau", "plateau": 0.3, "min_lr": 1e-5}, 0.2), ({"lr_decay_style": "plateau"}, 0),
    ({"lr_decay_style": "linear"}, 6),
]


def transformers_rates(name, kwargs, warmup, total):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=PEAK)
    scheduler = transformers.get_scheduler(name, optimizer, warmup, total, dict(kwargs))
    rates = []
    for _ in range(total + 2):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return rates


def annealing_rate(done, warmup, end, style, plateau, floor):
    reached = min(done, end - warmup)
    if warmup > 0 and done <= warmup:
        return PEAK * reached / warmup
    n = reached - warmup
    factor = {"linear": lambda: (end - n) / end,
              "cosine": lambda: 0.5 * (math.cos(math.pi * n / end) + 1),
              "exponential": lambda: math.exp(-0.693 * n / end),
              "constant": lambda: 1.0,
              "plateau": lambda: 1.0 if done <= warmup + plateau else (end - done) / (end - warmup - plateau)}[style]()
    return max(PEAK * factor, floor)


def annealing_rates(kwargs, warmup, total):
    end = kwargs.get("lr_decay_iters", total)
    return [annealing_rate(done, warmup * end if warmup < 1 else warmup, end, kwargs.get("lr_decay_style", "linear"),
                           kwargs.get("plateau", 0.4) * end, kwargs.get("min_lr", 0.0)) for done in range(total + 2)]


def entry(name, kwargs, warmup, total, rates):
    return {"training": {"lr_scheduler_type": name, "lr_scheduler_kwargs": kwargs, "warmup_steps": warmup,
                         "learning_rate": PEAK}, "steps": total, "rates": rates}


def main():
    entries = []
    for name, kwargs in SCHEDULES:
        for warmup, total in RUNS:
            if warmup == total and name in ("polynomial", "warmup_stable_decay"):  # transformers cannot do this
                continue
            entries.append(entry(name, kwargs, warmup, total, transformers_rates(name, kwargs, warmup, total)))
    for kwargs, warmup in ANNEALING:
        entries.append(entry("annealing", kwargs, warmup, 10, annealing_rates(kwargs, warmup, 10)))
    lines = ",\n".join(json.dumps(e) for e in entries)
    pathlib.Path(__file__).with_name("schedules.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
