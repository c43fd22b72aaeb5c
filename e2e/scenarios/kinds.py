"""Kinds of pods that trainings run in: what each has that others have not, and what the probe makes of it.

A kind is a pod that trains (../training/small.py), changed by functions, with the controller that makes it. What the
probe makes of it is one of PROBED, left(REASON) and UNPROBED. test_pods.py runs them.
"""
import copy
import dataclasses
import typing

PROBED = "probed"  # the hook is there, and all layers have rows
UNPROBED = "unprobed"  # the hook is added, and the training starts without it


def left(reason):
    """The pod stays as it was written, and the reason is told."""
    return f"left: {reason}"


@dataclasses.dataclass
class Kind:
    name: str
    changes: tuple = ()
    owner: str = "Pod"
    outcome: str = PROBED
    exits: typing.Union[int, str, None] = 0  # with this status; None: it stays; "waits": the trainer never starts
    pods: int = 1  # that its controller makes
    tries: tuple = ()  # of a Job's pods, statuses in the order of their creation
    owner_spec: dict = dataclasses.field(default_factory=dict)
    session: dict = dataclasses.field(default_factory=dict)  # more of the ProfileSession's spec
    objects: tuple = ()  # ConfigMaps and the like, in its namespace
    space: typing.Optional[dict] = None  # labels of a namespace of its own
    image: str = "torch"
    act: str = ""  # what happens to it while it trains: delete, evict
    log_goes: bool = False  # with its end: a kubelet removes the containers of a pod that it evicts, or that is deleted
    fills: bool = False  # the node has room for this pod and no other; the twin runs first
    trains: bool = True  # prints losses

    @property
    def is_cut(self):
        """Whoever ends it does so at one step or another."""
        return bool(self.act) or "activeDeadlineSeconds" in self.owner_spec

    @property
    def stays(self):
        return self.exits is None and not self.act


# --- changes ---

def merge(into, fields):
    """Fields of `fields` over those of `into`: objects are merged, lists are joined."""
    for key, value in fields.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        elif isinstance(value, list) and isinstance(into.get(key), list) and key not in ("command", "args"):
            into[key] = into[key] + copy.deepcopy(value)
        else:
            into[key] = copy.deepcopy(value)


def spec(**fields):
    return lambda pod: merge(pod["spec"], fields)


def trainer(**fields):
    return lambda pod: merge(pod["spec"]["containers"][0], fields)


def metadata(**fields):
    return lambda pod: merge(pod["metadata"], fields)


def words(*more):
    """Arguments of the training."""
    def change(pod):
        container = pod["spec"]["containers"][0]
        container["args"] = container.get("args", []) + list(more)
    return change


def env(**variables):
    return trainer(env=[{"name": name, "value": value} for name, value in variables.items()])


def without(*keys):
    """What the image says holds."""
    def change(pod):
        for key in keys:
            pod["spec"]["containers"][0].pop(key, None)
    return change


def mounted(name, path, **source):
    def change(pod):
        merge(pod["spec"], {"volumes": [{"name": name, **source}]})
        trainer(volumeMounts=[{"name": name, "mountPath": path}])(pod)
    return change


def config(name, **files):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {key.replace("__", "."): value for key, value in files.items()}}


def beside(name, *command, image="torch", restart=None, **fields):
    """Another container; with restart a native sidecar, with image None an init container that ends."""
    def change(pod):
        container = {"name": name, "image": image, "imagePullPolicy": "IfNotPresent", "command": list(command), **fields}
        if restart:
            container["restartPolicy"] = restart
        place = "initContainers" if restart or name.startswith("init") else "containers"
        merge(pod["spec"], {place: [container]})
    return change


def shell(text):
    return trainer(command=["sh", "-c", text], args=[])


def resources(**fields):
    """Exactly these."""
    def change(pod):
        pod["spec"]["containers"][0]["resources"] = fields
    return change


TRAIN = "python3 /training/small.py"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
NO_RIGHTS = (spec(securityContext={"runAsNonRoot": True, "runAsUser": 1000680000, "runAsGroup": 0,
                                   "seccompProfile": {"type": "RuntimeDefault"}}),
             trainer(securityContext={"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}))
READ_ONLY = trainer(securityContext={"readOnlyRootFilesystem": True})
TMP = mounted("tmp", "/tmp", emptyDir={})  # torch wants one
STATE = mounted("state", "/state", emptyDir={})
OWN = config("own", own_module__py='VALUE = "what the pod brings"\n',
             sitecustomize__py='import os\n\nos.environ["SITE"] = "pod"\n')
OWN_FOLDER = mounted("own", "/own", configMap={"name": "own"})
EXACT = {"cpu": "200m", "memory": "700Mi"}
SMALL = {"cpu": "20m", "memory": "64Mi"}
FAILS_ONCE = (STATE, words("--exit=3", "--unless=/state/marked"), spec(restartPolicy="OnFailure"))


def quota(**hard):
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"},
            "spec": {"hard": {key.replace("__", "."): value for key, value in hard.items()}}}


def limits(**limit):
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "limits"}, "spec": {"limits": [limit]}}


