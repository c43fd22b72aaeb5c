#!/usr/bin/env python3
"""Checks the Helm chart without a cluster: chart.py [--helm HELM] [--operator PROGRAM].

The CRD's descriptions and its copy, the values' schema against docs/configuration.md, lint, what is rendered for several
values, and, with --operator, the rendered configuration by the operator's own parser.
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "precisionprobe"
# What the chart itself sets, or what makes no sense in a pod.
NOT_IN_VALUES = {"injection.image", "injection.imagePullPolicy", "postgres.conninfoFile", "http.tlsPort",
                 "http.plainPort", "owner.deployment", "sessions.ttlSecondsAfterFinished", "webhook.clientCaFile", "webhook.configurationName", "webhook.secretName",
                 "webhook.serviceName", "webhook.reviewServiceName", "webhook.serviceNamespace", "lease.enabled", "lease.name",
                 "lease.namespace", "kubernetes.kubeconfig"}
CONFIG = "precisionprobe.io/config"
IMAGE = "image.repository=registry.example/team/precisionprobe"
FAILURES = []
ARGS = None


def check(name, ok, detail=""):
    print(f"{'ok  ' if ok else 'FAIL'} {name}{'' if ok else ': ' + detail.strip()}")
    if not ok:
        FAILURES.append(name)


def helm(*args):
    done = subprocess.run([ARGS.helm, *args], text=True, capture_output=True)
    return done.returncode, done.stdout, done.stderr


def render(*sets, release="precisionprobe", namespace="system"):
    # --set makes texts of fractions, and numbers of texts.
    flags = ["--set", IMAGE] + [word for value in sets for word in ("--set-json" if value.endswith((".5", '"')) else "--set", value)]
    return helm("template", release, str(CHART), "-n", namespace, "--kube-version", "1.36.3", *flags)


def documents(text):
    return [part for part in re.split(r"(?m)^---\s*$", text) if re.search(r"(?m)^kind:", part)]


def kinds(text):
    return sorted(re.search(r"(?m)^kind: (\w+)", part)[1] for part in documents(text))


def template_of(text):
    """Of the operator's pods."""
    return next(d for d in map(yaml.safe_load, documents(text)) if d["kind"] == "Deployment")["spec"]["template"]


def config_of(text):
    return template_of(text)["metadata"]["annotations"][CONFIG]


def undescribed(schema, path=""):
    """Fields of which `kubectl explain` would say nothing."""
    for name, field in schema.get("properties", {}).items():
        if path or name in ("spec", "status"):
            yield from [f"{path}.{name}"] if "description" not in field else []
            yield from undescribed(field, f"{path}.{name}")
            yield from undescribed(field.get("items", {}), f"{path}.{name}[]")


def check_copies():
    for name in ("consumptionpattern", "profilesession"):
        crd = yaml.safe_load((ROOT / f"crds/{name}.yaml").read_text())
        bare = list(undescribed(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))
        check(f"every field of the CRD {name} is described", not bare, ", ".join(bare))
        check(f"the chart has the CRD {name}", (CHART / f"files/{name}.yaml").resolve() == ROOT / f"crds/{name}.yaml",
              f"files/{name}.yaml is no link to it")
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    rules = " ".join(rule["rule"] for rule in spec["x-kubernetes-validations"])
    free = [name for name in spec["properties"] if not re.search(rf"\boldSelf\.{name}\b", rules)]
    check("what can be changed of a session", sorted(free) == ["suspend", "ttlSecondsAfterFinished"], ", ".join(free))
    rows = set(re.findall(r"(?m)^\| `([a-z]+\.\w+)` \|", (ROOT / "docs/configuration.md").read_text()))
    groups = json.loads((CHART / "values.schema.json").read_text())["properties"]["config"]["properties"]
    known = {f"{group}.{key}" for group, value in groups.items() for key, field in value.get("properties", {}).items()
             if not field.get("description", "").startswith("The former name")}
    check("the schema knows every option", rows - NOT_IN_VALUES == known,
          f"differing: {sorted((rows - NOT_IN_VALUES) ^ known)}")


SECONDS = {"h": 3600, "m": 60, "s": 1}


def limits_of(text):
    """("1s to 3600s") -> (1, 3600), in seconds; None where there is no such limit."""
    numbers = [float(number) * SECONDS.get(unit, 1) for number, unit in re.findall(r"([0-9.]+)([hms]?)\b", text)]
    if text.startswith("at most"):
        numbers = [0, *numbers]
    return tuple(numbers) if len(numbers) == 2 else None


