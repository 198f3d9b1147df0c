"""Tests that README and the pages behind it are true: their commands run, and their C compiles."""

import array
import pathlib
import re
import shlex
import subprocess

import harness
import pictures

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
README, TOOL, C = [(ROOT / name).read_text() for name in ("README.md", "docs/tool.md", "docs/c.md")]
# A reader's machines, keys and servers are missing here.
ELSEWHERE = ("gradwire launch --hosts", "gradwire server", "gradwire train --link servers")
C_PROGRAM = """#include <gradwire/gradwire.h>
typedef struct communicator *MPI_Comm;
extern MPI_Comm MPI_COMM_WORLD;
GW_MUST_CHECK gw_status gw_average_mpi(gw_context *context, const char *spec, MPI_Comm communicator, uint64_t seed,
                                       float *values, uint64_t n_elems, gw_step_result *result);
int stop(const char *sentence);
int program(gw_tensor tensor, float *gradient, uint64_t n, uint64_t seed, uint32_t n_steps);
int program(gw_tensor tensor, float *gradient, uint64_t n, uint64_t seed, uint32_t n_steps)
{
    gw_codec *codec;
    gw_link link;
    gw_exchange *exchange;
    gw_step_result result;
    uint32_t step;
%s
    return 0;
}
"""


def code_lines():
    return [line[4:] for line in (README + TOOL).split("\n") if line.startswith("    ")]


class Readme(harness.Case):
    @harness.needs_trainer
    @harness.needs_quick_convolutions
    def test_commands(self):
        """Runs every line that begins with gradwire, in the pages' order and in one folder. Trainings make only a few
        steps. cli_train_test draws digits; the other data here are small ones."""
        head = "{'descr': '<f4', 'fortran_order': False, 'shape': (5000,), }".ljust(128 - 11) + "\n"
        for rank in range(2):
            data = array.array("f", harness.gaussians(5000, rank)).tobytes()
            self.write_bytes(
                f"g{rank}.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + data
            )
        pictures.write_cifar(self.path("cifar10"), per_file=40)
        ran = 0
        for line in code_lines():
            words = line.replace("build/release/gradwire", "gradwire")
            if not words.startswith("gradwire") or words.startswith(ELSEWHERE):
                continue
            # A reader has more time. What the commands say does not depend on the number of steps.
            words = re.sub(r"--(epochs|steps) \d+", "--steps 4", words)
            if "--resume" in words:
                words += " --steps 6"
            elif " train " in words and "--steps" not in words:
                words += " --steps 4"
            words = words.replace("--data digits", f"--data {harness.PICTURES}")
            words = words.replace("--checkpoint-every 1000", "--checkpoint-every 2")
            words = words.replace("bench codec", "bench codec --elements 65536 --runs 1")
            words = re.sub(r"\bprobe\b", "probe --runs 1 --workers 2 --codec ternary", words)
            line = words.replace("gradwire", shlex.quote(harness.TOOL), 1)
            done = self.run_program("sh", "-c", line, cwd=self.folder)
            if "does not have" in done.stderr or "without OpenSSL" in done.stderr:
                continue
            self.assertEqual(done.returncode, 0, f"{words}:\n{done.stderr}")
            ran += 1
        self.assertGreaterEqual(ran, 8)

    @harness.needs_trainer
    def test_options_of_other_commands(self):
        """Checks that commands that cannot run here name options that exist."""
        for line in code_lines():
            if not line.startswith(("gradwire server", "gradwire train --link servers")):
                continue
            page = self.ok(line.split()[1], "--help")
            for option in re.findall(r"--[a-z-]+", line):
                self.assertIn(option + " ", page, line)

    def test_c(self):
        parts = README.split("## In a C program", 1)[1].split("\n## ", 1)[0] + C.split("## Install", 1)[0]
        blocks = re.findall(r"(?:^    .*\n)+", parts, re.M)
        self.assertEqual(len(blocks), 3)
        source = C_PROGRAM % "".join(blocks)
        # Declare MPI's types here as link_mpi.h does, because MPI may not be installed. house_headers checks that
        # header.
        words = ["gcc", *"-std=c17 -Wall -Wextra -Werror -S -o - -xc -".split(), f"-I{ROOT}/include"]
        done = subprocess.run(words, input=source, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    harness.main()
