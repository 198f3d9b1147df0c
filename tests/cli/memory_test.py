"""Tests what the tool says if an allocation fails: its answer is whole, or its status tells that it is not."""

import json
import os

import harness

LAST = 150  # so many allocations before the end fail, each once: answers are made there


def profile():
    layers = [{"name": f"layer{i}", "elements": 1000 * i + 1000, "backward_ms": 1} for i in range(4)]
    costs = {"compress_ms_fixed": 0.5, "compress_ms_per_element": 0.00025, "decompress_ms_per_element": 0.000125}
    return {
        "forward_ms": 4,
        "layers": layers,
        "link": {"alpha_ms": 1, "ms_per_byte": 0.0001875, "members": 4},
        "codecs": [{"spec": "ternary", "bytes_per_element": 2, **costs}],
    }


class Memory(harness.Case):
    def once(self, fail_at, *words):
        """Returns status, standard output, the chart and how many allocations there were."""
        chart = self.path("chart.svg")
        if os.path.exists(chart):
            os.remove(chart)
        env = {"LD_PRELOAD": os.environ["GRADWIRE_SHORT_OF_MEMORY"], "FAIL_AT": str(fail_at)}
        done = self.run_tool(*words, env=env)
        drawn = self.read_bytes(chart) if os.path.exists(chart) else None
        return done.returncode, done.stdout, drawn, int(done.stderr.rpartition("allocations: ")[2] or 0)

    def test_answers(self):
        plan = self.path("profile.json")
        with open(plan, "w") as file:
            json.dump(profile(), file)
        planned = ["plan", "--profile", plan, "--json", "-o", self.path("chart.svg")]
        advised = ["advise", "--profile", plan]
        for words in (planned, advised, [*advised, "--json"], ["codecs", "topk", "--json"]):
            status, said, drawn, n = self.once(0, *words)
            self.assertEqual((status, bool(drawn)), (0, "plan" in words))
            n_told = 0
            for fail_at in range(max(1, n - LAST), n + 1):
                found = self.once(fail_at, *words)
                self.assertIn(found[0], (0, 1), f"{words[0]}, allocation {fail_at} of {n}")
                if found[0] == 0:
                    self.assertEqual(found[1:3], (said, drawn), f"{words[0]}, allocation {fail_at} of {n}")
                n_told += found[0]
            self.assertGreater(n_told, 20, words[0])


if __name__ == "__main__":
    harness.main()