def check_limits():
    """What the chart takes of numbers and durations is what the operator takes."""
    rows = re.findall(r"(?m)^\| `([a-z]+\.\w+)` \| (integer|number|duration) \| [^|]* \| ([^|]*) \|",
                      (ROOT / "docs/configuration.md").read_text())
    wanted = {path: (kind, limits_of(limits.strip())) for path, kind, limits in rows if path not in NOT_IN_VALUES}
    groups = json.loads((CHART / "values.schema.json").read_text())["properties"]["config"]["properties"]
    helpers = (CHART / "templates/_helpers.tpl").read_text()
    durations = yaml.safe_load(re.search(r'(?s)define "precisionprobe.durationLimits" -}}\n(.*?){{', helpers)[1])
    known = {path: ("duration", tuple(limits)) for path, limits in durations.items()}
    for group, value in groups.items():  # a former name refers to today's, and has none of its own
        for key, field in value.get("properties", {}).items():
            if field.get("type") in ("integer", "number"):
                known[f"{group}.{key}"] = (field["type"], (field.get("minimum"), field.get("maximum")))
    check("the chart's limits are the operator's", wanted == known, f"differing: {sorted(wanted.items() ^ known.items())}")


def open_objects(schema, path=""):
    """Objects that take any key."""
    if isinstance(schema, list):
        for item in schema:
            yield from open_objects(item, path)
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        yield path, schema.get("additionalProperties")
    for key, value in schema.items():
        if key in ("properties", "definitions"):
            for name, field in value.items():
                yield from open_objects(field, f"{path}/{name}")
        elif key not in ("if", "then", "else"):
            yield from open_objects(value, path)


def check_closed():
    """Every key is known, but of Kubernetes' own objects and of texts by name."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    passed = {path for path, values in open_objects(schema) if values is None}
    check("keys are known", passed == {"/objects", "/affinity/nodeAffinity", "/affinity/podAffinity",
                                       "/affinity/podAntiAffinity", "/global"}, str(sorted(passed)))
    maps = {path for path, values in open_objects(schema) if values is not None}
    check("values of free keys are known", maps == {"/texts", "/quantities"}, str(sorted(maps)))


WRONG_VALUES = (
    "config.prometheus.url=not-a-url", "config.prometheus.url=ftp://p", 'config.prometheus.url="http://p 9090"',
    "config.prometheus.caFile=ca.crt", "config.prometheus.bearerTokenFile=token", "config.prometheus.preset=intel",
    "config.prometheus.maxWait=soon", 'config.prometheus.maxLag="0"', "config.prometheus.maxWait=0s",
    "config.prometheus.queryTimeout=10h", "config.retention.results=876001h", "config.retention.interval=500ms",
    "config.attribution.solveInterval=61m", "config.postgres.connectTimeout=999999999h",
    "config.injection.cpu=lots", "config.injection.memory=64MB", "config.injection.cpu=-1", "config.sampling.memory=much", "config.fine.memory=much",
    "config.injection.gpuResources[0]=nvidia.com gpu", 'config.injection.gpuResources[0]=""',
    "config.injection.release=perhaps", "config.injection.nativeSidecar=always", "config.ingest.endpoint=ws://x/y",
    "config.api.connections=0", "config.api.queryTimeout=1h", "config.api.enabled=perhaps",
    "config.page.enabled=perhaps", "config.page.openPort=65536", "config.page.openPort=open",
    "config.ingest.maxConnections=0", "config.ingest.maxConnections=many", "config.http.bindAddress=localhost",
    "config.kubernetes.namespace=ML", "config.kubernetes.requestsPerSecond=0", "config.log.level=loud",
    "config.sampling.periodMicroseconds=1", "config.attribution.maxStandardErrorPoints=51",
    "resources.limits.memory=big", "resources.requests.cpu=-1", 'resources.limits.cpu=""', "resources.limit.cpu=1",
    "podMonitor.enabled=perhaps", "podMonitor.interval=often", "prometheusRule.labels.a=1", "dashboards.folder=x",
    "config.metrics.layers=0", "config.metrics.workloads=1001", "image.repository=not an image", "image.tag=a:b", "image.digest=sha256:12", "image.pullPolicy=Sometimes",
    "image.pullSecrets[0]=A_B", "postgres.existingSecret=My_Secret", "postgres.secretKey=a/b", "replicaCount=-1",
    "replicaCount=many", "webhook.timeoutSeconds=0", "webhook.timeoutSeconds=10", "webhook.clientCA.key=../ca.crt",
    "webhook.objectSelector[0].key=a", "sessions.ttlSecondsAfterFinished=0", "sessions.ttlSecondsAfterFinished=31536001",
    "sessions.ttlSecondsAfterFinished=7d", "service.httpsPort=0", "service.metricsPort=65536", "service.annotations.a=1",
    "serviceAccount.name=Me", "serviceAccount.annotations=none", "fullnameOverride=A_B", "nameOverride=a b",
    "podAnnotations.a=1", "podLabels.a=true", "nodeSelector.gpu=true", "tolerations[0]=gpu", "affinity.node=a",
    "extraVolumes[0]=a", "extraVolumeMounts[0]=a", "priorityClassName=High_One", "tests.enabled=1",
)


def check_refused():
    for name, sets, message in (
            ("no Secret", [], "postgres.existingSecret is needed"),
            ("no image", ["postgres.existingSecret=pg", "image.repository="], "image.repository is needed"),
            ("a digest of no image", ["postgres.existingSecret=pg", "image.repository=", f"image.digest=sha256:{'0' * 64}"], "image.repository is needed"),
            ("unknown option", ["postgres.existingSecret=pg", "config.prometheus.ur=x"], "'ur' not allowed"),
            ("unknown value", ["postgres.existingSecret=pg", "replicas=2"], "'replicas' not allowed"),
            ("an operator without values", ["postgres.existingSecret=pg", "webhook.objectSelector[0].key=a",
                                                "webhook.objectSelector[0].operator=In"], "/webhook/objectSelector/0")):
        rc, _, err = render(*sets)
        check(f"refused: {name}", rc != 0 and message in err, err or "was rendered")
    for wrong in WRONG_VALUES:
        path = re.split(r"[.\[]", wrong.split("=")[0].replace("]", ""))
        rc, _, err = render("postgres.existingSecret=pg", wrong)
        field = "/" + "/".join(path) in err or ".".join(path) in err
        unknown = any(f"at '/{'/'.join(path[:i])}': additional properties '{path[i]}' not allowed" in err
                      for i in range(len(path)))
        lacking = f"at '/{'/'.join(path[:-1])}': missing property" in err
        check(f"refused: {wrong}", rc != 0 and (field or unknown or lacking), err or "was rendered")


def webhooks(text):
    """By their names' first word."""
    part = next(p for p in documents(text) if re.search(r"(?m)^kind: MutatingWebhookConfiguration", p))
    return {hook["name"].split(".")[0]: hook for hook in yaml.safe_load(part)["webhooks"]}


