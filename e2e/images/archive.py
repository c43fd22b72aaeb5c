"""Writes a container image as a docker-archive, from a root file system.

No Docker and no daemon: an image is a tar of a root file system, a small JSON
config, and a manifest that names both. Used by e2e/images/pack, bundle and
build; needs Python's standard library only.
"""
import hashlib
import io
import json
import os
import platform
import tarfile

# What a user may set; the names are those of the image specification.
CONFIG_KEYS = ("Entrypoint", "Cmd", "Env", "User", "WorkingDir", "ExposedPorts", "Labels", "StopSignal")
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ImageError(Exception):
    pass


def full_name(name):
    """The name with its registry and tag; containerd knows images by nothing shorter."""
    first, _, rest = name.partition("/")
    if not rest or ("." not in first and ":" not in first and first != "localhost"):
        raise ImageError(f"image name needs its registry, for example docker.io/precisionprobe/{name.split('/')[-1]}")
    if ":" not in name.rsplit("/", 1)[1]:
        raise ImageError(f"image name needs a tag: {name}:1")
    return name


def check_config(config):
    unknown = sorted(set(config) - set(CONFIG_KEYS))
    if unknown:
        raise ImageError(f"unknown image config: {', '.join(unknown)} (known: {', '.join(CONFIG_KEYS)})")
    config = dict(config)
    if not any(e.startswith("PATH=") for e in config.get("Env", [])):
        config["Env"] = [PATH] + config.get("Env", [])
    return config


def _plain(info):
    """Times and builder's names out, so that the same files make the same image."""
    info.mtime = 0
    info.uname = info.gname = ""
    return info


def layer_of_folder(rootfs, layer):
    """Writes the tar LAYER of the folder ROOTFS, owners and modes as they are."""
    with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(os.listdir(rootfs)):
            tar.add(os.path.join(rootfs, name), arcname=name, filter=_plain)


def _digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _add_bytes(tar, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def write(layer, name, config, out, machine=platform.machine()):
    """Wraps the layer tar as the image NAME into OUT, whole or not at all.

    The manifest comes first, so that a reader learns the image's identity
    without reading a gigabyte.
    """
    full_name(name)
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    digest = _digest(layer)
    image = json.dumps({
        "architecture": architecture,
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": check_config(config),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "precisionprobe e2e/images"}],
    }, sort_keys=True).encode()
    config_name = hashlib.sha256(image).hexdigest() + ".json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}.tar"]}]).encode()
    os.makedirs(os.path.dirname(os.path.abspath(out)), exist_ok=True)
    work = f"{out}.new.{os.getpid()}"
    try:
        with tarfile.open(work, "w", format=tarfile.PAX_FORMAT) as tar:
            _add_bytes(tar, "manifest.json", manifest)
            _add_bytes(tar, config_name, image)
            tar.add(layer, arcname=f"{digest}.tar", filter=_plain)
        os.replace(work, out)
    finally:
        if os.path.exists(work):
            os.unlink(work)
