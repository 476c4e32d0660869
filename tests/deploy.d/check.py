#!/usr/bin/env python3
"""Checks what stands in deploy as far as its form goes; tests/deploy calls it. It is given
a file to write the dashboard's expressions to, which promtool judges. `--write` renders the plain manifests anew.

Each check prints what it looked at, and the first that finds something ends with it.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import helm_python
import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "inboxd"
MANIFEST = DEPLOY / "kubernetes" / "inboxd.yaml"
# The oldest that the chart says it takes, one between, and the newest that the validator knows.
KUBERNETES = ["1.27", "1.31", "1.37"]
# What the objects of the plain manifests are called and where they live.
RELEASE, NAMESPACE = "inboxd", "inboxd"


def fail(message):
    sys.exit(f"tests/deploy: {message}")


def need(holds, message):
    if not holds:
        fail(message)


def metrics():
    """The families that the code renders."""
    source = (ROOT / "src/service/metrics.rs").read_text()
    names = set(re.findall(r'"(inboxd_[a-z_]+)"', source))
    need(len(names) > 20, f"only {len(names)} metrics were found in metrics.rs")
    return names


def check_metric_names(known, text, where):
    """Every metric that is named exists, and in a form that its family has. Returns the families."""
    used = set()
    for name in set(re.findall(r"\binboxd_[a-z_]+\b", text)):
        family = name if name in known else re.sub(r"_(bucket|sum|count)$", "", name)
        need(family in known, f"{where} names {name}, which src/service/metrics.rs does not have")
        used.add(family)
    return used


def check_dashboard():
    known = metrics()
    file = DEPLOY / "grafana/inboxd.json"
    board = json.loads(file.read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    variables = [
        variable["query"]["query"] for variable in board["templating"]["list"] if variable["type"] == "query"
    ]
    used = check_metric_names(known, "\n".join(expressions + variables), file.name)
    need(used == known, f"{file.name} shows nothing of {sorted(known - used)}")
    need(len({panel["id"] for panel in board["panels"]}) == len(board["panels"]), "two panels have one id")
    for panel in board["panels"]:
        need(panel.get("description"), f"panel {panel['title']} says nothing of itself")
        place = panel["gridPos"]
        need(place["x"] + place["w"] <= 24, f"panel {panel['title']} is out of the grid")
    # PromQL is judged by promtool: each expression becomes a rule of its own. The dashboard's variables are regular
    # expressions in it.
    rules = [
        {"record": f"dashboard:{index}", "expr": expression} for index, expression in enumerate(expressions, 1)
    ]
    Path(sys.argv[1]).write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    print(f"dashboard: {len(board['panels'])} panels over {len(used)} metrics")


def check_rules():
    file = DEPLOY / "prometheus/inboxd.rules.yml"
    rules = yaml.safe_load(file.read_text())["groups"][0]["rules"]
    tests = yaml.safe_load((DEPLOY / "prometheus/inboxd.rules.test.yml").read_text())["tests"]
    check_metric_names(metrics(), "\n".join(rule["expr"] for rule in rules), file.name)
    health = (ROOT / "src/service/health.rs").read_text()
    runbook = (ROOT / "docs/runbook.md").read_text()
    sections = re.findall(r"^## (\w+)$", runbook, re.M)
    names = [rule["alert"] for rule in rules]
    need(sections == names, f"the sections of the runbook are {sections}, the alerts {names}")
    seen_firing, seen_still = set(), set()
    for test in tests:
        for alert in test.get("alert_rule_test", []):
            (seen_firing if alert.get("exp_alerts") else seen_still).add(alert["alertname"])
    for rule in rules:
        name = rule["alert"]
        need(rule["labels"]["severity"] in ("page", "ticket"), f"{name} has no severity that the rules explain")
        url = rule["annotations"]["runbook_url"]
        need(url == f"docs/runbook.md#{name.lower()}", f"{name} leads to {url}")
        need(name in seen_firing, f"no test sees {name} fire")
        need(name in seen_still, f"no test sees {name} keep still before it fires")
        for check in re.findall(r'check[=!]~?"([a-z_|]+)"', rule["expr"]):
            for one in check.split("|"):
                need(f'"{one}"' in health, f"{name} names the check {one}, which src/service/health.rs does not have")
    for command in re.findall(r"^\| `(\w+)` \|", runbook, re.M):
        need(f'"{command}"' in health, f"the runbook names the check {command}, which does not exist")
    print(f"rules: {len(rules)} alerts, each with a section and with tests")


def check_versions():
    """No image moves under its tag without a person, and the compiler is everybody's."""
    toolchain = tomllib.loads((ROOT / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]["version"]
    docker = (DEPLOY / "Dockerfile").read_text()
    need(f"FROM rust:{toolchain}-" in docker, f"the Dockerfile does not build with {toolchain} of rust-toolchain.toml")
    compose = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())
    images = re.findall(r"^FROM (\S+)", docker, re.M)
    images += [service["image"] for service in compose["services"].values()]
    for document in yaml.safe_load_all(MANIFEST.read_text()):
        if document["kind"] in ("Deployment", "Job"):
            images += [container["image"] for container in document["spec"]["template"]["spec"]["containers"]]
    for image in images:
        name, _, tag = image.rpartition(":")
        need(name and tag != "latest", f"image {image} is not pinned by a tag")
        need(not name.endswith("inboxd") or tag == version, f"image {image} is not of version {version}")
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    need(chart["appVersion"] == version, f"the chart is for {chart['appVersion']}, this is {version}")
    files = [file for file in DEPLOY.rglob("*") if file.is_file()]
    for file in files:
        need(":latest" not in file.read_text(), f"{file.relative_to(ROOT)} names an image by :latest")
    print(f"versions: {len(images)} images, each by a tag that stays")