def check_webhooks(plain):
    hooks = webhooks(plain)
    asks = {name: [(e["operator"], e["values"]) for e in hook["namespaceSelector"]["matchExpressions"]
                   if e["key"] == "precisionprobe.io/inject"]
            for name, hook in hooks.items() if name != "sessions"}
    check("each pod comes by one webhook", asks == {"pods": [("NotIn", ["true"])], "labelled": [("In", ["true"])]},
          str(asks))
    check("the webhook that is told of sessions",
          {hook["sideEffects"] for hook in hooks.values()} == {"None"}
          and hooks["sessions"]["rules"][0]["resources"] == ["profilesessions"], str(hooks.get("sessions")))
    _, several, err = render("postgres.existingSecret=pg", "replicaCount=3")
    called = [{hook["clientConfig"]["service"]["name"] for hook in webhooks(text).values()}
              for text in (plain, several or plain)]
    check("calls keep to one replica of several", called == [{"precisionprobe"}, {"precisionprobe-review"}]
          and several.count("sessionAffinity: ClientIP") == 1 and "reviewServiceName: precisionprobe-review" in plain,
          err or str(called))
    check("no creation waits for long", {hook["timeoutSeconds"] for hook in hooks.values()} == {2})
    check("every pod is asked about", not any("matchConditions" in hook for hook in hooks.values()))
    _, text, err = render("postgres.existingSecret=pg", "webhook.gpuPodsOnly=true",
                          "config.injection.gpuResources={example.com/gpu,example.com/mig}",
                          "webhook.matchConditions[0].name=mine", "webhook.matchConditions[0].expression=true == true")
    hooks = webhooks(text) if text else {}
    names = {name: [c["name"] for c in hook.get("matchConditions", [])] for name, hook in hooks.items()}
    check("pods with a GPU only", names == {"pods": ["gpu-or-asked-for.precisionprobe.io", "mine"],
                                            "labelled": ["mine"], "sessions": []}, err or str(names))
    condition = text and hooks["pods"]["matchConditions"][0]["expression"]
    check("by its vendor", condition and condition.count("r.startsWith('example.com/')") == 4, str(condition))