def preceded(pod):
    """Another container comes first."""
    pod["spec"]["containers"].insert(0, {"name": "first", "image": "torch", "imagePullPolicy": "IfNotPresent",
                                         "command": ["true"]})


def second_trainer(pod):
    container = copy.deepcopy(pod["spec"]["containers"][0])
    container.update(name="second", args=["--seed=2"])
    pod["spec"]["containers"].append(container)


# The ten that tell most; run by default.
TELLING = (
    Kind("restricted", NO_RIGHTS + (READ_ONLY, TMP), "Job", space=RESTRICTED),
    Kind("path-by-image", (words("--imports=own_module"),), image="path"),
    Kind("job-retried", (words("--exit=3"),), "Job", exits=3, tries=(3, 3), owner_spec={"backoffLimit": 1}),
    Kind("deployment", (beside("init", "true"), beside("sidecar", "sleep", "3600", restart="Always"),
                        beside("another", "sleep", "3600")), "Deployment", exits=None),
    Kind("host-network", (spec(hostNetwork=True),)),
    Kind("preload-by-image", (words("--expect=PRELOADED=yes"),), image="preload"),
    Kind("guaranteed", (resources(requests=EXACT, limits=EXACT), words("--raise")), "Job", exits=1),
    Kind("killed", (shell(f"{TRAIN} --kill; exit $?"),), exits=137),
    Kind("isolated", (trainer(command=["python3", "-I", "/training/small.py"]),), outcome=left("PythonIsolated")),
    Kind("static", (without("command", "args"),), outcome=UNPROBED, image="static"),
)

