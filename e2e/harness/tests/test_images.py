"""Images of several architectures in one archive."""
import hashlib
import json
import subprocess
import tarfile

from harness.cluster import E2E


def pack(folder, machine):
    """An archive of a root file system with one file, as `bundle` writes it for a machine."""
    root = folder / machine
    root.mkdir()
    (root / "machine").write_text(machine)
    subprocess.run([f"{E2E}/images/bundle", "--out", f"{root}.tar", "--tag", "docker.io/precisionprobe/x:1",
                    "--file", f"{root}/machine:/machine", "--machine", machine], check=True)
    return f"{root}.tar"


def test_each_platform_is_found_by_the_index(tmp_path):
    out = tmp_path / "all.oci"
    subprocess.run([f"{E2E}/images/join", "--out", str(out), "--tag", "1", pack(tmp_path, "x86_64"), pack(tmp_path, "aarch64")],
                   check=True)
    with tarfile.open(out) as tar:
        blobs = {name.rsplit("/", 1)[1]: tar.extractfile(name).read() for name in tar.getnames() if name.startswith("blobs/")}
        top = json.load(tar.extractfile("index.json"))

    def follow(descriptor):
        data = blobs[descriptor["digest"].removeprefix("sha256:")]
        assert len(data) == descriptor["size"]
        return data

    assert all(hashlib.sha256(data).hexdigest() == digest for digest, data in blobs.items())
    named, = top["manifests"]
    assert named["annotations"] == {"org.opencontainers.image.ref.name": "1"}
    images = json.loads(follow(named))["manifests"]
    assert [image["platform"]["architecture"] for image in images] == ["amd64", "arm64"]
    for image in images:
        manifest = json.loads(follow(image))
        config = json.loads(follow(manifest["config"]))
        layers = [hashlib.sha256(follow(layer)).hexdigest() for layer in manifest["layers"]]
        assert config["architecture"] == image["platform"]["architecture"]
        assert config["rootfs"]["diff_ids"] == [f"sha256:{digest}" for digest in layers]