def deletes_pods(text):
    rules = [rule for part in documents(text) for rule in yaml.safe_load(part).get("rules", [])
             if "pods" in rule.get("resources", [])]
    return any("delete" in rule["verbs"] for rule in rules)


OWNERS = {("watched", group, plural, None, "get") for group, plural in
          (("batch", "jobs"), ("apps", "deployments"), ("apps", "replicasets"), ("apps", "statefulsets"),
           ("apps", "daemonsets"))}
OWN = "precisionprobe"  # name of the release's objects


def verbs_on(where, group, plural, name, *verbs):
    return {(where, group, plural, name, verb) for verb in verbs}


# What each file of operator/ asks of the API server: of the cluster, of the watched namespaces, of its own.
RIGHTS = {
    "pods/admission.c": verbs_on("watched", "precisionprobe.io", "profilesessions", None, "get"),
    "installation/addresses.c": verbs_on("own", "", "services", OWN, "list", "watch"),
    "installation/claims.c": verbs_on("cluster", "coordination.k8s.io", "leases", None, "list", "watch"),
    "installation/cluster.c": verbs_on("own", "apps", "deployments", OWN, "get"),  # and /version, which everybody may read
    "pods/creations.c": OWNERS | verbs_on("watched", "", "events", None, "list", "watch"),
    "pods/explain.c": verbs_on("watched", "", "pods", None, "get"),
    "kube/events.c": verbs_on("watched", "events.k8s.io", "events", None, "create", "patch")
                     | verbs_on("own", "events.k8s.io", "events", None, "create", "patch"),
    "kube/lease.c": verbs_on("own", "coordination.k8s.io", "leases", None, "create")
                    | verbs_on("own", "coordination.k8s.io", "leases", OWN, "get", "update"),
    "kube/access_review.c": verbs_on("cluster", "authorization.k8s.io", "subjectaccessreviews", None, "create"),
    "kube/token_review.c": verbs_on("cluster", "authentication.k8s.io", "tokenreviews", None, "create"),
    "cache/limits_watch.c": verbs_on("watched", "", "limitranges", None, "list", "watch")
                      | verbs_on("watched", "", "resourcequotas", None, "list", "watch"),
    "patterns/old_patterns.c": verbs_on("watched", "precisionprobe.io", "consumptionpatterns", None, "list", "delete"),
    "pods/owners_ask.c": OWNERS,
    "patterns/patterns.c": verbs_on("watched", "precisionprobe.io", "consumptionpatterns", None, "get", "create")
                  | verbs_on("watched", "precisionprobe.io", "consumptionpatterns/status", None, "patch")
                  | verbs_on("watched", "precisionprobe.io", "profilesessions/status", None, "patch"),
    "reconcile.c": verbs_on("watched", "precisionprobe.io", "profilesessions", None, "delete")
                   | verbs_on("watched", "precisionprobe.io", "profilesessions/status", None, "patch"),
    "installation/rights_ask.c": {"create"},  # of reviews of one's own rights, which everybody may
    "installation/replicas.c": verbs_on("own", "discovery.k8s.io", "endpointslices", None, "list", "watch"),
    "pods/stuck.c": OWNERS | verbs_on("watched", "", "pods", None, "delete"),
    "installation/tls.c": verbs_on("own", "", "secrets", None, "create")
             | verbs_on("own", "", "secrets", OWN + "-tls", "get", "update")
             | verbs_on("cluster", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", OWN, "get", "patch"),
    "cache/watches.c": verbs_on("watched", "precisionprobe.io", "profilesessions", None, "list", "watch")
                 | verbs_on("watched", "", "pods", None, "list", "watch"),
}


def granted(text):
    """What the rendered roles of the operator let it do, as RIGHTS has it."""
    rights = set()
    for role in (yaml.safe_load(part) for part in documents(text)):
        if role["kind"] not in ("Role", "ClusterRole") or re.search("-(edit|view)$", role["metadata"]["name"]):
            continue
        own = role["metadata"].get("namespace") == "system" and not role["metadata"]["name"].endswith("-sessions")
        where = "watched" if role["metadata"]["name"].endswith("-sessions") else "own" if own else "cluster"
        rights |= {(where, group, plural, name, verb) for rule in role["rules"] for group in rule["apiGroups"]
                   for plural in rule["resources"] for name in rule.get("resourceNames", [None])
                   for verb in rule["verbs"]}
    return rights


def verbs_of(source):
    """What is called in a file: verbs of calls, and what an informer does."""
    calls = re.findall(r"PP_KUBE_(GET|LIST|CREATE|UPDATE|PATCH|DELETE)(?:_MERGE|_JSON)?\b", source)
    return {call.lower() for call in calls} | ({"list", "watch"} if "pp_kube_informer_new(" in source else set())


def check_rights():
    """Each rule is used by the operator, and whatever it calls is granted."""
    folder = ROOT / "operator"
    sources = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.c")
               if "tests" not in path.parts and path.name not in ("client.c", "informer.c", "meters.c")}
    called = {name: verbs_of(text) for name, text in sources.items() if verbs_of(text)}
    known = {name: {right[-1] if isinstance(right, tuple) else right for right in rights} for name, rights in RIGHTS.items()}
    check("what the operator's files call is known", called == known, f"called: {called}, known: {known}")

    all_of_them = {right for rights in RIGHTS.values() for right in rights if isinstance(right, tuple)}
    release = verbs_on("watched", "", "pods", None, "delete")
    for name, sets, expected in (("all namespaces", [], all_of_them - release),
                                 ("without the API", ["config.api.enabled=false"],
                                  all_of_them - release - RIGHTS["kube/access_review.c"]),
                                 ("and pods released", ["config.injection.release=true"], all_of_them),
                                 ("one namespace", ["config.kubernetes.namespace=ml"], all_of_them - release),
                                 ("its own namespace", ["config.kubernetes.namespace=system"],
                                  all_of_them - release)):
        _, text, err = render("postgres.existingSecret=pg", *sets)
        rights = granted(text) if text else set()
        check(f"the operator's rights: {name}", rights == expected, err or f"differing: {sorted(map(str, rights ^ expected))}")
    asked = {(group, resource + (f"/{sub}" if sub else ""), verb) for verb, group, resource, sub in
             re.findall(r'{PP_RIGHT_\w+, "(\w+)", "([\w.]*)", "(\w+)", "(\w*)", \w+}', sources["installation/rights_ask.c"])}
    given = {(group, plural, verb) for _, group, plural, _, verb in all_of_them}
    check("what readiness depends on is granted", asked and asked <= given, str(asked - given))


