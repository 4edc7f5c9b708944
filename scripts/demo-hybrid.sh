#!/usr/bin/env bash
# Shows a hybrid yard on this machine, in about a minute and a half: two local nodes, a reserved one and
# a cloud from which nodes are provisioned, with a stream of small training jobs that want different
# things. It prints every decision with its reason, and finally usage and cost.
#
#	scripts/demo-hybrid.sh                machines are provisioned from a cloud of local processes
#	PROVIDER=ec2 scripts/demo-hybrid.sh   from a server of the EC2 API (moto)
#	KEEP=1                                leaves the folder with all logs behind
#
# Everything lies in one temporary folder, and nothing outlives the script, however it ends.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
trainyard=${TRAINYARD:-$root/build/trainyard}
provider=${PROVIDER:-process}
files=$root/examples/hybrid

fail() {
  printf 'demo-hybrid: %s\n' "$*" >&2
  exit 1
}
[ -x "$trainyard" ] || fail "there is no $trainyard: make build"
command -v python3 >/dev/null || fail "the training programs need python3"
case $provider in process | ec2) ;; *) fail "PROVIDER is process or ec2, not $provider" ;; esac

work=$(mktemp -d "${TMPDIR:-/tmp}/demo-hybrid-XXXXXX")
bold='' plain='' dim=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m' plain=$'\e[0m' dim=$'\e[2m'; fi
title() { printf '\n%s── %s ──%s\n' "$bold" "$*" "$plain"; }
note() { printf '%s%s%s\n' "$dim" "$*" "$plain"; }

# ours prints every process whose arguments or environment name the demo's folder: servers,
# agents, machines, supervisors and programs. The folder's name is drawn, so they are nobody else's.
ours() {
  local p
  for p in /proc/[0-9]*; do
    [ "${p#/proc/}" != "$$" ] || continue
    if grep -qsF "$work" "$p/cmdline" "$p/environ"; then echo "${p#/proc/}"; fi
  done
}
cleanup() {
  local code=$? pid
  trap '' INT TERM
  trap - EXIT
  for pid in $(ours); do kill -TERM "$pid" 2>/dev/null || true; done
  for _ in $(seq 50); do
    [ -n "$(ours)" ] || break
    sleep 0.1
  done
  for pid in $(ours); do kill -KILL "$pid" 2>/dev/null || true; done
  if [ -n "${KEEP:-}" ]; then
    printf 'all of it is kept in %s\n' "$work"
  else
    rm -rf "$work"
  fi
  exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# as runs a command as one of the people of the demo, each with logins of their own. It may take two minutes, or
# $limit (0: for ever).
as() {
  local who=$1
  shift
  XDG_CONFIG_HOME=$work/people/$who TRAINYARD_DEMO=$work NO_COLOR=${NO_COLOR:-} timeout --foreground "${limit:-120}" "$trainyard" "$@"
}
# await waits until a command succeeds; five minutes at least, because the machine may be busy.
await() {
  local what=$1 n
  shift
  for n in $(seq 1500); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.2
  done
  fail "waited in vain for $what; see $work (KEEP=1 keeps it)"
}

# 1. The cloud.
cp "$files/tariff.yaml" "$work/"
if [ "$provider" = ec2 ]; then
  installed=$(scripts/setup-moto.sh)
  python=$(dirname "${installed%%$'\n'*}")/python
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  endpoint=http://127.0.0.1:$port
  export AWS_ACCESS_KEY_ID=demo AWS_SECRET_ACCESS_KEY=demo AWS_REGION=us-east-1 AWS_EC2_METADATA_DISABLED=true
  mkdir "$work/machines"
  "$python" "$files/ec2.py" serve "$port" "$work" >"$work/moto.log" 2>&1 &
  await "the EC2 API server" python3 -c "import urllib.request as u; u.urlopen('$endpoint/moto-api/')"
  image=$("$python" "$files/ec2.py" image "$endpoint")
  sed "s|ENDPOINT|$endpoint|; s|IMAGE|$image|" "$files/clouds-ec2.yaml" >"$work/clouds.yaml"
  cp "$files/offers-ec2.yaml" "$work/offers.yaml"
  "$python" "$files/ec2.py" machines "$endpoint" "$work/machines" >"$work/machines.log" 2>&1 &
else
  cp "$files/clouds.yaml" "$files/offers.yaml" "$work/"
fi

# 2. The yard and its own nodes.
TRAINYARD_DEMO=$work "$trainyard" server --data "$work/server" --listen 127.0.0.1:0 --clouds "$work/clouds.yaml" --tariff "$work/tariff.yaml" \
  --policy rules:time=3000:balanced=120:cost=3 --report-every 500ms --retry-wait 500ms >"$work/server.log" 2>&1 &
printed() { grep -q -- '--token-file' "$work/server.log"; }
await "the server" printed
url=$(sed -n 's|.*trainyard login \(https://[^ ]*\) --token-file .*|\1|p' "$work/server.log")
as admin login "$url" --token-file "$work/server/bootstrap-token" >/dev/null 2>>"$work/cli.log"
join() { # NAME CLASS GPUS
  local secret
  secret=$(as admin tokens create --join --class "$2" -q)
  TRAINYARD_DEMO=$work TRAINYARD_TOKEN=$secret "$trainyard" agent join "$url" --name "$1" --data "$work/$1" --fake-gpus "$3" --cpus 4 --memory 8GB --probe off --isolation none --mix-users yes --data-roots "$work" \
    >"$work/$1.log" 2>&1 &
}
join lab-v100 local 2xV100:16GB
join lab-a100 local 1xA100:40GB
join rack-v100 reserved 1xV100:32GB
joined() { [ "$(as admin nodes -o json | grep -c '"state": *"idle"')" -ge 3 ]; }
await "the nodes" joined
for who in ann ben; do
  as admin users add "$who" >/dev/null
  as admin tokens create --login --owner "$who" -q | as "$who" login "$url" --token - >/dev/null 2>>"$work/cli.log"
done
mkdir "$work/patients"
echo "made up for the demo" >"$work/patients/scans.txt"
as admin data add patients --place local --size 2GB --source "$work/patients" >/dev/null

title "The yard"
if [ "$provider" = ec2 ]; then
  note "Simulated: moto answers the EC2 API but starts no machines. For each instance that it shows, its user data is run on this machine, below a folder, with declared GPUs."
else
  note "Simulated: GPUs are declared, and provisioned machines are processes on this machine. The training programs, the agents and the accounting are real."
fi
note "One second stands for one minute: prices, energy cost and the value of time are sixty times the usual ones."
as admin nodes
title "Offers"
as admin offers
title "Data"
as admin data

# 3. The stream of jobs, with the events as they happen.
title "Submissions"
limit=0 as admin events --after 0 --limit 1000000 -f -o json 2>"$work/events.log" | python3 -u "$files/story.py" "$work/names" "$work/shown" &
submit() { # WHO JOB
  local out
  printf '%s%s submits %s:%s %s\n' "$bold" "$1" "$2" "$plain" "$(sed -n '1s/^# //p' "$files/jobs/$2.yaml")"
  if ! out=$(as "$1" submit -y -q "$files/jobs/$2.yaml" 2>"$work/refused"); then
    sed 's/^/    refused: /' "$work/refused"
    return
  fi
  echo "$out $2" >>"$work/names"
}
: >"$work/names"
submit ann warm-up
submit ben baseline
sleep 3
note "ann estimates the cost first, with --dry-run:"
as ann submit --dry-run "$files/jobs/big-memory.yaml" 2>/dev/null | sed 's/^/    /'
submit ann big-memory
submit ben too-big
sleep 4
for n in 1 2 3; do submit ben "ablation-$n"; done
submit ann reserved-first
sleep 4
submit ann patient-scans
submit ben deadline-talk
sleep 4
submit ben thrifty
submit ann with-budget

sleep 2
title "Queued jobs and their reasons"
as admin jobs --limit 50
title "Running"
# In the background, because a signal is not heeded while something runs in front.
# shellcheck disable=SC2046 # a list of ids
limit=0 as admin wait $(cut -d' ' -f1 "$work/names") >/dev/null 2>>"$work/cli.log" &
waiting=$!
# On a slow machine the boot may use up the budget of a job. It never starts then, until its owner decides.
while kill -0 "$waiting" 2>/dev/null; do
  if as ann jobs --state pending -o json 2>>"$work/cli.log" | grep 'of its budget of' >/dev/null; then
    as ann cancel with-budget >/dev/null 2>>"$work/cli.log" || true
    break
  fi
  sleep 1
done &
wait "$waiting" || note "not all of them succeeded"

title "All jobs have ended; idle machines are released"
released() { [ -z "$(as admin leases -q)" ]; }
await "the release of all machines" released
last=$(as admin events --limit 1 -o jsonl | sed -n 's/.*"seq": *\([0-9]*\).*/\1/p')
shown() { [ "$(cat "$work/shown")" -ge "$last" ]; }
await "the last events to be printed" shown

title "Jobs"
as admin jobs --limit 50
title "Leases: every machine that was provisioned, why, and what it cost"
as admin leases --all
as admin leases report
title "Usage"
as admin usage --last 1h
title "Savings"
as admin savings --last 1h
title "Did the patients' data leave the building?"
as admin data audit patients
title "Remaining machines"
if [ "$provider" = ec2 ]; then
  "$python" "$files/ec2.py" left "$endpoint"
else
  printf 'the cloud started %s machines and ended %s of them\n' "$(grep -c '"event":"launched"' "$work/machines/log.jsonl")" "$(grep -c '"event":"ended"' "$work/machines/log.jsonl")"
fi
