"""Tests that the code blocks of the documents are true: it runs each of them, as far as no mark says otherwise.

An indented block holds commands of a shell, a fenced one is in the language that it names, and ```text is only read.
`<!-- not run: WHY -->` before a block keeps it from being run; its commands and options must exist all the same.
`<!-- run by FILE -->` names the test that reads the block out of the page. A page's blocks run one after the other in
one folder, which has what `Commands.folder_of` puts there. docs/notebook is history, and not looked at."""

import array
import contextlib
import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

import harness
import pictures
import ports

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = ["CONTRIBUTING.md", "README.md", *(f"docs/{p.name}" for p in sorted((ROOT / "docs").glob("*.md")))]
PAGES += [f"docs/clusters/{p.name}" for p in sorted((ROOT / "docs/clusters").glob("*.md"))]
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>(?:not run: |run by )[^\n]*) -->\n\n?)?"
    r"(?:^```(?P<language>\w*)\n(?P<fenced>.*?)^```$|(?:(?<=\n\n)|\A)(?P<indented>(?:    [^\n]*\n+)+))",
    re.M | re.S,
)

C_PROGRAM = """#include <gradwire/gradwire.h>
typedef struct communicator *MPI_Comm;
extern MPI_Comm MPI_COMM_WORLD;
enum { MPI_THREAD_MULTIPLE };
int MPI_Init_thread(int *argc, char ***argv, int wanted, int *granted);
int MPI_Finalize(void);
GW_MUST_CHECK gw_status gw_average_mpi(gw_context *context, const char *spec, MPI_Comm communicator, uint64_t seed,
                                       float *values, uint64_t n_elems, gw_step_result *result);
GW_MUST_CHECK gw_status gw_link_mpi_create(gw_context *context, MPI_Comm communicator, gw_link *link);
int stop(const char *sentence);
int program(int argc, char **argv, gw_context *context, gw_link link, gw_tensor tensor, float *gradient, uint64_t n);
int program(int argc, char **argv, gw_context *context, gw_link link, gw_tensor tensor, float *gradient, uint64_t n)
{
    uint64_t seed = 1;
    uint32_t n_steps = 1;
    gw_codec *codec;
    gw_exchange *exchange;
    gw_step_result result;
    uint32_t step;
%s
    return 0;
}
"""

# Runs blocks of Python one after the other. Each gets a process group, a model and an optimizer, as a program has them.
PYTORCH = """
import os, sys, torch, torch.distributed
from torch.nn.parallel import DistributedDataParallel
import gradwire.launcher
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1")
for port, text in enumerate(sys.argv[2:], int(sys.argv[1])):
    os.environ["MASTER_PORT"] = str(port)
    if "init_process_group" not in text:
        torch.distributed.init_process_group("gloo")
    model = torch.nn.Linear(4, 2)
    scope = dict(globals())
    exec(text, scope)
    if "compression" in scope:
        scope["model"](torch.ones(3, 4)).sum().backward()
        assert scope["compression"].stats()["steps"] == 1
        scope["compression"].close()
    torch.distributed.destroy_process_group()
"""
# Stands for examples/pytorch/train.py, which examples_test.py runs: has a launcher started four ranks?
RANK = f"""
import os, pathlib, sys
import gradwire.launcher
os.environ.update(gradwire.launcher.environment())
assert os.environ["WORLD_SIZE"] == "4" and int(os.environ["RANK"]) < 4
example = pathlib.Path("{ROOT}/examples/pytorch/train.py").read_text()
assert all(f'"{{word}}"' in example for word in sys.argv if word.startswith("--"))
"""
# What a worker has done before its page's later blocks.
PSERVER = """
import numpy
import gradwire.pserver as ps
client = ps.Client("127.0.0.1:29700", rank=0)
first = gradient = numpy.ones([10, 784], "float32")
"""


