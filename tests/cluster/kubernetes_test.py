"""Checks examples/kubernetes without a cluster. It checks fields with the API's own types (if python3-kubernetes is
there), and that names agree. It runs here what the containers run, with the files that their secrets would hold.

    tests/cluster/kubernetes_test.py TOOL"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import urllib.request

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "cli")]

try:
    import yaml
except ImportError:
    print("skipped: python3-yaml is not installed")
    sys.exit(77)
try:
    import kubernetes.client as api
except ImportError:
    print("left out: fields and types, since python3-kubernetes is not installed")
    api = None

import harness
import ports

EXAMPLES = TESTS.parent / "examples" / "kubernetes"
PORTS = ports.free_ports()
DEADLINE = 100
MODELS = {"Service": "V1Service", "Job": "V1Job", "StatefulSet": "V1StatefulSet"}
MODELS["PersistentVolumeClaim"] = "V1PersistentVolumeClaim"


def objects(name):
    """Reads a file. Returns {(kind, name): object}."""
    found = list(yaml.safe_load_all((EXAMPLES / name).read_text()))
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def faults(value, kind, where):
    """Returns what the API would refuse: fields that do not exist, values of other types, fields that are missing."""
    inner = re.fullmatch(r"(?:list\[|dict\(str, )(.*)[\])]", kind)
    if inner:
        if not isinstance(value, list if kind.startswith("list") else dict):
            return [f"{where} is {value!r}, and must be {kind}"]
        items = enumerate(value) if kind.startswith("list") else value.items()
        return [fault for key, item in items for fault in faults(item, inner[1], f"{where}[{key}]")]
    if kind == "object":  # a number or a name
        return [] if isinstance(value, (int, str)) else [f"{where} is {value!r}"]
    if kind in ("str", "int", "bool"):
        return [] if type(value).__name__ == kind else [f"{where} is {value!r}, and must be a {kind}"]
    model = getattr(api, kind)
    if not isinstance(value, dict):
        return [f"{where} is {value!r}, and must have fields of {kind}"]
    names = {name: field for field, name in model.attribute_map.items()}
    found = [f"{where}.{name} is no field of {kind}" for name in value if name not in names]
    for name in set(value) & set(names):
        found += faults(value[name], model.openapi_types[names[name]], f"{where}.{name}")
    try:
        # This raises if a required field is missing.
        model(**{names[name]: value[name] for name in value if name in names})
    except ValueError as error:
        found.append(f"{where}: {error}")
    return found


def pod_of(one):
    return one["spec"]["template"]["spec"]


def containers(one):
    return pod_of(one).get("initContainers", []) + pod_of(one)["containers"]


def words_of(container):
    return [*container["command"], *container.get("args", [])]


def option(words, name):
    return next(word.partition("=")[2] for word in words if word.startswith(name + "="))


class Kubernetes(harness.Case):
    def setUp(self):
        super().setUp()
        self.job, self.served = objects("job.yaml"), objects("parameter-server.yaml")

    def test_the_api_takes_them(self):
        if not api:
            self.skipTest("python3-kubernetes is not installed")
        for file in (self.job, self.served):
            for (kind, name), one in file.items():
                self.assertEqual(faults(one, MODELS[kind], name), [])

    def test_volumes_and_ports_are_there(self):
        for file in (self.job, self.served):
            for (kind, name), one in file.items():
                if "template" not in one["spec"]:
                    continue
                volumes = {volume["name"] for volume in pod_of(one)["volumes"]}
                volumes |= {claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", [])}
                mounted = {mount["name"] for c in containers(one) for mount in c["volumeMounts"]}
                self.assertEqual(mounted, volumes, name)
                for volume in pod_of(one)["volumes"]:
                    claim = volume.get("persistentVolumeClaim", {}).get("claimName")
                    self.assertTrue(claim is None or ("PersistentVolumeClaim", claim) in file, claim)
                for container in containers(one):
                    named = {port["name"] for port in container.get("ports", [])}
                    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                        if probe in container:
                            self.assertIn(container[probe]["httpGet"]["port"], named)

    def test_ranks_find_each_other(self):
        job, service = self.job["Job", "gradwire-train"], self.job["Service", "gradwire-ranks"]
        said = {entry["name"]: entry["value"] for entry in pod_of(job)["containers"][0]["env"]}
        self.assertEqual(said["WORLD_SIZE"], str(job["spec"]["completions"]))
        self.assertEqual(job["spec"]["parallelism"], job["spec"]["completions"])
        self.assertEqual(job["spec"]["completionMode"], "Indexed")
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertEqual(service["spec"]["selector"], {"job-name": job["metadata"]["name"]})  # Kubernetes' own label
        self.assertEqual(pod_of(job)["subdomain"], service["metadata"]["name"])
        self.assertEqual(said["MASTER_ADDR"], f"{job['metadata']['name']}-0.{service['metadata']['name']}")
        self.assertEqual(said["MASTER_PORT"], str(service["spec"]["ports"][0]["port"]))

    def test_workers_find_the_server(self):
        server, workers = self.served["StatefulSet", "gradwire-server"], self.served["Job", "gradwire-workers"]
        service = self.served["Service", "gradwire-server"]
        serves, trains = (words_of(pod_of(one)["containers"][0]) for one in (server, workers))
        offered = {port["name"]: port["port"] for port in service["spec"]["ports"]}
        ports_of = {port["name"]: port["containerPort"] for port in pod_of(server)["containers"][0]["ports"]}
        self.assertEqual(offered, ports_of)
        self.assertEqual(option(serves, "--listen"), f"0.0.0.0:{offered['gradwire']}")
        self.assertEqual(option(serves, "--metrics"), f"0.0.0.0:{offered['metrics']}")
        self.assertEqual(option(trains, "--servers"), f"{service['metadata']['name']}:{offered['gradwire']}")
        self.assertEqual(option(serves, "--workers"), str(workers["spec"]["completions"]))
        self.assertEqual(workers["spec"]["parallelism"], workers["spec"]["completions"])
        self.assertEqual(server["spec"]["serviceName"], service["metadata"]["name"])
        labels = server["spec"]["template"]["metadata"]["labels"]
        self.assertEqual((service["spec"]["selector"], server["spec"]["selector"]["matchLabels"]), (labels, labels))

    # ---- what the containers run --------------------------------------------------------------------------------

    def test_the_image_has_the_libraries(self):
        """The image installs the package of every library that the tool is linked with, as far as it is not in each."""
        if "bookworm" not in pathlib.Path("/etc/os-release").read_text() or not shutil.which("readelf"):
            self.skipTest("this is not Debian 12, or there is no readelf")
        run = lambda *words: subprocess.run(words, capture_output=True, text=True).stdout
        names = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", harness.TOOL))
        places = dict(re.findall(r"(\S+) => (\S+)", run("ldd", harness.TOOL)))
        places = [os.path.realpath(places[name]) for name in names if name in places and "san.so" not in name]
        # Some packages still say /lib where files are in /usr/lib.
        lines = run("dpkg", "-S", *places, *[place.removeprefix("/usr") for place in places]).splitlines()
        packages = {line.partition(":")[0] for line in lines}
        image = (EXAMPLES / "Containerfile").read_text().split("FROM")[2].split()
        self.assertIn("libc6", packages)
        self.assertEqual(packages - {"libc6", *image}, set())

    def need_tcp(self):
        if "\n  train " not in self.ok("help") or "tcp" not in self.ok("--version").partition("links")[2]:
            self.skipTest("the tool is built without the trainer or without the tcp link")

    def keys_of(self, one, made):
        """Returns the folder that the first container makes of its secret. The secret has those files of `made` that it
        names, behind links and readable for a group, as Kubernetes shows them."""
        secret, keys = (self.path(f"{one['metadata']['name']}-{name}") for name in ("secret", "keys"))
        shutil.copytree(made, secret + "-data")
        os.makedirs(secret + "/allowed")
        os.mkdir(keys)
        named = next(volume["secret"] for volume in pod_of(one)["volumes"] if "secret" in volume)
        for item in named["items"]:
            source = os.path.join(secret + "-data", item["path"])
            self.assertEqual(os.path.basename(item["path"]), item["key"])
            os.chmod(source, named["defaultMode"])
            os.symlink(source, os.path.join(secret, item["path"]))
        words = [word.replace("/secret", secret).replace("/keys", keys) for word in containers(one)[0]["command"]]
        subprocess.run(words, check=True)
        return keys

    def start(self, words, **said):
        environment = {**os.environ, "PATH": f"{os.path.dirname(harness.TOOL)}:{os.environ['PATH']}", **said}
        return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def end(self, runs):
        """Waits for the processes, which must end well. Returns what they said."""
        try:
            said = [run.communicate(timeout=DEADLINE)[0] for run in runs]
        finally:
            for run in runs:
                run.kill()
        self.assertEqual([run.returncode for run in runs], [0] * len(runs), said)
        return said

    def test_the_job_runs_and_goes_on(self):
        self.need_tcp()
        self.ok("keys", "new", self.path("made"))
        job = self.job["Job", "gradwire-train"]
        keys, words = self.keys_of(job, self.path("made")), words_of(pod_of(job)["containers"][0])
        os.mkdir(self.path("runs"))
        for n, steps in enumerate((40, 60)):
            script = words[2].replace("/keys", keys).replace("/runs", self.path("runs"))
            script = script.replace("--epochs 20 --checkpoint-every 500", f"--steps {steps} --checkpoint-every 20")
            self.assertIn(f"--steps {steps}", script)
            meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(next(PORTS)), "WORLD_SIZE": "4"}
            said = self.end([self.start([*words[:2], script], **meet, JOB_COMPLETION_INDEX=str(r)) for r in range(4)])
            self.assertIn("all replicas identical", said[0])
            self.assertEqual(f"step {1 if n == 0 else 41}/{steps} " in said[0], True, said[0])

    def test_the_server_answers_its_probes_and_its_workers(self):
        self.need_tcp()
        # The server must refuse this address, so that none stays.
        refused = self.run_tool("server", "--workers", 1, "--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:0").stderr
        if "this build has no status page" in refused:
            self.skipTest("the tool is built without libmicrohttpd")
        for name in (["server"], ["client", "--client", "workers", "--of", self.path("server")]):
            self.ok("keys", "new", self.path(name[0]), *name[1:])
        server, workers = self.served["StatefulSet", "gradwire-server"], self.served["Job", "gradwire-workers"]
        listen, page, snapshots = next(PORTS), next(PORTS), self.path("snapshots")
        keys = self.keys_of(server, self.path("server"))
        container = pod_of(server)["containers"][0]
        os.mkdir(snapshots)
        words = [
            word.replace("=/keys", f"={keys}").replace("=/snapshots", f"={snapshots}") for word in words_of(container)
        ]
        words = [word.replace("0.0.0.0:29700", f"127.0.0.1:{listen}").replace(":29780", f":{page}") for word in words]
        run = self.start(words)
        self.addCleanup(run.stdout.close)
        self.addCleanup(run.wait)
        self.addCleanup(run.terminate)
        end = time.monotonic() + DEADLINE
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            asked = f"http://127.0.0.1:{page}{container[probe]['httpGet']['path']}"
            while True:
                try:
                    self.assertEqual(urllib.request.urlopen(asked, timeout=DEADLINE).status, 200)
                    break
                except urllib.error.URLError as error:
                    self.assertNotIsInstance(error, urllib.error.HTTPError, f"{probe}: {error}")
                    if run.poll() is not None or time.monotonic() > end:
                        run.terminate()
                        self.fail(f"{probe}: {error}: {run.communicate()[0]}")
                    time.sleep(0.05)
        keys = self.keys_of(workers, self.path("client"))
        words = [word.replace("=/keys", f"={keys}") for word in words_of(pod_of(workers)["containers"][0])]
        words = [re.sub("gradwire-server:[0-9]+", f"127.0.0.1:{listen}", word) for word in words]
        words[words.index("--epochs=20")] = "--steps=8"
        ranks = range(workers["spec"]["completions"])
        said = self.end([self.start(words, WORLD_SIZE="4", JOB_COMPLETION_INDEX=str(rank)) for rank in ranks])
        self.assertIn("all replicas identical", said[0])


if __name__ == "__main__":
    harness.main()
