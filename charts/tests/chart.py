#!/usr/bin/env python3
"""Checks the Helm chart without a cluster: chart.py [--helm HELM] [--operator PROGRAM].

The CRD's descriptions and its copy, the values' schema against docs/configuration.md, lint, what is rendered for several
values, and, with --operator, the rendered configuration by the operator's own parser.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "precisionprobe"
# What the chart itself sets, or what makes no sense in a pod.
NOT_IN_VALUES = {"injection.image", "injection.imagePullPolicy", "postgres.conninfoFile", "http.tlsPort",
                 "http.plainPort", "owner.deployment", "webhook.configurationName", "webhook.secretName",
                 "webhook.serviceName", "webhook.serviceNamespace", "lease.enabled", "lease.name",
                 "lease.namespace", "kubernetes.kubeconfig"}
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
    flags = [word for value in sets for word in ("--set-json" if value.endswith((".5", '"')) else "--set", value)]
    return helm("template", release, str(CHART), "-n", namespace, "--kube-version", "1.36.3", *flags)


def documents(text):
    return [part for part in re.split(r"(?m)^---\s*$", text) if re.search(r"(?m)^kind:", part)]


def kinds(text):
    return sorted(re.search(r"(?m)^kind: (\w+)", part)[1] for part in documents(text))


def config_of(text):
    part = next(p for p in documents(text) if re.search(r"(?m)^kind: ConfigMap", p))
    body = part.split("config.yaml: |\n", 1)[1]
    return "".join(line[4:] + "\n" for line in body.splitlines() if line.startswith("    "))


def undescribed(schema, path=""):
    """Fields of which `kubectl explain` would say nothing."""
    for name, field in schema.get("properties", {}).items():
        if path or name in ("spec", "status"):
            yield from [f"{path}.{name}"] if "description" not in field else []
            yield from undescribed(field, f"{path}.{name}")
            yield from undescribed(field.get("items", {}), f"{path}.{name}[]")


def check_copies():
    crd = yaml.safe_load((ROOT / "crds/profilesession.yaml").read_text())
    bare = list(undescribed(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))
    check("every field of the CRD is described", not bare, ", ".join(bare))
    check("the CRD's copy", (CHART / "files/profilesession.yaml").read_text()
          == (ROOT / "crds/profilesession.yaml").read_text(), "cp crds/profilesession.yaml to the chart's files/")
    rows = set(re.findall(r"(?m)^\| `([a-z]+\.\w+)` \|", (ROOT / "docs/configuration.md").read_text()))
    groups = json.loads((CHART / "values.schema.json").read_text())["properties"]["config"]["properties"]
    known = {f"{group}.{key}" for group, value in groups.items() for key in value["properties"]}
    check("the schema knows every option", rows - NOT_IN_VALUES == known,
          f"differing: {sorted((rows - NOT_IN_VALUES) ^ known)}")


def check_refused():
    for name, sets, message in (
            ("no Secret", [], "postgres.existingSecret is needed"),
            ("unknown option", ["postgres.existingSecret=pg", "config.prometheus.ur=x"], "'ur' not allowed"),
            ("unknown value", ["postgres.existingSecret=pg", "replicas=2"], "'replicas' not allowed"),
            ("wrong duration", ["postgres.existingSecret=pg", "config.prometheus.maxWait=soon"],
             "/config/prometheus/maxWait"),
            ("duration without a unit", ["postgres.existingSecret=pg", 'config.prometheus.maxLag="0"'],
             "/config/prometheus/maxLag"),
            ("webhook too slow", ["postgres.existingSecret=pg", "webhook.timeoutSeconds=10"], "/webhook/timeoutSeconds")):
        rc, _, err = render(*sets)
        check(f"refused: {name}", rc != 0 and message in err, err or "was rendered")


def check_rendered():
    rc, plain, err = render("postgres.existingSecret=pg")
    check("rendered", rc == 0, err)
    check("no wildcard rights", not re.search(r"[\[ ]['\"]?\*['\"]?[\],]", plain), "a * in a rule")
    check("CRD kept", "helm.sh/resource-policy: keep" in plain)
    check("no caBundle", not re.search(r"(?m)^\s*caBundle:", plain))
    check("failurePolicy", "failurePolicy: Ignore" in plain)
    check("own namespace excluded", plain.count('values: [kube-system, kube-node-lease, "system"]') == 2)
    hooks = plain.split("\nwebhooks:\n", 1)[1].split("\n---", 1)[0].split("\n  - name: ")[0:]
    asks = r'key: precisionprobe.io/inject\n\s+operator: In\n\s+values: \["true"\]'
    check("namespaces that ask for the hook", [("/labelled" in hook, bool(re.search(asks, hook))) for hook in hooks]
          == [(False, False), (True, True)], str(hooks))
    check("pods that opted out", plain.count('operator: NotIn\n          values: ["false"]') == 2)
    check("no side effects on dry run", "sideEffects: NoneOnDryRun" in plain)
    _, loose, _ = render("postgres.existingSecret=pg", "crds.keep=false")
    check("CRD not kept", "resource-policy" not in loose and "CustomResourceDefinition" in kinds(loose))
    _, none, _ = render("postgres.existingSecret=pg", "crds.install=false", "rbac.create=false",
                        "serviceAccount.create=false", "serviceAccount.name=own", "tests.enabled=false",
                        "aggregateRoles=false")
    check("only what is asked for", kinds(none) == ["ConfigMap", "Deployment", "MutatingWebhookConfiguration",
                                                    "Service"], str(kinds(none)))
    _, one, _ = render("postgres.existingSecret=pg", "config.kubernetes.namespace=ml")
    check("one namespace", kinds(one).count("Role") == 2 and kinds(one).count("ClusterRoleBinding") == 1,
          str(kinds(one)))
    _, other, _ = render("postgres.existingSecret=pg", release="gpu")
    check("another release's names", "secretName: gpu-precisionprobe-tls" in config_of(other), config_of(other))


def check_odd_names():
    """Names that YAML reads as numbers, and names as long as they may be."""
    for number in ("2024", "1e3"):
        _, text, err = render("postgres.existingSecret=pg", f'fullnameOverride="{number}"', f'nameOverride="{number}"',
                              f'config.kubernetes.namespace="{number}"', f'serviceAccount.name="{number}"',
                              release=number, namespace=number)
        objects = re.sub(r"(?s)config\.yaml: \|.*?\n---", "", text)
        wrong = re.findall(rf"(?m)^.*[:\[,-] *{number}(?=[\],\s]).*$", objects)
        check(f"{number} stays a text", text and not wrong, err or str(wrong))
    _, text, err = render("postgres.existingSecret=pg", "nameOverride=" + "n" * 63)
    labels = re.findall(r"(?m)^ +app\.kubernetes\.io/name: (.*)$", text)
    check("labels of a long name", {len(label.strip('"')) for label in labels} == {63}, err or str(labels))


def check_config():
    for name, sets in (("defaults", []), ("everything", [
            "config.prometheus.url=http://p:9090", "config.prometheus.collectionInterval=250ms",
            "config.injection.cpu=200m", "config.injection.gpuResources={nvidia.com/gpu}",
            "config.ingest.maxConnections=100000", "config.attribution.maxStandardErrorPoints=7.5",
            "config.retention.results=720h", "config.log.level=debug"])):
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
    rc, out, err = helm("lint", str(CHART), "--strict", "--set", "postgres.existingSecret=pg")
    check("lint", rc == 0, out + err)
    check_refused()
    check_rendered()
    check_odd_names()
    if ARGS.operator:
        check_config()
    if FAILURES:
        sys.exit(f"{len(FAILURES)} failed")


if __name__ == "__main__":
    main()
