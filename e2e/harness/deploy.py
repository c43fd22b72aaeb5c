"""What is built and put on the cluster: images, Prometheus, Postgres, virtual GPUs, the operator, trainings."""
import fcntl
import glob
import hashlib
import json
import os
import shutil
import tempfile
import threading

from .cluster import E2E, SHARED
from . import driver
from .progress import CACHE, LOGS, ROOT, CommandError, project_files, run, run_shown, say, step, wait_until

SERVICES = os.environ.get("PP_E2E_NAMESPACE", "precisionprobe-e2e")  # Prometheus, Postgres, GPUs, trainings
SYSTEM = os.environ.get("PP_SYSTEM_NAMESPACE", "precisionprobe")  # the operator
RELEASE = os.environ.get("PP_E2E_RELEASE", "precisionprobe")
NAME = RELEASE if "precisionprobe" in RELEASE else f"{RELEASE}-precisionprobe"  # of its objects
CRDS = ("profilesessions.precisionprobe.io", "consumptionpatterns.precisionprobe.io")
MARK = "precisionprobe.io/e2e"  # label of the namespaces that demo and tests have made
PRODUCT_IMAGE = "docker.io/precisionprobe/precisionprobe"
EVLIB = "/usr/lib/*/libwebsockets-evlib_uv.so"

held = None  # the lock on this clone's builds


