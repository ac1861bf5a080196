"""What a kustomization makes of its files, for those features that deploy/kubernetes uses.

Another feature is an error here, so no check passes over it. A test compares the result with that
of kubectl.
"""

from pathlib import Path
from typing import Any

import yaml

Resource = dict[str, Any]

FEATURES = {"apiVersion", "kind", "resources", "configMapGenerator"}
GENERATOR_FEATURES = {"name", "files", "literals"}


def built(folder: Path) -> list[Resource]:
    """Return the resources of a folder with a kustomization, without the hashes of names."""
    file = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert file["apiVersion"] == "kustomize.config.k8s.io/v1beta1"
    assert file["kind"] == "Kustomization"
    assert file.keys() <= FEATURES
    resources: list[Resource] = []
    for name in file["resources"]:
        place = folder / name
        if place.is_dir():
            resources += built(place)
        else:
            resources += [one for one in yaml.load_all(place.read_text(), yaml.CSafeLoader) if one]
    return resources + [generated(folder, entry) for entry in file.get("configMapGenerator", [])]


def generated(folder: Path, entry: dict[str, Any]) -> Resource:
    """Return the ConfigMap of a generator."""
    assert entry.keys() <= GENERATOR_FEATURES
    data = {Path(name).name: (folder / name).read_text() for name in entry.get("files", [])}
    for literal in entry.get("literals", []):
        name, equals, value = literal.partition("=")
        assert equals
        data[name] = value
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": entry["name"]},
        "data": data,
    }
