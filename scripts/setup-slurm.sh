#!/bin/sh
# Installs Slurm from Debian's packages, for `make bench-core` and for the tests
# of the Slurm engine. Only what is missing is installed, nothing is started:
# whoever needs Slurm starts its daemons in a folder of its own, on ports of its
# own, and stops them again.
#
# Accounting (slurmdbd with MariaDB) is left out on purpose: the benchmark
# compares rates and latencies, and Slurm is faster without it.
set -eu

packages="slurmctld slurmd slurmrestd slurm-client slurm-wlm-basic-plugins slurm-wlm-jwt-plugin munge"

missing=""
for p in $packages; do
	if ! dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null | grep -qx installed; then
		missing="$missing $p"
	fi
done

if [ -n "$missing" ]; then
	if ! command -v apt-get >/dev/null 2>&1; then
		echo "setup-slurm: this needs Debian's packages, and apt-get is not here; missing:$missing" >&2
		exit 1
	fi
	if [ "$(id -u)" -ne 0 ]; then
		echo "setup-slurm: these packages are missing; install them as root:" >&2
		echo "  apt-get install --no-install-recommends$missing" >&2
		exit 1
	fi
	# Without this the packages would start daemons with Debian's own
	# configuration; 101 is the answer "not allowed" to invoke-rc.d.
	if [ ! -e /usr/sbin/policy-rc.d ]; then
		trap 'rm -f /usr/sbin/policy-rc.d' EXIT
		trap 'exit 1' INT TERM
		printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
		chmod 755 /usr/sbin/policy-rc.d
	fi
	echo "setup-slurm: installing$missing"
	export DEBIAN_FRONTEND=noninteractive
	# The list of packages may be old or absent on a fresh machine: try, renew, try again.
	# shellcheck disable=SC2086
	apt-get install -qq -y --no-install-recommends $missing >/dev/null 2>&1 || {
		apt-get update -qq
		apt-get install -qq -y --no-install-recommends $missing >/dev/null
	}
fi

/usr/sbin/slurmctld -V
