#!/bin/sh
# The dead man's switch: ends this machine when its lease is over, whatever else failed.
#
#	trainyard-switch FILE SLACK BOOT UNTIL WALL GIVEN
#
# FILE is where the agent says when the lease ends, in the last four fields: for which
# boot of the machine, in seconds since that boot, as Unix time, and for how many
# seconds it was given. While it says nothing that makes sense, those of the command line
# hold. The clock that counts from boot cannot be set; after another boot the wall clock
# holds, but never for longer than what was given. SLACK seconds later the machine
# ends: so long the agent has to stop what runs and to end it in order.
number() {
	case $1 in
	'' | *[!0-9]* | 0?* | ????????????????*) return 1 ;;
	esac
}
while :; do
	boot=$3 until=$4 wall=$5 given=$6
	if [ -r "$1" ] && read -r b u w g rest <"$1" && number "$u" && number "$w" && number "$g"; then
		boot=$b until=$u wall=$w given=$g
	fi
	read -r up rest </proc/uptime
	up=${up%%.*}
	if [ "$boot" = "$(cat /proc/sys/kernel/random/boot_id)" ]; then
		over=$((up - until))
	else
		over=$(($(date +%s) - wall))
		if [ $((up - given)) -gt "$over" ]; then over=$((up - given)); fi
	fi
	if [ "$over" -ge "$2" ]; then
		shutdown -P now || systemctl poweroff --force || poweroff -f
	fi
	sleep 15
done
