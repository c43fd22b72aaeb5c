"""An operator alone: the program as it is built, a Postgres of its own, and in place of a cluster a small API server that
knows objects, tokens and who may what. For tests and measurements of what it serves, where a cluster would only be slow.

    with postgres() as conninfo, Kubernetes() as kubernetes, Operator(PROGRAM, kubernetes, conninfo) as operator:
        operator.get("/api/v1/sessions", token="...")
"""
import base64
import contextlib
import copy
import http.client
import http.server
import json
import os
import re
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.parse

from .progress import ROOT

NAMESPACE = NAME = "precisionprobe"
HOST = f"{NAME}.{NAMESPACE}.svc"
AUDIENCE = "precisionprobe"
PATH = re.compile(r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/(?P<ns>[^/]+)(?=/))?/(?P<plural>[^/]+)"
                  r"(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?$")
PATIENCE = 60


def merge(object_, patch):
    """RFC 7386."""
    for key, value in patch.items():
        if value is None:
            object_.pop(key, None)
        elif isinstance(value, dict):
            object_[key] = merge(object_.get(key) if isinstance(object_.get(key), dict) else {}, value)
        else:
            object_[key] = value
    return object_


def operate(object_, operations):
    """RFC 6902, as far as the operator asks for it: `add` of a whole member."""
    for one in operations:
        assert one["op"] == "add" and one["path"].count("/") == 1, one
        object_[one["path"][1:]] = one["value"]
    return object_


