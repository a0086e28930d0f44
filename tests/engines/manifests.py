"""Prints the objects of a folder for `kubectl apply -k` as JSON, after it has checked each strictly against Kubernetes' own
schemas, and that every reference leads somewhere. Run by a Python that has kubernetes-validate."""
import base64
import json
import os
import shutil
import subprocess
import sys

import kubernetes_validate
import yaml
from kubeflow_trainer_api import models

FOLDER = sys.argv[1]
PODS = {"StatefulSet", "Job"}
# Objects that Kubernetes does not know by itself: Kubeflow's own models read them.
MODELS = {"JobSet": models.JobsetV1alpha2JobSet, "TrainJob": models.TrainerV1alpha1TrainJob,
          "TrainingRuntime": models.TrainerV1alpha1TrainingRuntime}


def read(name):
    with open(os.path.join(FOLDER, name), "rb") as file:
        return file.read()


def generated(kind, of, encode):
    data = {os.path.basename(name): encode(read(name)) for name in of["files"]}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": of["name"]}, "data": data}


def built():
    """What kustomize makes of the folder, as far as such a folder uses it."""
    asked = yaml.safe_load(read("kustomization.yaml"))
    made = [one for name in asked["resources"] for one in yaml.safe_load_all(read(name))]
    made += [generated("ConfigMap", of, bytes.decode) for of in asked["configMapGenerator"]]
    made += [generated("Secret", of, lambda text: base64.b64encode(text).decode()) for of in asked["secretGenerator"]]
    for one in made if "namespace" in asked else ():
        one["metadata"]["namespace"] = asked["namespace"]
    if shutil.which("kubectl") is None:
        return made
    by_itself = subprocess.run(["kubectl", "kustomize", FOLDER], stdout=subprocess.PIPE, check=True, timeout=60).stdout
    by_itself = list(yaml.safe_load_all(by_itself))
    for ours in made:
        theirs = [one for one in by_itself if names(one) == names(ours)]
        if len(theirs) != 1 or content(theirs[0]) != content(ours):
            sys.exit(f"kustomize makes something else of {names(ours)}")
    if len(made) != len(by_itself):
        sys.exit(f"kustomize makes {len(by_itself)} objects, expected {len(made)}")
    return by_itself


def names(one):
    return one["kind"], one["metadata"]["name"], one["metadata"].get("namespace")


def content(one):
    """kustomize breaks lines of base64."""
    data = one.get("data", {})
    return one.get("spec"), {key: "".join(text.split()) for key, text in data.items()} if one["kind"] == "Secret" else data


def read_by_kubeflow(one):
    """A model drops what it does not know, so what it gives back has to be what it was given."""
    given = models_text(MODELS[one["kind"]].from_dict(one))
    if given != one:
        sys.exit(f"Kubeflow reads {one['kind']} otherwise: {json.dumps(given)}, is {json.dumps(one)}")


def models_text(model):
    return json.loads(json.dumps(model.to_dict()))


def jobs_in(one):
    """The Jobs that a controller makes of an object."""
    if one["kind"] == "TrainJob":
        runtime = of("TrainingRuntime").get(one["spec"]["runtimeRef"]["name"])
        if runtime is None or one["spec"]["runtimeRef"]["kind"] != "TrainingRuntime":
            sys.exit(f"no runtime of {one['metadata']['name']}")
        one = {"metadata": one["metadata"], **{"spec": runtime["spec"]["template"]["spec"]}}
    elif one["kind"] != "JobSet":
        return []
    return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"{one['metadata']['name']}-{job['name']}-{n}"},
             "spec": job["template"]["spec"]} for job in one["spec"]["replicatedJobs"] for n in range(job["replicas"])]


OBJECTS = built()


def of(kind):
    return {one["metadata"]["name"]: one for one in OBJECTS if one["kind"] == kind}


def selects(labels):
    return any(labels.items() <= one["spec"]["template"]["metadata"]["labels"].items() for kind in PODS for one in of(kind).values())


def selectors(node):
    """Of pods, wherever they are in an object."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "matchLabels":
                yield value
            else:
                yield from selectors(value)
    elif isinstance(node, list):
        for value in node:
            yield from selectors(value)


def loose_ends_of(pod, claims):
    """What a pod's template names and nobody has."""
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for volume in volumes.values():
        if "configMap" in volume and volume["configMap"]["name"] not in (*of("ConfigMap"), "kube-root-ca.crt"):  # each namespace has that one
            yield f"ConfigMap of {volume}"
        if "secret" in volume and volume["secret"]["secretName"] not in of("Secret"):
            yield f"Secret of {volume}"
    if pod.get("serviceAccountName", "default") not in (*of("ServiceAccount"), "default"):
        yield f"account {pod['serviceAccountName']}"
    for container in pod["containers"]:
        variables = {variable["name"] for variable in container["env"]}
        for mount in container["volumeMounts"]:
            if mount["name"] not in volumes and mount["name"] not in claims:
                yield f"volume of {mount}"
            used = mount.get("subPathExpr", "")
            if "$(" in used and used[used.index("(") + 1:used.index(")")] not in variables:
                yield f"variable of {mount}"


def loose_ends():
    for one in OBJECTS:
        kind, name, spec = one["kind"], one["metadata"]["name"], one.get("spec", {})
        for labels in selectors(spec):
            if not selects(labels):
                yield f"{kind} {name} selects nothing: {labels}"
        if kind == "Service" and not selects(spec["selector"]):
            yield f"{kind} {name} selects nothing"
        if kind == "StatefulSet" and spec["serviceName"] not in of("Service"):
            yield f"service of {kind} {name}"
        if kind in PODS:
            claims = {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])}
            yield from loose_ends_of(spec["template"]["spec"], claims)
    # Every worker's token, and every coordinator's key.
    keys = {key for secret in of("Secret").values() for key in secret["data"]}
    wanted = {f"worker-{n}.token" for job in of("Job").values() for n in range(job["spec"]["completions"])
              if "serviceAccountName" not in job["spec"]["template"]["spec"]}
    wanted |= {f"coordinator-{n}" for group in of("StatefulSet").values() for n in range(group["spec"]["replicas"])}
    yield from wanted - keys


for one in OBJECTS[:]:
    if one["kind"] in MODELS:
        read_by_kubeflow(one)
        OBJECTS += jobs_in(one)
for one in OBJECTS:
    if one["kind"] in MODELS:
        continue
    kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)
for wrong in loose_ends():
    sys.exit(f"leads nowhere: {wrong}")
print(json.dumps(OBJECTS))
