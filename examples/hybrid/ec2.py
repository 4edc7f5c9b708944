#!/usr/bin/env python3
"""The part of the hybrid demo that stands in for Amazon, beside moto's EC2 API.

	ec2.py serve PORT FOLDER       serves the EC2 API with moto
	ec2.py image URL               prints an image that machines can be started from
	ec2.py machines URL FOLDER     is the machines: runs their user data, ends them
	ec2.py left URL                tells how many machines were started and ended

moto keeps the list of instances and starts nothing. machines asks it again and again: for
each instance that is running it runs the user data on this machine, with a
folder in front of every path that the script writes; when moto says that the
instance is terminated, everything that was started for it is killed. A script that would
shut the machine down finds another shutdown, after which the instance is terminated, as
EC2 does it. It needs the Python of scripts/setup-moto.sh, which has boto3.
"""
import base64
import os
import re
import signal
import subprocess
import sys
import time

# What the types have, as declared GPUs of an agent.
GPUS = {"g4dn.xlarge": "1xT4:16GB", "p4de.24xlarge": "1xA100:80GB"}
BOOT = 4  # seconds from running to user data


def serve(port, _folder):
    """Serves one request at a time: moto's tables are not made for several threads."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    run_simple("127.0.0.1", int(port), DomainDispatcherApplication(create_backend_app), threaded=False)


def connect(url):
    import boto3

    return boto3.client("ec2", endpoint_url=url, region_name="us-east-1", aws_access_key_id="demo", aws_secret_access_key="demo")


def instances(ec2):
    """Every instance that moto knows, also those that are terminated."""
    for page in ec2.get_paginator("describe_instances").paginate():
        for reservation in page["Reservations"]:
            yield from reservation["Instances"]


def image(url):
    images = connect(url).describe_images(Filters=[{"Name": "architecture", "Values": ["x86_64"]}])["Images"]
    print(sorted(i["ImageId"] for i in images)[0])


def left(url):
    states = [i["State"]["Name"] for i in instances(connect(url))]
    print(f"the EC2 API shows {len(states)} machines that were started and {states.count('terminated')} that were terminated")


class Machine:
    """One instance, as processes below a folder of its own."""

    def __init__(self, ec2, name, kind, folder):
        self.ec2, self.name, self.kind, self.seen = ec2, name, kind, time.monotonic()
        self.root = os.path.join(folder, name)
        self.started = self.ended = False
        os.makedirs(os.path.join(self.root, "bin"))
        for command in ("shutdown", "poweroff", "systemctl"):  # none of them may reach this machine
            path = os.path.join(self.root, "bin", command)
            with open(path, "w") as f:
                f.write(f"#!/bin/sh\n: >'{self.root}/off'\n")
            os.chmod(path, 0o755)

    def boot(self):
        """Runs the user data once the machine has had time to boot."""
        if self.started or time.monotonic() < self.seen + BOOT:
            return
        self.started = True
        attribute = self.ec2.describe_instance_attribute(InstanceId=self.name, Attribute="userData")
        text = base64.b64decode(attribute["UserData"]["Value"]).decode()
        text, count = re.subn(r"(?m)^root=.*$", f"root='{self.root}'", text, count=1)
        if count != 1:
            raise SystemExit(f"the user data of {self.name} has no line root=")
        environment = {
            "PATH": os.path.join(self.root, "bin") + ":" + os.environ["PATH"],
            "HOME": self.root,
            "TRAINYARD_FAKE_GPUS": GPUS[self.kind],
            "TRAINYARD_CPUS": "2",
            "TRAINYARD_MEMORY": "4GB",
            "TRAINYARD_PROBE": "off",
        }
        script = os.path.join(self.root, "user-data")
        with open(script, "w") as f:
            f.write(text)
        with open(os.path.join(self.root, "boot.log"), "w") as log:
            subprocess.Popen(["sh", script], env=environment, cwd=self.root, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        print(f"{self.name} boots as {self.kind}", flush=True)

    def off(self):
        """Whether a program on it has shut it down."""
        return os.path.exists(os.path.join(self.root, "off"))

    def end(self):
        """Kills what was started for it: all that names its folder."""
        while True:
            found = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid() and self.owns(pid)]
            if not found:
                break
            for pid in found:
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.05)
        self.ended = True
        print(f"{self.name} has ended", flush=True)

    def owns(self, pid):
        for name in ("cmdline", "environ"):
            try:
                with open(f"/proc/{pid}/{name}", "rb") as f:
                    if self.root.encode() in f.read():
                        return True
            except OSError:  # it has ended meanwhile, or is another user's
                pass
        return False


def machines(url, folder):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the machines' processes
    ec2, known = connect(url), {}
    while True:
        for i in instances(ec2):
            name, state = i["InstanceId"], i["State"]["Name"]
            if name not in known and state in ("pending", "running"):
                known[name] = Machine(ec2, name, i["InstanceType"], folder)
            m = known.get(name)
            if m is None or m.ended:
                continue
            if state in ("shutting-down", "terminated"):
                m.end()
            elif m.off():
                ec2.terminate_instances(InstanceIds=[name])
            elif state == "running":
                m.boot()
        time.sleep(0.5)


if __name__ == "__main__":
    commands = {"serve": serve, "image": image, "machines": machines, "left": left}
    if len(sys.argv) < 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