class Yaml12(yaml.SafeLoader):
    """Helm's reader takes 1e3 as a number, as YAML 1.2 has it; PyYAML's takes it as text."""


Yaml12.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[0-9]+[eE][0-9]+$"), list("0123456789"))


def floats(value, path=""):
    if isinstance(value, float):
        yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from floats(key, f"{path} (key)")
        yield from floats(inner, f"{path}/{key}")


def check_texts():
    """Texts that look like numbers stay texts: names, and a digest in which only digits and an e happen to be."""
    texts = ("postgres.existingSecret", "postgres.secretKey", "fullnameOverride", "nameOverride", "serviceAccount.name",
             "priorityClassName", "image.repository", "image.tag", "image.pullSecrets[0]", "podLabels.a",
             "podAnnotations.a", "service.annotations.a", "nodeSelector.a", "webhook.clientCA.secret",
             "webhook.clientCA.key", "config.kubernetes.namespace")
    names = [f"{text}=1e3" for text in texts]
    status, text, err = helm("template", "2e3", str(CHART), "-n", "3e3", "--kube-version", "1.36.3",
                             *[word for name in names for word in ("--set-string", name)])
    found = [path for part in documents(text) if "kind: CustomResourceDefinition" not in part
             for path in floats(yaml.load(part, Yaml12))]
    check("texts that look like numbers", status == 0 and not found, str(found) if text else err)
    check("the configuration is a text", text and isinstance(config_of(text), str), err)


def check_own_configuration(text):
    """Pods that are started anew while a later release is rolled out read their own: none is shared by name."""
    test = next(d for d in map(yaml.safe_load, documents(text)) if d["kind"] == "Pod")
    for name, pod in (("the operator's pods", template_of(text)), ("the pod of `helm test`", test)):
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
        wanted = {"items": [{"path": "config.yaml", "fieldRef": {"fieldPath": f"metadata.annotations['{CONFIG}']"}}]}
        check(f"{name} have a configuration of their own",
              pod["metadata"]["annotations"].get(CONFIG) == config_of(text) and volumes["config"].get("downwardAPI") == wanted
              and mounts["config"] == "/etc/precisionprobe/config" and "ConfigMap" not in kinds(text), str(volumes))
    _, longest, err = render("postgres.existingSecret=pg", "config.kubernetes.namespace=ml", "config.log.level=debug",
                             "config.prometheus.url=http://" + "p" * 4000)
    check("and room for it", longest and len(config_of(longest)) < 8192, err)