def check_build():
    """The image's first step stands in for every target of the manifest: Cargo refuses one that is not there."""
    docker = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    step = re.search(r"^RUN (mkdir .*)&& cargo build", docker, re.M)
    need(step, "the Dockerfile builds the dependencies in no step of its own")
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split("\n")
    copied = set(" ".join(re.findall(r"^COPY (?!--from)(.+) \S+$", docker, re.M)).split())
    for name in copied:
        need((ROOT / name).exists() and f"!{name}" in ignored, f"the Dockerfile copies {name}, which it does not get")
    sources = re.search(r"const SOURCES: \[&str; \d+\] = \[(.*?)\];", (ROOT / "build.rs").read_text(), re.S)
    made_of = set(re.findall(r'"(.+?)"', sources[1]))
    need(len(made_of) > 5 and made_of <= copied, f"the Dockerfile lacks {sorted(made_of - copied)}, which the program is made of")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("Cargo.toml", "Cargo.lock"):
            shutil.copy(ROOT / name, folder)
        subprocess.run(step[1].strip().removesuffix("&&"), shell=True, check=True, cwd=folder)
        command = ["cargo", "metadata", "--locked", "--offline", "--no-deps", "--format-version", "1"]
        answer = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        need(answer.returncode == 0, f"Cargo refuses what the Dockerfile's first step makes: {answer.stderr}")
        missing = [
            target["src_path"]
            for package in json.loads(answer.stdout)["packages"]
            for target in package["targets"]
            if not Path(target["src_path"]).exists()
        ]
        need(not missing, f"the Dockerfile's first step does not make {missing}")
    print("image: its first step has every target")


def render(values, name="inboxd", namespace=NAMESPACE):
    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema(chart.merge_values(values))
        return chart.render(values, name=name, namespace=namespace)


def documents(rendered):
    for template, text in sorted(rendered.items()):
        if template.endswith(".yaml"):
            for document in yaml.safe_load_all(text):
                if document:
                    yield template, document


EVERYTHING = {
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "imagePullSecrets": [{"name": "registry"}],
    "http": {"hosts": ["inboxd.example.com"], "openMetrics": True},
    "networkPolicy": {
        "ingressFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "databaseTo": [{"ipBlock": {"cidr": "192.0.2.0/24"}}],
    },
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "database", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "podAnnotations": {"example.com/team": "orders"},
    "podLabels": {"team": "orders"},
}
NOTHING = {
    "replicas": 1,
    "resources": {},
    "init": {"enabled": False},
    "podDisruptionBudget": {"enabled": False},
    "networkPolicy": {"enabled": False},
}
REFUSED = [
    {"replicas": 0},
    {"replicas": "two"},
    {"no_such_key": 1},
    {"image": {"tag": "latest"}},
    {"database": {"url": "postgres://user:secret@host/app"}},
    {"database": {"existingSecret": ""}},
    {"http": {"port": 80}},
    {"config": '[database]\nurl = "postgres://user:secret@host/app"\n'},
    {"config": "[http]\nopen_metrics = true\n"},
]