def blocks_of(page):
    """Yields (mark, language, text)."""
    for block in BLOCK.finditer((ROOT / page).read_text()):
        fenced = block["fenced"]
        text = re.sub("^    ", "", block["indented"], flags=re.M) if fenced is None else fenced
        yield block["mark"], "sh" if fenced is None else block["language"], text


class Marks(harness.Case):
    @harness.needs_trainer
    def test_marks(self):
        """A test that a mark names reads the page. What is not run names commands and options that exist."""
        self.need_tcp()
        helps = {}
        for page in PAGES:
            written = len(re.findall("^<!-- (?:not run|run by)", (ROOT / page).read_text(), re.M))
            self.assertEqual(sum(mark is not None for mark, *_ in blocks_of(page)), written, f"{page}: stray marks")
            for mark, language, text in blocks_of(page):
                where = f"{page}: {text}"
                self.assertIn(language, "sh c python cmake text".split(), where)
                if mark and mark.startswith("run by "):
                    self.assertIn(page, (ROOT / mark.removeprefix("run by ")).read_text(), where)
                elif mark and language == "sh":
                    for command in re.findall(r"gradwire ([a-z]+ .*)", text.replace("\\\n", "")):
                        for part in command.split(" -- "):
                            name = part.split()[0]
                            helps[name] = helps.get(name) or self.ok(name, "--help")
                            for option in re.findall(r"(?<= )--[a-z-]+", part):
                                self.assertIn(option + " ", helps[name], where)
                    for targets in re.findall(r"^make (.*?)(?: &&|  |$)", text, re.M):
                        subprocess.run(["make", "-n", "-C", ROOT, *targets.split()], check=True, capture_output=True)

    def test_c(self):
        found = [text for page in PAGES for mark, language, text in blocks_of(page) if not mark and language == "c"]
        # Declare MPI's functions here as link_mpi.h does, because MPI may not be installed. house_headers checks that
        # header.
        words = ["gcc", *"-std=c17 -Wall -Wextra -Wno-unused -Werror -S -o - -xc -".split(), f"-I{ROOT}/include"]
        source = C_PROGRAM % "".join("{\n" + text + "}\n" for text in found)
        done = subprocess.run(words, input=source, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


@harness.needs_trainer
@harness.needs_quick_convolutions
class Commands(harness.Case):
    def setUp(self):
        super().setUp()
        self.need_tcp()
        self.links = self.ok("--version").partition("links")[2]
        self.library = str(pathlib.Path(harness.TOOL).parent / "libgradwire.so")
        self.not_in_python = [name for name in ("numpy", "torch") if not importlib.util.find_spec(name)]
        if self.run_program(sys.executable, "-c", f"import ctypes; ctypes.CDLL({self.library!r})").returncode:
            self.not_in_python.append("a library without sanitizers")
        self.groups, self.ports = [], {}
        self.addCleanup(self.end_servers)

    def end_servers(self):
        for group in self.groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        self.groups.clear()

    def folder_of(self, page):
        """Makes what a reader of the page has: the tool, a part of the checkout, data, keys, and a file of hosts."""
        folder = pathlib.Path(self.path(page.replace("/", "-")))
        tool = f"exec {sys.executable} -SE {ROOT}/tests/cli/less_work.py {shlex.quote(harness.TOOL)} \"$@\"\n"
        for name, does in {
            "bin/gradwire": tool,
            "build/release/gradwire": tool,
            "bin/python3": f'exec {shlex.quote(sys.executable)} "$@"\n',
            "program": "exec true\n",
            "examples/pytorch/train.py": "",
            "bin/make": f'exec {shutil.which("make")} -n -C {ROOT} "$@"\n',
            "bin/ssh": 'while [ "$1" != 127.0.0.1 ] && [ "$1" != localhost ]; do shift; done; shift; exec sh -c "$*"\n',
        }.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("#!/bin/sh\n" + does if does else RANK)
            path.chmod(0o755)
        (folder / "python").symlink_to(ROOT / "python")
        (folder / "cifar10").symlink_to(self.path("cifar10"))
        (folder / "hosts").write_text("127.0.0.1\nlocalhost\n")
        self.ok("keys", "new", folder / "job-keys")
        head = "{'descr': '<f4', 'fortran_order': False, 'shape': (5000,), }".ljust(128 - 11) + "\n"
        for rank in range(2):
            data = array.array("f", harness.gaussians(5000, rank)).tobytes()
            begin = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode()
            (folder / f"g{rank}.npy").write_bytes(begin + data)
        return folder

    def with_free_ports(self, text):
        """Other tests may run beside this one, so the documents' ports become free ones."""
        text = text.replace("node07", "127.0.0.1").replace("/var/lib/gradwire", "kept")
        text = text.replace("launch --hosts", "launch --port 29500 --hosts")  # its default
        return re.sub(r"\b29[4-8]\d\d\b", lambda port: self.ports.setdefault(port[0], str(next(harness.PORTS))), text)

    def start_in(self, folder, *words):
        """Starts a program as the page's reader does. Servers that it starts go on after it."""
        environment = {
            **os.environ,
            **harness.MPI,
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
            "PICTURES": harness.PICTURES,
            "TMPDIR": harness.PICTURES,  # torchrun leaves a folder of logs behind
            "SERVER_PORT": self.with_free_ports("29700"),
            "PET_MASTER_PORT": self.with_free_ports("29500"),  # torchrun's default
            "GRADWIRE_LIBRARY": self.library,
            "PYTHONPATH": f"{ROOT}/python",
            "USE_LIBUV": "0",  # so that the launcher need not load PyTorch to ask
        }
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        return self.start(*words, program=(), cwd=folder, env=environment, start_new_session=True, **streams)

    def end_well(self, where, *runs):
        for run in runs:
            try:
                printed, said = run.communicate(timeout=240)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                printed, said = run.communicate(timeout=10)  # a program in a group of its own may hold the pipe
            self.assertEqual(run.returncode, 0, f"{where}\n{printed}{said}")
            for line in re.findall(r"# prints (.*)", where):
                self.assertIn(line + "\n", printed, where)

    def has_all(self, page, language, text):
        """Does this machine have what the block needs?"""
        missing = [name for name in ("mpirun", "torchrun") if f"{name} " in text and not shutil.which(name)]
        if "mpirun" in text and "mpi" not in self.links:
            missing.append("the link mpi")
        if language == "python" or "python3" in text or "torchrun" in text:
            missing += [name for name in self.not_in_python if name != "torch" or "pserver" not in page + text]
        if missing:
            print(f"left out, for want of {' and '.join(missing)}: {page}: {text}")
        return not missing

    def test_commands(self):
        pictures.write_cifar(self.path("cifar10"), per_file=8)
        of_pytorch = []
        for page in PAGES:
            folder = None
            for mark, language, text in blocks_of(page):
                if mark or language not in ("sh", "python") or not self.has_all(page, language, text):
                    continue
                folder = folder or self.folder_of(page)
                where = f"{page}:\n{text}"
                if language == "sh":
                    if "gradwire server" in text:
                        self.end_servers()
                    ends = '\nfor job in $(jobs -p); do wait "$job"; done'
                    words = ["bash", "-euo", "pipefail", "-c", self.with_free_ports(text) + ends]
                    run = self.start_in(folder, *words)
                    self.groups += [run.pid] * ("gradwire server" in text)
                    self.end_well(where, run)
                elif "pserver" in page:
                    program = self.with_free_ports(text if "client = " in text else PSERVER + text)
                    ranks = [program, program.replace("rank=0", "rank=1")]
                    self.end_well(where, *[self.start_in(folder, sys.executable, "-c", one) for one in ranks])
                else:
                    of_pytorch.append(text)
            self.end_servers()
        if of_pytorch:
            words = [sys.executable, "-c", PYTORCH, next(ports.free_ports(len(of_pytorch))), *of_pytorch]
            self.end_well("\n".join(of_pytorch), self.start_in(self.folder, *words))


if __name__ == "__main__":
    harness.main()