def sources_key():
    """Changes when anything that goes into the programs does."""
    digest = hashlib.sha256()
    for name in project_files("CMakeLists.txt", "CMakePresets.json", "cmake", "common", "controller", "docs/openapi", "e2e/setup",
                              "estimate", "operator", "page", "sidecar"):
        digest.update(name.encode() + b"\0")
        with open(os.path.join(ROOT, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:12]


def build_folder(name):
    """A folder for builds of this clone: each clone has its own, held by one process (and its children) until it ends."""
    global held
    own = os.path.join(CACHE, "build", hashlib.sha256(ROOT.encode()).hexdigest()[:8])
    if not held and os.environ.get("PP_BUILDS_HELD") != own:
        os.makedirs(own, exist_ok=True)
        held = open(f"{own}.lock", "w", encoding="utf-8")
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say(f"waiting for another run that builds in {own}")
            fcntl.flock(held, fcntl.LOCK_EX)
        with open(os.path.join(own, "source"), "w", encoding="utf-8") as file:
            file.write(ROOT)
        os.environ["PP_BUILDS_HELD"] = own
        forget_builds_of_lost_clones()
    return os.path.join(own, name)


def forget_builds_of_lost_clones():
    for note in glob.glob(os.path.join(CACHE, "build", "*", "source")):
        with open(note, encoding="utf-8") as file:
            if not os.path.isdir(file.read()):
                shutil.rmtree(os.path.dirname(note), ignore_errors=True)


def source_link():
    """The clone by a name beside its builds: commands of two clones differ in nothing that is relative to these, so that most of
    what one has compiled serves the other."""
    link = build_folder("clone")
    if not os.path.islink(link) or os.readlink(link) != ROOT:
        made = f"{link}-{threading.get_native_id()}"  # renamed: whoever reads it finds the one or the other
        os.symlink(ROOT, made)
        os.replace(made, link)
    return link


def is_of(build, source):
    """Whether a folder is new, or has been configured for these sources: CMake takes no others."""
    try:
        with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as cached:
            return f"CMAKE_HOME_DIRECTORY:INTERNAL={source}\n" in cached.readlines()
    except FileNotFoundError:
        return True


def configure(name, *options):
    """Configures a build folder in the cache."""
    build, source = build_folder(name), source_link()
    fresh = [] if is_of(build, source) else ["--fresh"]
    run("cmake", *fresh, "-S", source, "-B", build, *options, timeout=120, log="build.log")
    return build


def zig():
    """The compiler of the hook that users get, and that is tested; shows its own progress where it is missing."""
    return run_shown(f"{E2E}/setup", "--zig")


def configure_preset(preset):
    """Compiled files outlive a clone, so that a new one in its place compiles only what differs."""
    return configure(preset, "--preset", preset, f"-DPP_HOOK_ZIG={zig()}", "-DCMAKE_C_COMPILER_LAUNCHER=ccache")


def compile_in(build, *targets):
    """These targets, or everything."""
    run("cmake", "--build", build, "-j2", *(["--target", *targets] if targets else []), timeout=1200, log="build.log",
        env={"ZIG_GLOBAL_CACHE_DIR": build_folder("zig-cache"), "CCACHE_DIR": os.path.join(CACHE, "ccache"),
             "CCACHE_BASEDIR": os.path.dirname(build), "CCACHE_NOHASHDIR": "1", "CCACHE_MAXSIZE": "2G"})


COMPILING = threading.Lock()  # one in a folder; and one has enough to do for all processors


def compile_preset(preset):
    """Compiles everything with a preset; returns the build folder."""
    with COMPILING:
        build = configure_preset(preset)
        compile_in(build)
    return build


def aarch64_root():
    """The root file system of arm64 packages; shows its own progress where it is missing."""
    return run_shown(f"{E2E}/aarch64/root")


def compile_aarch64(preset="release"):
    """Compiles everything for aarch64, as users get it; returns the build folder. The cached settings go: they name the
    root file system's files, and it may be another one."""
    build = configure("aarch64", "--fresh", "--preset", preset, f"-DPP_HOOK_ZIG={zig()}", "-DCMAKE_C_COMPILER_LAUNCHER=ccache",
                      f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/cmake/aarch64.cmake", f"-DPP_AARCH64_ROOT={aarch64_root()}")
    compile_in(build)
    return build


def install_programs(preset, prefix, *options, compiled=compile_preset):
    """Compiles everything with a preset, and puts below `prefix`, which is made anew, what users get."""
    zig()
    with step(f"programs ({preset})"):
        build = compiled(preset)
        run("rm", "-rf", prefix)
        run("cmake", "--install", build, "--prefix", prefix, *options, log="build.log")


def build_product(preset="release", tag=None, foreign=False):
    """Compiles the programs and makes their image; returns (archive, image). Kept in the cache by sources and tag.

    Foreign: for aarch64, on another machine.
    """
    key = f"{preset}-{sources_key()}"
    image = f"{PRODUCT_IMAGE}:{tag or key}"
    root = aarch64_root() if foreign else ""
    kind = f"-aarch64-{os.path.basename(root)}" if foreign else ""
    archive = os.path.join(CACHE, "images", f"precisionprobe-{key}{kind}{f'-{tag}' if tag else ''}.tar")
    if os.path.exists(archive):
        return archive, image
    stage = build_folder(f"stage-{preset}{kind}")
    install_programs(preset, f"{stage}/usr", compiled=compile_aarch64 if foreign else compile_preset)
    with step("image of the programs"):
        files = []
        for folder, _, names in os.walk(stage):
            for name in names:
                path = os.path.join(folder, name)
                files += ["--file", f"{path}:/{os.path.relpath(path, stage)}"]
        for path in glob.glob(root + EVLIB):
            files += ["--file", f"{path}:{path.removeprefix(root)}"]
        files += ["--sysroot", root, "--machine", "aarch64"] if foreign else []
        os.makedirs(os.path.dirname(archive), exist_ok=True)
        run(f"{E2E}/images/bundle", "--out", archive, "--tag", image, "--certificates", *files,
            "--entrypoint", "/usr/bin/precisionprobe-operator", log="images.log")
        for old in glob.glob(os.path.join(CACHE, "images", f"precisionprobe-{preset}-*.tar")):
            if not os.path.basename(old).startswith(f"precisionprobe-{key}"):
                os.remove(old)  # of older sources
    return archive, image


class Deployment:
    """Everything on one cluster, with the settings of this run."""

    def __init__(self, cluster, collect_interval="250ms", scrape_interval="250ms", gpus=4, preset="release",
                 steps=400, batch=1408, seed=1):
        self.cluster = cluster
        self.collect_interval = collect_interval
        self.scrape_interval = scrape_interval
        self.preset = preset
        self.environment = {
            "NAMESPACE": SERVICES, "GPUS": str(gpus), "COLLECT_INTERVAL": collect_interval,
            "SCRAPE_INTERVAL": scrape_interval, "TRAIN_STEPS": str(steps), "TRAIN_BATCH": str(batch),
            "TRAIN_SEED": str(seed), "KUBELET_ROOT": cluster.kubelet_root,
        }
        self.image = None
        self.made = []  # what this run adds to the cluster beside the release: kinds and names

    def check_free(self):
        """Refuses a cluster on which somebody else has what would be put there; notes what is there already."""
        cluster = self.cluster
        spaces = {name: cluster.get("namespace", name) for name in (SERVICES, SYSTEM)}
        found = [f"namespace {name}" for name, space in spaces.items()
                 if space and MARK not in space["metadata"].get("labels", {})]
        if not SHARED:
            ours = any(spaces.values()) and not found
            webhooks = cluster.get("mutatingwebhookconfigurations", "-l", "app.kubernetes.io/name=precisionprobe")
            places = [w["metadata"].get("annotations", {}).get("meta.helm.sh/release-namespace")
                      for w in (webhooks or {"items": []})["items"]]
            found += [f"PrecisionProbe, installed in namespace {place}" for place in places
                      if not (ours and place == SYSTEM)]
            gpus = {} if ours else self.gpus()
            found += [f"{count} nvidia.com/gpu on node {node}" for node, count in gpus.items()]
        if found:
            advice = ("Use a cluster without GPUs\nand without PrecisionProbe, or unset KUBECONFIG to have one brought up on "
                      "this machine." if cluster.external else "Take it off, or\nthe whole cluster down (e2e/cluster down).")
            raise CommandError(f"this cluster has already: {'; '.join(found)}.\nIt would clash with what is put there: "
                               f"namespaces {SERVICES} and {SYSTEM}, release {RELEASE}, virtual\nnvidia.com/gpu on every "
                               f"node. Nothing was changed. {advice}")
        crds = [("crd", name) for name in CRDS if not cluster.get("crd", name)]
        self.made = crds + [("namespace", name) for name, space in spaces.items() if not space]

    def remove(self):
        """Takes off the cluster what was not there before check_free()."""
        if ("namespace", SYSTEM) in self.made:
            try:
                self.uninstall()
            except CommandError as error:
                say(str(error))  # not installed, or uninstalled already
        for kind, name in self.made:
            self.cluster.delete(kind, name)
        if ("namespace", SERVICES) in self.made and not SHARED:
            try:
                wait_until("virtual GPUs to go", lambda: not self.gpus(), 60)  # so that another run may begin
            except (CommandError, TimeoutError) as error:
                say(str(error))
        self.made = []

    def build_images(self):
        """The images that are not the product's: [(variable, archive, name)]."""
        wanted = [("VGPU_IMAGE", [f"{E2E}/gpu/build"]), ("TORCH_IMAGE", [f"{E2E}/images/build", "torch"]),
                  ("SERVICES_IMAGE", [f"{E2E}/images/build", "services"])]
        # These show their own progress.
        return [(variable, run_shown(*command), run_shown(command[0], "--image", *command[1:])) for variable, command in wanted]

    def load_images(self):
        archive, image = build_product(self.preset)
        built = self.build_images()
        with step("images on the node"):
            self.image = self.cluster.load(archive, image)
            for variable, path, name in built:
                self.environment[variable] = self.cluster.load(path, name)

    def render(self, *files, **variables):
        """The manifests with this run's values, `variables` before them."""
        return run(f"{E2E}/manifests/render", *[f"{E2E}/manifests/{name}" for name in files],
                   env={**self.environment, **variables})

    def start_services(self, gpus=True):
        """Virtual GPUs, Prometheus and Postgres; returns when they serve."""
        cluster = self.cluster
        with step("virtual GPUs, Prometheus, Postgres" if gpus else "Prometheus, Postgres"):
            cluster.apply(self.render("namespace.yaml", *["vgpu.yaml"] * gpus, "prometheus.yaml", "postgres.yaml"))
            if gpus:
                cluster.kubectl("-n", SERVICES, "rollout", "status", "daemonset/vgpu", "--timeout=120s")
            cluster.kubectl("-n", SERVICES, "rollout", "status", "deployment/prometheus", "--timeout=120s")
            cluster.kubectl("-n", SERVICES, "rollout", "status", "statefulset/postgres", "--timeout=120s")
            if gpus:
                wait_until("GPUs on a node", self.gpus, 60)
            text = run("kubectl", "-n", SERVICES, "create", "configmap", "training",
                       f"--from-file={E2E}/training", "--dry-run=client", "-o", "yaml", env=cluster.environment)
            cluster.apply(text)

    def put_driver(self, **settings):
        """The virtual GPU's driver as the ConfigMap `vgpu-driver`; `settings` as driver.lay_out() has them."""
        build = configure_preset(self.preset)
        compile_in(build, "vgpu_cuda", "vgpu_cupti", "vgpu_nvml")
        with tempfile.TemporaryDirectory() as folder:
            driver.lay_out(os.path.join(build, "e2e/gpu/driver"), folder, "/dev/shm/vgpu-timeline", **settings)
            self.cluster.delete("-n", SERVICES, "configmap", "vgpu-driver")
            self.cluster.kubectl("-n", SERVICES, "create", "configmap", "vgpu-driver", f"--from-file={folder}")

    def gpus(self):
        """{node: its allocatable nvidia.com/gpu}, of the nodes that have any."""
        counts = {n["metadata"]["name"]: int(n["status"].get("allocatable", {}).get("nvidia.com/gpu", 0))
                  for n in self.cluster.get("nodes")["items"]}
        return {node: count for node, count in counts.items() if count}

    def helm_values(self):
        repository, tag = self.image.rsplit(":", 1)
        return ["--set", f"image.repository={repository}", "--set-string", f"image.tag={tag}",
                "--set", "postgres.existingSecret=postgres", "--set", "postgres.secretKey=conninfo",
                "--set", f"config.prometheus.url=http://prometheus.{SERVICES}.svc:9090",
                "--set", f"config.prometheus.collectionInterval={self.collect_interval}",
                "--set", f"config.prometheus.scrapeInterval={self.scrape_interval}",
                "--set", "config.metrics.workloads=200"]

    def install(self, *more):
        """helm upgrade --install of the operator; returns when it is ready."""
        cluster = self.cluster
        with step("helm install precisionprobe"):
            cluster.apply(self.render("namespace.yaml", NAMESPACE=SYSTEM))
            secret = cluster.get("-n", SERVICES, "secret", "postgres")
            secret["metadata"] = {"name": "postgres", "namespace": SYSTEM}
            cluster.apply(json.dumps(secret))
            cluster.helm("upgrade", "--install", RELEASE, f"{ROOT}/charts/precisionprobe", "-n", SYSTEM,
                         *self.helm_values(), *more, "--wait", "--timeout", "120s")

    def uninstall(self):
        self.cluster.helm("uninstall", RELEASE, "-n", SYSTEM, "--wait", "--timeout", "90s")


__all__ = ["Deployment", "SERVICES", "SYSTEM", "RELEASE", "NAME", "build_product", "LOGS"]