def check_chart():
    report = helm_python.lint(CHART, strict=True)
    complaints = [message for message in report["messages"] if message["severity"] > 1] + report["errors"]
    need(not complaints, f"helm lint: {complaints}")
    count = 0
    for values in ({}, EVERYTHING, NOTHING):
        kinds = set()
        for template, document in documents(render(values, name="orders")):
            kinds.add(document["kind"])
            validate(document, template)
            count += 1
        wanted = {"ConfigMap", "Deployment", "Service"}
        if values is not NOTHING:
            wanted |= {"Job", "PodDisruptionBudget", "NetworkPolicy"}
        if values is EVERYTHING:
            wanted.add("ServiceMonitor")
        need(kinds == wanted, f"the chart makes {sorted(kinds)} of {values}")
    for values in REFUSED:
        try:
            render(values)
        except helm_python.HelmError:
            continue
        fail(f"the chart's schema accepts {values}")
    print(f"chart: linted, {count} objects valid, {len(REFUSED)} wrong values refused")


def validate(document, where):
    # It comes with the Prometheus operator, of which the validator knows nothing.
    if document["kind"] == "ServiceMonitor":
        return
    for version in KUBERNETES:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except Exception as error:
            fail(f"{where} for Kubernetes {version}: {getattr(error, 'message', error)}")
    if document["kind"] in ("Deployment", "Job"):
        judge_pod(document["spec"]["template"]["spec"], where)


def judge_pod(pod, where):
    """What a restricted namespace asks for, and that secrets come by reference only."""
    need(pod["securityContext"]["runAsNonRoot"] is True, f"{where} may run as root")
    for container in pod["containers"]:
        context = container["securityContext"]
        need(context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"], f"{where} is not hardened")
        need(context["capabilities"]["drop"] == ["ALL"], f"{where} keeps capabilities")
        secret = [entry for entry in container["env"] if "URL" in entry["name"] or "TOKEN" in entry["name"]]
        need(len(secret) == 3 and all("value" not in entry for entry in secret), f"{where} holds a secret itself")


def check_manifests(write):
    text = [
        "# The chart in deploy/helm/inboxd with its own values, for those who use no Helm; `tests/deploy --write` renders it.",
        "# The secrets that it refers to are made by hand:",
        "#   kubectl create namespace inboxd",
        "#   kubectl --namespace inboxd create secret generic inboxd-database --from-literal=url=postgres://…",
        "#   kubectl --namespace inboxd create secret generic inboxd-tokens --from-literal=read=… --from-literal=admin=…",
    ]
    for template, document in documents(render({}, name=RELEASE)):
        # These say that Helm keeps it.
        for metadata in (document["metadata"], document["spec"]["template"]["metadata"] if "template" in document.get("spec", {}) else {}):
            for label in ("helm.sh/chart", "app.kubernetes.io/managed-by"):
                metadata.get("labels", {}).pop(label, None)
        document["metadata"]["namespace"] = NAMESPACE
        validate(document, template)
        text.append("---\n" + dump(document).rstrip())
    text = "\n".join(text) + "\n"
    if write:
        MANIFEST.parent.mkdir(exist_ok=True)
        MANIFEST.write_text(text)
    there = MANIFEST.read_text() if MANIFEST.exists() else ""
    need(there == text, f"{MANIFEST.relative_to(ROOT)} is not what the chart makes; run tests/deploy --write")
    # The configuration in it is loaded by inboxd itself in tests/it; here that it is TOML at all.
    for document in yaml.safe_load_all(there):
        if document["kind"] == "ConfigMap":
            tomllib.loads(document["data"]["inboxd.toml"])
    print("manifests: as the chart makes them, and valid")


class Blocks(yaml.SafeDumper):
    """Text of many lines as a block, so that a person can read it."""


Blocks.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def dump(document):
    return yaml.dump(document, Dumper=Blocks, sort_keys=False, width=120)


def main():
    check_chart()
    check_manifests(write="--write" in sys.argv)
    check_rules()
    check_dashboard()
    check_versions()
    check_build()


main()