class Kubernetes:
    """`tokens`: {token: its user, as a TokenReview has it}, for the API server's own audience; `agents`: the same for the
    operator's. `may(user, attributes)`: whether that user may, as a SubjectAccessReview asks."""

    def __init__(self):
        self.tokens, self.agents, self.may = {}, {}, lambda user, attributes: True
        self.asked = []  # (what was reviewed, its spec)
        self.objects = {}  # {(group, plural): {(namespace, name): object}}
        self.version = 1
        self.events = []  # (version, group and plural, event), for watches
        self.changed = threading.Condition()
        self.over = False

    # --- objects ---

    def put(self, group, plural, object_, kind="MODIFIED"):
        """Keeps it under a new version; returns it as it is kept."""
        meta = object_["metadata"]
        with self.changed:
            self.version += 1
            meta["resourceVersion"] = str(self.version)
            meta.setdefault("uid", f"uid-{self.version}")
            meta.setdefault("creationTimestamp", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
            self.objects.setdefault((group, plural), {})[meta.get("namespace", ""), meta["name"]] = object_
            self.events.append((self.version, (group, plural), {"type": kind, "object": copy.deepcopy(object_)}))
            self.changed.notify_all()
        return object_

    def add(self, group, plural, object_):
        return self.put(group, plural, object_, "ADDED")

    def find(self, group, plural, ns, name):
        return self.objects.get((group, plural), {}).get((ns or "", name))

    # --- reviews ---

    def review_token(self, spec):
        known = self.agents if AUDIENCE in spec.get("audiences", []) else self.tokens
        user = known.get(spec.get("token"))
        return {"authenticated": user is not None, "user": user or {}, "audiences": spec.get("audiences", [])}

    def review(self, plural, body):
        spec = body.get("spec", {})
        self.asked.append((plural, spec))
        if plural == "tokenreviews":
            status = self.review_token(spec)
        elif plural == "subjectaccessreviews":
            status = {"allowed": bool(self.may(spec.get("user"), spec.get("resourceAttributes", {})))}
        else:
            status = {"allowed": True}
        return {**body, "status": status}

    # --- the server ---

    def __enter__(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        return self

    def __exit__(self, *_):
        self.over = True
        with self.changed:
            self.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()


def handler_of(kubernetes):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one segment for an answer

        def log_message(self, *_):
            pass

        def answer(self, object_, status=200):
            body = json.dumps(object_).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

        def refuse(self, status, reason):
            self.answer({"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": reason}, status)

        def target(self):
            """(group, plural, namespace, name, parameters); None: no path of an object."""
            url = urllib.parse.urlsplit(self.path)
            match = PATH.match(url.path)
            parameters = dict(urllib.parse.parse_qsl(url.query))
            return match and (match["group"] or "", match["plural"], match["ns"], match["name"], parameters)

        def body(self):
            return json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")

        def do_GET(self):
            if self.path == "/version":
                return self.answer({"major": "1", "minor": "32", "gitVersion": "v1.32.0"})
            if not self.target():
                return self.refuse(404, "NotFound")
            group, plural, ns, name, parameters = self.target()
            if parameters.get("watch") in ("1", "true"):
                return self.watch(group, plural, ns, parameters)
            if name:
                found = kubernetes.find(group, plural, ns, name)
                return self.answer(found) if found else self.refuse(404, "NotFound")
            with kubernetes.changed:
                items = [o for (where, _), o in kubernetes.objects.get((group, plural), {}).items() if not ns or where == ns]
                version = str(kubernetes.version)
            return self.answer({"kind": "List", "metadata": {"resourceVersion": version}, "items": items})

        def watch(self, group, plural, ns, parameters):
            if "sendInitialEvents" in parameters:  # as an API server that is too old for it
                return self.refuse(422, "Invalid")
            last = int(parameters.get("resourceVersion") or 0)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.flush()
            with contextlib.suppress(OSError):
                while not kubernetes.over:
                    with kubernetes.changed:
                        kubernetes.changed.wait_for(lambda: kubernetes.over or kubernetes.version > last, 30)
                        fresh = [e for v, of, e in kubernetes.events if v > last and of == (group, plural)
                                 and (not ns or e["object"]["metadata"].get("namespace") == ns)]
                        last = kubernetes.version
                    for event in fresh:
                        line = json.dumps(event).encode() + b"\n"
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                    self.wfile.flush()
            self.close_connection = True

        def do_POST(self):
            body = self.body()
            if not self.target():
                return self.refuse(404, "NotFound")
            group, plural, ns, name, _ = self.target()
            if plural.endswith("reviews"):
                return self.answer(kubernetes.review(plural, body), 201)
            if plural == "events":
                return self.answer(body, 201)
            if ns:
                body["metadata"].setdefault("namespace", ns)
            if kubernetes.find(group, plural, ns, name or body["metadata"]["name"]):
                return self.refuse(409, "AlreadyExists")
            return self.answer(kubernetes.add(group, plural, body), 201)

        def change(self, by):
            body = self.body()
            group, plural, ns, name, _ = self.target() or ("", "", "", "", {})
            old = kubernetes.find(group, plural, ns, name)
            if not old:
                return self.refuse(404, "NotFound")
            return self.answer(kubernetes.put(group, plural, by(old, body)))

        def do_PUT(self):
            self.change(lambda old, body: {**body, "metadata": {**body["metadata"], "uid": old["metadata"]["uid"]}})

        def do_PATCH(self):
            self.change(lambda old, body: (merge if isinstance(body, dict) else operate)(copy.deepcopy(old), body))

        def do_DELETE(self):
            self.body()
            self.answer({"kind": "Status", "status": "Success"})

    return Handler


@contextlib.contextmanager
def postgres():
    """A Postgres of its own (operator/store/tests/postgres), gone afterwards; its connection string."""
    script = os.path.join(ROOT, "operator/store/tests/postgres")
    with tempfile.TemporaryDirectory(prefix="pp-alone-") as folder:
        state = os.path.join(folder, "state")
        subprocess.run([script, "start", state], check=True, timeout=600)
        try:
            with open(state, encoding="utf-8") as file:
                place = file.read().strip()
            with open(os.path.join(place, "conninfo"), encoding="utf-8") as file:
                yield file.read().strip()
        finally:
            subprocess.run([script, "stop", state], check=False, timeout=60)


def psql(conninfo, sql):
    """What it prints, without headers."""
    done = subprocess.run(["psql", "-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", "-d", conninfo], input=sql, text=True,
                          capture_output=True, check=False, timeout=300)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.strip()


class Connection(http.client.HTTPSConnection):
    """To the operator on this machine, which has to show the certificate of its Service."""

    def connect(self):
        super(http.client.HTTPSConnection, self).connect()
        self.sock = self._context.wrap_socket(self.sock, server_hostname=HOST)


class Operator:
    """`values`: options of the configuration (a.b given as a__b) beside those that are needed here. `said`: its whole log, once it
    has stopped."""

    def __init__(self, program, kubernetes, conninfo, **values):
        self.program, self.kubernetes, self.conninfo, self.values = program, kubernetes, conninfo, values

    def configure(self):
        conninfo, kubeconfig = os.path.join(self.folder.name, "conninfo"), os.path.join(self.folder.name, "kubeconfig")
        with open(conninfo, "w", encoding="utf-8") as file:
            file.write(self.conninfo)
        cluster = {"name": "alone", "cluster": {"server": self.kubernetes.url}}
        context = {"name": "alone", "context": {"cluster": "alone", "user": "alone", "namespace": NAMESPACE}}
        with open(kubeconfig, "w", encoding="utf-8") as file:
            json.dump({"clusters": [cluster], "users": [{"name": "alone", "user": {"token": "alone"}}], "contexts": [context],
                       "current-context": "alone"}, file)
        options = {"http__tlsPort": 0, "http__plainPort": 0, "http__bindAddress": "127.0.0.1", "http__drain": "0s",
                   "kubernetes__kubeconfig": kubeconfig, "postgres__conninfoFile": conninfo, "lease__enabled": False,
                   "webhook__configurationName": "", "injection__image": "alone", "injection__nativeSidecar": "Always", "metrics__workloads": 200,
                   **self.values}
        config = {}
        for name, value in options.items():
            group, option = name.split("__")
            config.setdefault(group, {})[option] = value
        path = os.path.join(self.folder.name, "config.yaml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)  # which is YAML, too
        return path

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="pp-alone-")
        self.log = os.path.join(self.folder.name, "log")
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([self.program, "--config", self.configure()], stderr=log, stdout=log)
        try:
            self.await_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def text(self):
        """Its log."""
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def await_ready(self):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            ports = re.search(r"webhook on port (\d+), metrics and health on port (\d+)", self.text())
            if ports:
                self.port, self.plain_port = map(int, ports.groups())
                secret = self.kubernetes.find("", "secrets", NAMESPACE, f"{NAME}-tls")["data"]
                self.ca = base64.b64decode(secret["ca.crt"]).decode()
                self.review_path = f"/{base64.b64decode(secret['webhook-path']).decode()}/pods"
                if self.is_ready():
                    return
            time.sleep(0.05)
        raise RuntimeError(f"the operator is not ready:\n{self.text()}")

    def is_ready(self):
        with contextlib.suppress(OSError):
            return self.plain("/readyz")[0] == 200 and "Postgres: " in self.text()
        return False

    def plain(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.plain_port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def connection(self, timeout=PATIENCE):
        return Connection("127.0.0.1", self.port, timeout=timeout, context=ssl.create_default_context(cadata=self.ca))

    def get(self, path, token=None, method="GET", connection=None, **headers):
        """(status, headers, bytes) by a connection of its own, or by one that stays."""
        used = connection or self.connection()
        try:
            bearer = {"Authorization": f"Bearer {token}"} if token else {}
            used.request(method, path, headers={**bearer, **headers})
            answer = used.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            if not connection:
                used.close()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.said = self.text()
        self.folder.cleanup()

    def __exit__(self, *_):
        self.stop()
