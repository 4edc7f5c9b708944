#!/bin/sh
# A fake nvidia-cuda-mps-control: -d starts a daemon that does nothing, in the folder of CUDA_MPS_PIPE_DIRECTORY; commands
# come by standard input. What it did is written to the file of its own name with .log.
pid=$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid

if [ "$1" = -d ]; then
	setsid sleep 1000000 < /dev/null > /dev/null 2>&1 &
	echo $! > "$pid"
	echo "start $CUDA_VISIBLE_DEVICES" >> "$0.log"
	exit 0
fi

if ! kill -0 "$(cat "$pid" 2> /dev/null)" 2> /dev/null; then
	echo "Cannot find MPS control daemon process"
	exit 1
fi

while read -r command; do
	if [ "$command" = quit ]; then
		kill "$(cat "$pid")"
		rm "$pid"
		echo quit >> "$0.log"
	fi
done