OWNERS = (
    Kind("bare"),
    Kind("bare-restarted", FAILS_ONCE),
    Kind("statefulset", owner="StatefulSet", exits=None, pods=2),
    Kind("daemonset", owner="DaemonSet", exits=None),
    Kind("replicaset", owner="ReplicaSet", exits=None),
    Kind("replication-controller", owner="ReplicationController", exits=None),
)
JOBS = (
    Kind("job", owner="Job"),
    Kind("job-indexed", owner="Job", pods=2,
         owner_spec={"completions": 2, "parallelism": 2, "completionMode": "Indexed"}),
    Kind("job-restarted", FAILS_ONCE, "Job", owner_spec={"backoffLimit": 3}),
    Kind("job-with-policy", (words("--exit=42"),), "Job", exits=42, owner_spec={
        "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {
            "containerName": "trainer", "operator": "In", "values": [42]}}]}}),
    Kind("cronjob", owner="CronJob"),
)
CONTAINERS = (
    Kind("init-containers", (beside("init-a", "true"), beside("init-b", "sh", "-c", "sleep 1; exit 0"))),
    Kind("native-sidecar", (beside("sidecar", "sleep", "3600", restart="Always"),), "Job"),
    Kind("beside-another", (beside("another", "sh", "-c", "sleep 2; exit 0"),)),
    Kind("two-trainers", (second_trainer,), session={"containers": ["trainer", "second"]}),
    Kind("second-has-the-gpu", (resources(requests=SMALL, limits={"nvidia.com/gpu": 1}), preceded)),
    Kind("init-fails", (beside("init", "false"),), exits="waits", outcome=UNPROBED, trains=False),
)
SECURITY = (
    Kind("random-uid", (spec(securityContext={"runAsUser": 1234567890, "runAsGroup": 1234567890}),)),
    Kind("read-only", (READ_ONLY, TMP)),
    Kind("groups", (spec(securityContext={"runAsUser": 1000, "fsGroup": 2000, "supplementalGroups": [3000]}),)),
    Kind("privileged", (trainer(securityContext={"privileged": True}),)),
    Kind("user-by-image", image="user"),
    Kind("host-pid", (spec(hostPID=True),)),
    Kind("host-ipc", (spec(hostIPC=True),)),
    Kind("shared-processes", (spec(shareProcessNamespace=True),)),
)
BY_POD = (
    Kind("path-by-pod", (OWN_FOLDER, env(PYTHONPATH="/own"), words("--imports=own_module")), objects=(OWN,)),
    Kind("path-by-config", (OWN_FOLDER, trainer(envFrom=[{"configMapRef": {"name": "path"}}]), words("--imports=own_module")),
         objects=(OWN, config("path", PYTHONPATH="/own"))),
    Kind("path-from-source", (OWN_FOLDER, words("--imports=own_module"), trainer(env=[
        {"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "path", "key": "PYTHONPATH"}}}])),
        objects=(OWN, config("path", PYTHONPATH="/own")), outcome=left("PythonPathFromSource")),
    Kind("preload-by-pod", (env(LD_PRELOAD="libgomp.so.1"), words("--expect=LD_PRELOAD=libgomp.so.1"))),
    Kind("sitecustomize-by-pod", (OWN_FOLDER, env(PYTHONPATH="/own"), words("--expect=SITE=pod")), objects=(OWN,)),
    Kind("venv-by-pod", (mounted("venv", "/venv", emptyDir={}), beside(
        "init", "sh", "-c", "mkdir /venv/bin && ln -s /usr/bin/python3 /venv/bin/python3 && "
        "printf 'home = /usr/bin\\ninclude-system-site-packages = true\\n' >/venv/pyvenv.cfg",
        volumeMounts=[{"name": "venv", "mountPath": "/venv"}]),
        trainer(command=["/venv/bin/python3", "/training/small.py"]), words("--prefix=/venv"))),
    Kind("conda-by-pod", (trainer(command=["/opt/conda/bin/python", "/training/small.py"]),
                          words("--prefix=/opt/conda", "--imports=own_module")), image="conda"),
)
BY_IMAGE = (
    Kind("venv-by-image", (words("--imports=own_module", "--prefix=/app/venv", "--expect=VIRTUAL_ENV=/app/venv"),),
         image="venv"),
    Kind("sitecustomize-by-image", (words("--expect=SITE=own"),), image="site"),
    Kind("conda-by-image", (words("--prefix=/opt/conda", "--imports=own_module", "--expect=CONDA_PREFIX=/opt/conda"),),
         image="conda"),
    Kind("entrypoint-by-image", (without("command", "args"),), image="entrypoint"),
    Kind("isolated-by-image", (without("command", "args"),), image="isolated", outcome=UNPROBED),
    Kind("musl", (without("command", "args"),), image="musl", outcome=UNPROBED),
)
COMMANDS = (
    Kind("shell", (shell(f"{TRAIN}; exit $?"),)),
    Kind("pipe", (shell(f"{TRAIN} | cat"),)),
    Kind("stdin", (shell("python3 - </training/small.py"),)),
    Kind("module", (trainer(command=["python3", "-m", "small"], workingDir="/training"),)),
    Kind("inline", (trainer(command=["python3", "-c",
                                     "import runpy; runpy.run_path('/training/small.py', run_name='__main__')"]),)),
    Kind("shebang", (trainer(command=["/training/small.py"]),)),
    Kind("options", (trainer(command=["python3", "-O", "-s", "-B", "-u", "-P", "-W", "ignore", "/training/small.py"]),)),
)
UNSEEN = (
    Kind("no-environment", (trainer(command=["python3", "-E", "/training/small.py"]),), outcome=left("PythonIsolated")),
    Kind("no-site", (trainer(command=["python3", "-S", "/training/small.py"]),
                     env(PYTHONPATH="/usr/lib/python3/dist-packages")), outcome=left("PythonIsolated")),
    Kind("isolated-by-shell", (shell("python3 -I /training/small.py; exit $?"),), outcome=UNPROBED),
    Kind("emptied-environment", (shell(f"env -i PATH=$PATH OMP_NUM_THREADS=1 {TRAIN}; exit $?"),), outcome=UNPROBED),
    Kind("shell-alone", (shell('for i in 0 1 2 3 4 5 6 7 8 9; do echo "step=$i epoch=0 loss=0.$i"; sleep 0.3; done'),),
         outcome=UNPROBED),
    Kind("without-torch", (trainer(command=[
        "python3", "-c", "for i in range(10): print(f'step={i} epoch=0 loss={i / 10}')"]),), outcome=UNPROBED),
    Kind("mount-clash", (mounted("mine", "/opt/precisionprobe", emptyDir={}),), outcome=left("MountPathClash")),
    Kind("name-clash", (mounted("precisionprobe-hook", "/mine", emptyDir={}),), outcome=left("NameClash")),
    Kind("pod-resources", (spec(resources={"requests": SMALL, "limits": {"cpu": "2", "memory": "2Gi"}}), resources()),
         outcome=left("PodLevelResources")),
)
NETWORKS = (
    Kind("host-network-with-dns", (spec(hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet"),)),
    Kind("dns-default", (spec(dnsPolicy="Default"),)),
    Kind("dns-own", (spec(dnsPolicy="None", dnsConfig={"nameservers": ["203.0.113.53"]}),)),
    Kind("named-host", (spec(hostname="worker-0", subdomain="ring",
                             hostAliases=[{"ip": "127.0.0.2", "hostnames": ["master"]}]),)),
)
PROCESSES = (
    Kind("two-ranks", (words("--ranks=2", "--steps=20"),)),
    Kind("loader-workers", (words("--workers=2"), mounted("shm", "/dev/shm", emptyDir={"medium": "Memory"}))),
    Kind("thread", (words("--thread"),)),
    # Since 3.12 Python warns, in the main module, of a fork in a process that has threads; the hook's is one.
    Kind("fork", (trainer(command=["python3", "-W", "ignore::DeprecationWarning", "/training/small.py"]), words("--fork")),
         outcome=UNPROBED),
    Kind("child", (words("--child"),)),
)
AMOUNTS = (
    Kind("best-effort", (resources(),)),
    Kind("burstable", (resources(requests=SMALL, limits={"memory": "1Gi"}),)),
    Kind("ephemeral-limit", (resources(requests=SMALL, limits={"ephemeral-storage": "1Gi"}),)),
    Kind("gpu", (resources(requests=SMALL, limits={"nvidia.com/gpu": 1}),), "Job"),
    Kind("quota", (resources(requests=SMALL),), "Job", space={},
         objects=(quota(pods="1", requests__cpu="20m", requests__memory="64Mi"),)),
    Kind("limit-range", (resources(requests={"cpu": "50m", "memory": "300Mi"}),), "Job", space={},
         objects=(limits(type="Container", min={"cpu": "50m", "memory": "300Mi"}),)),
)
# With injection.memory, which BASE of the harness sets.
TIGHT = (
    Kind("quota-tight", (resources(requests=SMALL),), "Job", space={},
         objects=(quota(requests__memory="100Mi"),), outcome=left("QuotaExceeded")),
    Kind("limit-range-tight", (resources(requests=SMALL, limits={"cpu": "1", "memory": "700Mi"}),), "Job", space={},
         objects=(limits(type="Pod", max={"memory": "800Mi"}),), outcome=left("LimitRangeExceeded")),
)
EXITS = (
    Kind("status-3", (words("--exit=3"),), exits=3),
    Kind("exception", (words("--raise"),), exits=1),
    Kind("aborted", (shell(f"{TRAIN} --abort; exit $?"),), exits=134),
    Kind("out-of-memory", (words("--eat"), resources(requests=SMALL, limits={"memory": "600Mi"})), exits=137),
    Kind("life-cycle", (trainer(lifecycle={"postStart": {"exec": {"command": ["true"]}},
                                           "preStop": {"exec": {"command": ["true"]}}},
                                livenessProbe={"exec": {"command": ["true"]}, "timeoutSeconds": 20}),)),
)
ENDED = (
    Kind("evicted", act="evict", exits=143),
    Kind("deleted", act="delete", exits=143),
    Kind("deadline", (words("--steps=100000"),), "Job", exits=143, log_goes=True, owner_spec={"activeDeadlineSeconds": 90}),
)
PRESSURE = (
    Kind("evicted-by-kubelet", (words("--fill=/var/tmp/much"), resources(
        requests=SMALL, limits={"ephemeral-storage": "32Mi"})), exits=137, log_goes=True),
)
ORDINARY = (
    Kind("ordinary-pod"),
    Kind("ordinary-job", owner="Job"),
    Kind("ordinary-killed", (shell(f"{TRAIN} --kill; exit $?"),), "Job", exits=137),
)

TEN = "the ten that tell most"
# Name: (values of the release, kinds).
WAVES = {
    TEN: ({}, TELLING),
    "owners": ({}, OWNERS),
    "jobs": ({}, JOBS),
    "containers": ({}, CONTAINERS),
    "security": ({}, SECURITY),
    "by the pod": ({}, BY_POD),
    "by the image": ({}, BY_IMAGE),
    "commands": ({}, COMMANDS),
    "without the probe": ({}, UNSEEN),
    "networks": ({}, NETWORKS),
    "processes": ({}, PROCESSES),
    "tight amounts": ({}, TIGHT),
    "a full node": ({}, (Kind("full-node", owner="Job", fills=True),)),
    "exits": ({}, EXITS),
    "ended by others": ({}, ENDED),
    "evicted by the kubelet": ({}, PRESSURE),
    "amounts as shipped": ({"config__injection__memory": ""}, AMOUNTS),
    "without native sidecars": ({"config__injection__nativeSidecar": "Never"}, ORDINARY),
}
EVERY = [kind for _, some in WAVES.values() for kind in some]