def check_rendered():
    rc, plain, err = render("postgres.existingSecret=pg")
    check("rendered", rc == 0, err)
    check("no wildcard rights", not re.search(r"[\[ ]['\"]?\*['\"]?[\],]", plain), "a * in a rule")
    check("pods may be deleted only where they may be released",
          not deletes_pods(plain) and deletes_pods(render("postgres.existingSecret=pg", "config.injection.release=true")[1]))
    check("CRD kept", "helm.sh/resource-policy: keep" in plain)
    hooks = plain.split("\nwebhooks:\n", 1)[1].split("\n---", 1)[0]
    check("no caBundle and no path", not re.search(r"(?m)^\s*(caBundle|path):", hooks), hooks)
    check("failurePolicy", "failurePolicy: Ignore" in plain)
    check("own namespace excluded", plain.count('values: [kube-system, kube-node-lease, "system"]') == 2)
    check_webhooks(plain)
    check_own_configuration(plain)
    check("pods that opted out", plain.count('operator: NotIn\n          values: ["false"]') == 2)
    check("no client certificate", "clientCaFile" not in plain and "client-ca" not in plain)
    for kind, field in (("secret", "secretName"), ("configMap", "name")):
        _, asked, err = render("postgres.existingSecret=pg", f"webhook.clientCA.{kind}=authorities",
                               "webhook.clientCA.key=api.crt")
        check(f"client certificate, authorities in a {kind}",
              "clientCaFile: /etc/precisionprobe/client-ca/api.crt" in config_of(asked)
              and bool(re.search(rf'- name: client-ca\n\s+{kind}:\n\s+{field}: "authorities"', asked)), err or asked)
    _, loose, _ = render("postgres.existingSecret=pg", "crds.keep=false")
    check("CRD not kept", "resource-policy" not in loose and "CustomResourceDefinition" in kinds(loose))
    _, none, _ = render("postgres.existingSecret=pg", "crds.install=false", "rbac.create=false",
                        "serviceAccount.create=false", "serviceAccount.name=own", "tests.enabled=false",
                        "aggregateRoles=false")
    check("only what is asked for", kinds(none) == ["Deployment", "MutatingWebhookConfiguration",
                                                    "Service"], str(kinds(none)))
    _, one, _ = render("postgres.existingSecret=pg", "config.kubernetes.namespace=ml")
    check("one namespace", kinds(one).count("Role") == 2 and kinds(one).count("ClusterRoleBinding") == 1,
          str(kinds(one)))
    _, other, _ = render("postgres.existingSecret=pg", release="gpu")
    check("another release's names", "secretName: gpu-precisionprobe-tls" in config_of(other), config_of(other))


def check_commands():
    """What README says to type, with a tag of digits: --set takes that as a number, which no tag is."""
    text = (ROOT / "README.md").read_text()
    commands = re.findall(r"helm (?:install|upgrade) [^`;]*?image\.tag=[^`]*?(?=\n```|`)", text)
    check("README has how to install and how to upgrade", len(commands) == 2, str(commands))
    for command in commands:
        told = re.sub(r"\\\n", " ", command).replace('"$image"', "registry.example/x").replace('"$tag"', "20260101").replace("=TAG", "=20260101")
        values = re.findall(r"--set(?:-string)? \S+", told)
        status, rendered, err = helm("template", "p", str(CHART), "--kube-version", "1.36.3", "--set", IMAGE, "--set",
                                     "postgres.existingSecret=pg", *" ".join(values).split())
        check(f"a tag of digits: {' '.join(told.split()[:2])}", status == 0 and ":20260101" in rendered, err)


