"""Fills a fresh OpenStack with what the tests need, through its own APIs.

  seed.py identity          projects, users, roles, the catalogue of services
  seed.py cloud COMMAND...  flavors, an image, a quota, an application credential; runs
                            COMMAND until the compute host is known; writes /srv/state/env.new
"""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

PORT = {name: os.environ[name + "_PORT"] for name in ("KEYSTONE", "NOVA", "GLANCE", "PLACEMENT", "NEUTRON")}
KEYSTONE = f"http://127.0.0.1:{PORT['KEYSTONE']}/v3"
NOVA = f"http://127.0.0.1:{PORT['NOVA']}/v2.1"
GLANCE = f"http://127.0.0.1:{PORT['GLANCE']}/v2"
DEADLINE = time.monotonic() + 180


def call(method, url, body=None, token=None, headers=None, data=None):
    headers = dict(headers or {})
    if token:
        headers["X-Auth-Token"] = token
    if body is not None:
        data = json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
            return answer.headers, json.loads(text) if text else {}
    except urllib.error.HTTPError as e:
        raise RuntimeError(f"{method} {url}: {e.code} {e.read()[:500]!r}") from e


def patiently(what, attempt):
    """Services need a while to come up: try until the deadline."""
    while True:
        try:
            return attempt()
        except (RuntimeError, OSError) as e:
            if time.monotonic() > DEADLINE:
                raise SystemExit(f"{what}: {e}")
            time.sleep(0.5)


def login(user, project):
    domain = {"name": "Default"}
    headers, answer = call("POST", KEYSTONE + "/auth/tokens", {"auth": {
        "identity": {"methods": ["password"], "password": {"user": {"name": user, "password": "secret", "domain": domain}}},
        "scope": {"project": {"name": project, "domain": domain}}}})
    return headers["X-Subject-Token"], answer["token"]


def identity():
    admin, token = patiently("keystone", lambda: login("admin", "admin"))
    roles = {r["name"]: r["id"] for r in call("GET", KEYSTONE + "/roles", token=admin)[1]["roles"]}
    for user, role in (("service", "admin"), ("service", "service"), ("yard", "member")):
        made = {}
        for kind, extra in (("project", {}), ("user", {"password": "secret"})):
            found = call("GET", f"{KEYSTONE}/{kind}s?name={user}", token=admin)[1][kind + "s"]
            made[kind] = found[0] if found else call("POST", f"{KEYSTONE}/{kind}s", {kind: {
                "name": user, "domain_id": "default", **extra}}, admin)[1][kind]
        call("PUT", f"{KEYSTONE}/projects/{made['project']['id']}/users/{made['user']['id']}/roles/{roles[role]}", token=admin)
    # The second region has no compute service: what is asked for there must be refused, not lost.
    call("POST", KEYSTONE + "/regions", {"region": {"id": "empty"}}, admin)
    for kind, url in (("compute", NOVA), ("image", f"http://127.0.0.1:{PORT['GLANCE']}"),
                      ("placement", f"http://127.0.0.1:{PORT['PLACEMENT']}"), ("network", f"http://127.0.0.1:{PORT['NEUTRON']}")):
        service = call("POST", KEYSTONE + "/services", {"service": {"type": kind, "name": kind}}, admin)[1]["service"]["id"]
        call("POST", KEYSTONE + "/endpoints", {"endpoint": {
            "service_id": service, "region_id": "lab", "interface": "public", "url": url}}, admin)


FLAVORS = (  # name, vCPUs, MiB, extra specs
    ("plain", 2, 2048, {}),
    ("gpu", 8, 65536, {"trainyard:gpu": "A100", "trainyard:gpus": "2", "trainyard:gpu_memory": "40GB", "trainyard:hourly": "3.25"}),
    ("vgpu", 4, 16384, {"resources:VGPU": "1", "trainyard:gpu": "T4"}),
    ("huge", 1, 8_000_000, {}),  # more memory than any host has
)


def cloud(discover):
    admin, _ = login("admin", "admin")
    yard, scoped = login("yard", "yard")
    project, user = scoped["project"]["id"], scoped["user"]["id"]
    patiently("nova", lambda: call("GET", NOVA + "/flavors", token=admin))
    env = {}
    for name, vcpus, ram, specs in FLAVORS:
        flavor = call("POST", NOVA + "/flavors", {"flavor": {
            "name": name, "vcpus": vcpus, "ram": ram, "disk": 1}}, admin)[1]["flavor"]["id"]
        env["FLAVOR_" + name] = flavor
        if specs:
            call("POST", f"{NOVA}/flavors/{flavor}/os-extra_specs", {"extra_specs": specs}, admin)
    image = call("POST", GLANCE + "/images", {
        "name": "debian", "disk_format": "raw", "container_format": "bare", "visibility": "public"}, admin)[1]["id"]
    call("PUT", f"{GLANCE}/images/{image}/file", token=admin, data=b"\0" * 512, headers={"Content-Type": "application/octet-stream"})
    # Two servers of two cores are the most that this project may have.
    call("PUT", f"{NOVA}/os-quota-sets/{project}", {"quota_set": {"instances": 10, "cores": 4, "ram": -1}}, admin)
    secret = call("POST", f"{KEYSTONE}/users/{user}/application_credentials", {
        "application_credential": {"name": "yard"}}, yard)[1]["application_credential"]
    member = next(r["id"] for r in call("GET", KEYSTONE + "/roles", token=admin)[1]["roles"] if r["name"] == "member")

    def host_is_known():
        subprocess.run(discover, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        hosts = call("GET", NOVA + "/os-hypervisors", token=admin)[1]["hypervisors"]
        if not hosts:
            raise RuntimeError("no compute host yet")
    patiently("nova-compute", host_is_known)
    with open("/srv/state/env.new", "w") as f:
        for key, value in {
            **env, "OS_AUTH_URL": KEYSTONE, "NOVA_URL": NOVA, "GLANCE_URL": GLANCE, "IMAGE_ID": image, "PROJECT_ID": project,
            "MEMBER_ROLE": member, "APPLICATION_CREDENTIAL_ID": secret["id"], "APPLICATION_CREDENTIAL_SECRET": secret["secret"],
        }.items():
            f.write(f"{key}={value}\n")


if sys.argv[1] == "identity":
    identity()
else:
    cloud(sys.argv[2:])
