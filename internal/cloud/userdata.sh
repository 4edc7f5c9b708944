
# From here on the script is the same for every machine; what is its own stands above.
set -u
umask 077
data=$root/var/lib/trainyard
etc=$root/etc/trainyard
bin=$root/usr/local/bin
units=$root/etc/systemd/system
file=$data/agent/lease-end

say() { echo "trainyard: $*"; }
give_up() {
	say "$*; the machine ends with its lease"
	exit 1
}

# 1. The dead man's switch, before anything that can fail. It runs from memory: it needs
# no disk, no network and no service manager. The time that is left counts from now. The
# wall clock can only make it shorter, because it may be wrong.
boot=$(cat /proc/sys/kernel/random/boot_id)
read -r up rest </proc/uptime
up=${up%%.*}
now=$(date +%s)
left=$lease_left
if [ $((lease_until - now)) -gt 0 ] && [ $((lease_until - now)) -lt "$left" ]; then
	left=$((lease_until - now))
fi
set -- "$file" "$lease_slack" "$boot" $((up + left)) $((now + left)) "$left"
(
	trap '' HUP
	exec sh -c "$switch" trainyard-switch "$@"
) </dev/null >/dev/null 2>&1 &
say "this machine ends itself in $left seconds unless lease $lease is renewed"

mkdir -p "$data/agent" "$etc" "$bin" || give_up "cannot make folders"
printf '%s %s %s %s\n' "$3" "$4" "$5" "$6" >"$file.new" && mv "$file.new" "$file" || give_up "cannot write the lease's end"

systemd=
if [ -d "$root/run/systemd/system" ]; then systemd=yes; fi
if [ "$systemd" ]; then # once more as a service, which is there after a reboot too
	printf '%s\n' "$switch" >"$bin/trainyard-switch" && chmod 755 "$bin/trainyard-switch" || give_up "cannot write the switch"
	cat >"$units/trainyard-switch.service" <<UNIT || give_up "cannot write the switch's service"
[Unit]
Description=Ends this machine when its lease is over
StartLimitIntervalSec=0

[Service]
ExecStart=$bin/trainyard-switch $*
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
UNIT
	systemctl daemon-reload && systemctl enable trainyard-switch.service && systemctl start --no-block trainyard-switch.service ||
		say "the switch will not come back after a reboot"
fi

# 2. The agent's program. Its digest came with this script, so it does not matter who
# delivers it: a server that nobody vouches for cannot pass off another one.
genuine() {
	[ -f "$1" ] && { [ -z "$agent_hash" ] || printf '%s  %s\n' "$agent_hash" "$1" | sha256sum -c - >/dev/null 2>&1; }
}
fetch() {
	if command -v curl >/dev/null 2>&1; then
		curl --fail --silent --show-error --location --globoff --insecure --connect-timeout 10 --max-time 900 --output "$1" --url "$agent_url"
	else
		wget -q --no-check-certificate --timeout=60 --tries=1 -O "$1" -- "$agent_url"
	fi
}
program=$bin/trainyard
if [ -z "$agent_url" ]; then
	program=$(command -v trainyard) || give_up "the image has no trainyard, and nowhere to fetch it from was given"
	genuine "$program" || give_up "the image has another trainyard than the yard wants"
elif ! genuine "$program"; then
	wait=1
	until fetch "$program.new" && genuine "$program.new"; do
		say "cannot fetch the agent's program, or it is not the right one; again in $wait seconds"
		sleep "$wait"
		wait=$((wait * 2))
		if [ "$wait" -gt 60 ]; then wait=60; fi
	done
	chmod 755 "$program.new" && mv "$program.new" "$program" || give_up "cannot put the agent's program in place"
fi
say "the agent's program is in place"

# 3. Its settings. The token goes into a file that root alone can read: not into an
# argument, which everyone sees, and not into the log.
printf '%s\n' "$settings" >"$etc/agent.json" && printf '%s' "$server" >"$etc/server" || give_up "cannot write the settings"
cat >"$bin/trainyard-node" <<NODE && chmod 755 "$bin/trainyard-node" || give_up "cannot write the start script"
#!/bin/sh
# A variable, since agents of earlier versions refuse a setting that they do not know.
export TRAINYARD_ISOLATION=users
exec "$program" agent join --data "$data" --config "$etc/agent.json" -- "\$(cat "$etc/server")"
NODE

# 4. The agent, as a service that is started again whenever it ends. What it runs outlives it.
if [ "$systemd" ]; then
	cat >"$units/trainyard-agent.service" <<UNIT || give_up "cannot write the agent's service"
[Unit]
Description=Trainyard agent
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart=$bin/trainyard-node
Restart=always
RestartSec=5
KillMode=process
Delegate=yes
LimitNOFILE=1048576

[Install]
WantedBy=multi-user.target
UNIT
	systemctl daemon-reload && systemctl enable trainyard-agent.service && systemctl start --no-block trainyard-agent.service ||
		give_up "cannot start the agent's service"
else
	mkdir -p "$root/var/log" || give_up "cannot make folders"
	(
		trap '' HUP
		while :; do
			"$bin/trainyard-node"
			sleep 5
		done
	) </dev/null >>"$root/var/log/trainyard-agent.log" 2>&1 &
fi
say "the agent is started"
