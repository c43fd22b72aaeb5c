"""A session's figures as files: its layers from the operator's HTTP API, drawn by `precisionprobe figures`."""
import json
import os
import shutil

from . import results_api
from .deploy import NAME, SYSTEM, compile_in, configure_preset
from .progress import CommandError, run_shown


def layers(cluster, namespace, session):
    """The API's document of all layers."""
    token = {"Authorization": f"Bearer {results_api.reader(cluster, namespace)}"}
    items, more = [], ""
    with cluster.forward(SYSTEM, f"service/{NAME}", 443) as address:
        while more is not None:
            path = f"/api/v1/namespaces/{namespace}/sessions/{session}/layers?limit=5000{more}"
            status, page, _ = results_api.get(cluster, address, path, **token)
            if status != 200:
                raise CommandError(f"{path}: {status} {page}")
            items += page["items"]
            more = f"&continue={page['continue']}" if page.get("continue") else None
    return {"items": items}


def draw(cluster, namespace, session, folder, preset="release"):
    """Draws them into the folder, which is made anew; the files' paths."""
    document = layers(cluster, namespace, session)
    build = configure_preset(preset)
    compile_in(build, "precisionprobe")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(os.path.join(folder, "layers.json"), "w", encoding="utf-8") as file:
        json.dump(document, file)
    run_shown(f"{build}/cli/precisionprobe", "figures", "-o", folder, f"{folder}/layers.json")
    return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name != "layers.json")
