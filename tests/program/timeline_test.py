"""Compares the files in output_dir/timeline with metrics.jsonl."""
import json
import re
import unittest

from harness import ProgramTest

COMPUTE = re.compile(r"[FBW]\d+(/\d+)?$")


def idle_share(trace):
    """Returns the time that the boxes of forwards and gradients leave in the steps of all ranks."""
    busy = total = 0
    for event in trace["traceEvents"]:
        if event["ph"] != "X":
            continue
        if event["name"] == "step":
            total += event["dur"]
        elif event.get("cat") == "instructions" and COMPUTE.match(event["name"]):
            busy += event["dur"]
    return 1 - busy / total


class Timeline(ProgramTest):
    def test_idle_time_that_is_seen_is_the_bubble_that_is_reported(self):
        model = {"config": {"model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 64, "n_layer": 4,
                            "n_head": 4}}
        for communicator in ("threads", "mpi"):
            for pipeline in ("interleaved", "zb_h1"):
                out = f"{communicator}-{pipeline}"
                self.train(model=model, p=2, t=2, communicator=communicator, output_dir=out,
                           data={"sequence_length": 64}, smp_options={"pipeline": pipeline, "microbatches": 4},
                           runtime={"timeline_first_step": 2, "timeline_steps": 2})
                for step in (2, 3):
                    reported = self.metrics(out)[step - 1]["bubble_fraction"]
                    folder = self.dir / out / "timeline"
                    seen = idle_share(json.loads((folder / f"step-{step}.json").read_text()))
                    self.assertAlmostEqual(seen, reported, delta=0.01 * reported, msg=f"{out}, step {step}")
                    page = (folder / f"step-{step}.html").read_text()
                    shown = float(re.search(r"measured, idle ([\d.]+) %", page).group(1)) / 100
                    self.assertAlmostEqual(shown, reported, delta=0.01 * reported + 0.0005, msg=f"{out}, step {step}")


if __name__ == "__main__":
    unittest.main()