def network_policy(**values):
    """Its spec with these values; what helm says where it renders none."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump({"image": {"repository": "r"}, "postgres": {"existingSecret": "pg"}, "networkPolicy": values}, file)
        file.flush()
        status, text, err = helm("template", "p", str(CHART), "--kube-version", "1.36.3", "--values", file.name)
    found = [p["spec"] for p in map(yaml.safe_load, documents(text)) if p["kind"] == "NetworkPolicy"]
    return found[0] if found else err if status else ""


def check_network_policy():
    check("no policy unasked", network_policy() == "")
    policy = network_policy(enabled=True)
    check("a policy that leaves the ports open to everybody",
          policy["policyTypes"] == ["Ingress"] and policy["ingress"] == [{"ports": [{"port": "https"}]},
                                                                         {"ports": [{"port": "metrics"}]}], str(policy))
    scraper = {"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}
    node = {"ipBlock": {"cidr": "10.0.0.0/16"}}
    policy = network_policy(enabled=True, nodes=["10.0.0.0/16"], metricsFrom=[scraper])
    check("agents of any namespace, nodes, and who scrapes",
          [rule["from"] for rule in policy["ingress"]] == [[{"namespaceSelector": {}}, node], [scraper, node]], str(policy))
    refused = network_policy(enabled=True, egress={"enabled": True})
    check("refused: no way to Postgres", "networkPolicy.egress.rules is needed" in refused, str(refused))
    postgres = {"to": [node], "ports": [{"port": 5432}]}
    policy = network_policy(enabled=True, egress={"enabled": True, "apiServers": ["10.1.0.1/32"], "rules": [postgres]})
    replicas = {"ports": [{"port": "https"}], "to": [{"podSelector": policy["podSelector"]}]}
    check("names, the API server, other replicas, Postgres and nothing else",
          policy["policyTypes"] == ["Ingress", "Egress"]
          and policy["egress"] == [{"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]},
                                   {"ports": [{"port": 443}, {"port": 6443}], "to": [{"ipBlock": {"cidr": "10.1.0.1/32"}}]},
                                   replicas, postgres], str(policy))
    for wrong in ({"nodes": ["everywhere"]}, {"egress": {"apiServerPorts": [0]}}, {"ingress": []}):
        said = network_policy(enabled=True, **wrong)
        check(f"refused: {json.dumps(wrong)}", "/networkPolicy" in said, str(said))


def check_monitoring():
    """What watches the operator: only where it is asked for; files as they are, whatever braces they hold."""
    wanted = {"podMonitor": "PodMonitor", "prometheusRule": "PrometheusRule", "dashboards": "ConfigMap"}
    _, plain, _ = render("postgres.existingSecret=pg")
    for value, kind in wanted.items():
        _, text, err = render("postgres.existingSecret=pg", f"{value}.enabled=true", f"{value}.labels.team=ml")
        more = kinds(text)
        for known in kinds(plain):
            more.remove(known) if known in more else None
        check(f"{value} is there when asked for", more == [kind], err or str(more))
        found = [d for d in map(yaml.safe_load, documents(text)) if d["metadata"]["labels"].get("team") == "ml"]
        check(f"{value} has its labels", len(found) == 1 and found[0]["kind"] == kind, str(found)[:200])
        if kind == "PodMonitor":
            pods = template_of(text)
            selector = found[0]["spec"]["selector"]["matchLabels"]
            ports = [p["name"] for p in pods["spec"]["containers"][0]["ports"]]
            check("the PodMonitor finds the operator's pods", selector.items() <= pods["metadata"]["labels"].items()
                  and found[0]["spec"]["podMetricsEndpoints"][0]["port"] in ports, str(found[0]["spec"]))
        elif kind == "PrometheusRule":
            check("rules are those of the file", found[0]["spec"] == yaml.safe_load((CHART / "files/rules.yaml").read_text()))
        else:
            files = {f"precisionprobe-{f.name}": json.loads(f.read_text()) for f in (CHART / "files/dashboards").iterdir()}
            check("dashboards are those of the files", {k: json.loads(v) for k, v in found[0]["data"].items()} == files
                  and len(files) == 2 and found[0]["metadata"]["labels"].get("grafana_dashboard") == "1")
    _, text, err = render_reused("podMonitor.enabled=true", "prometheusRule.enabled=true", "dashboards.enabled=true")
    check("Grafana finds the dashboards with the last release's values", 'grafana_dashboard: "1"' in text, err)
    check("with the last release's values", [kinds(text).count(k) for k in ("PodMonitor", "PrometheusRule", "ConfigMap")] == [1, 1, 1], err)


def check_expiry():
    for given, expected in (("604800 by default", 604800), ("=60", 60), ("=", None), ("=null", None)):
        sets = [f"sessions.ttlSecondsAfterFinished{given}"] if given.startswith("=") else []
        _, text, err = render("postgres.existingSecret=pg", *sets)
        rendered = yaml.safe_load(config_of(text)).get("sessions", {}) if text else err
        check(f"finished sessions expire: {given}", rendered == ({"ttlSecondsAfterFinished": expected} if expected else {}),
              str(rendered))
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write("sessions: null\n")  # as after --reuse-values, of a release that had no such value
        file.flush()
        _, text, err = helm("template", "p", str(CHART), "--kube-version", "1.36.3", "--set", IMAGE, "--set", "postgres.existingSecret=pg", "--values", file.name)
        check("no session expires unasked", text and "sessions" not in yaml.safe_load(config_of(text)), err)


def render_reused(*sets):
    """As `helm upgrade --reuse-values` does: with the last release's values in place of this chart's own."""
    with tempfile.TemporaryDirectory() as folder:
        chart = pathlib.Path(folder) / "precisionprobe"
        shutil.copytree(CHART, chart)
        shutil.copy(ROOT / "charts/tests/last-release-values.yaml", chart / "values.yaml")
        flags = [word for value in ("postgres.existingSecret=pg", *sets) for word in ("--set", value)]
        return helm("template", "p", str(chart), "--kube-version", "1.36.3", *flags)


def check_reused_values():
    _, text, err = render_reused()
    check("values of the last release", "clientCaFile" not in text and kinds(text) == kinds(render("postgres.existingSecret=pg")[1]), err)
    _, text, err = render_reused("webhook.clientCA.secret=ca")
    check("and an authority beside them", "clientCaFile: /etc/precisionprobe/client-ca/ca.crt" in text
          and 'secretName: "ca"' in text, err)
    _, text, err = render_reused("networkPolicy.enabled=true")
    policies = [p["spec"] for p in map(yaml.safe_load, documents(text)) if p["kind"] == "NetworkPolicy"]
    check("and a policy beside them", [p["policyTypes"] for p in policies] == [["Ingress"]], err)
    _, text, err = render_reused("networkPolicy.enabled=true", "networkPolicy.egress.enabled=true")
    check("refused: no way to Postgres, and no list of rules", "networkPolicy.egress.rules is needed" in err, err)
    _, text, err = render_reused("webhook.timeoutSeconds=1")
    check("a wait for the webhook that was allowed", "timeoutSeconds: 1" in text, err)


def check_odd_names():
    """Names that YAML reads as numbers, and names as long as they may be."""
    for number in ("2024", "1e3"):
        _, text, err = render("postgres.existingSecret=pg", f'fullnameOverride="{number}"', f'nameOverride="{number}"',
                              f'config.kubernetes.namespace="{number}"', f'serviceAccount.name="{number}"',
                              release=number, namespace=number)
        objects = re.sub(r"(?m)^( *)precisionprobe\.io/config: \|\n(\1 +.*\n)*", "", text)
        wrong = re.findall(rf"(?m)^.*[:\[,-] *{number}(?=[\],\s]).*$", objects)
        check(f"{number} stays a text", text and not wrong, err or str(wrong))
    _, text, err = render("postgres.existingSecret=pg", "nameOverride=" + "n" * 63)
    labels = re.findall(r"(?m)^ +app\.kubernetes\.io/name: (.*)$", text)
    check("labels of a long name", {len(label.strip('"')) for label in labels} == {63}, err or str(labels))


def check_long_host():
    long = ("postgres.existingSecret=pg", "fullnameOverride=" + "f" * 50)
    _, text, err = render(*long, namespace="n" * 55)
    check("the longest host of the Service", f"wss://{'f' * 50}.{'n' * 55}.svc:443/v1/ingest" in text, err)
    _, _, err = render(*long, namespace="n" * 56)
    check("refused: a longer one", "more than 110 characters" in err, err)


def check_config():
    for name, sets in (("defaults", []), ("everything", [
            "config.prometheus.url=http://p:9090", "config.prometheus.collectionInterval=250ms",
            "config.injection.cpu=200m", "config.injection.gpuResources={nvidia.com/gpu}",
            "config.ingest.maxConnections=100000", "config.attribution.maxStandardErrorPoints=7.5",
            "config.retention.results=720h", "config.log.level=debug"]),
            ("former names", ["config.fine.auto=true", "config.isolated.allow=true", "config.injection.stretchSeconds=9"])):
        _, text, err = render("postgres.existingSecret=pg", *sets)
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(config_of(text))
            file.flush()
            done = subprocess.run([ARGS.operator, "--check-config", "--config", file.name], text=True,
                                  capture_output=True)
        check(f"the operator reads it: {name}", done.returncode == 0, done.stderr + err)


def main():
    global ARGS
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--helm", default="helm")
    parser.add_argument("--operator", help="path of precisionprobe-operator")
    ARGS = parser.parse_args()
    check_copies()
    rc, out, err = helm("lint", str(CHART), "--strict", "--set", IMAGE, "--set", "postgres.existingSecret=pg")
    check("lint", rc == 0, out + err)
    check_limits()
    check_closed()
    check_refused()
    check_rights()
    check_rendered()
    check_texts()
    check_expiry()
    check_monitoring()
    check_commands()
    check_network_policy()
    check_reused_values()
    check_odd_names()
    check_long_host()
    if ARGS.operator:
        check_config()
    if FAILURES:
        sys.exit(f"{len(FAILURES)} failed")


if __name__ == "__main__":
    main()
