// Package rundir is the protocol between the agent and the supervisors of its ranks:
// the layout of the data directory and the formats of the files in it.
//
//	<data>/lock              held by the agent: one agent per data directory
//	<data>/lease             until when the runs may continue without contact to the server
//	<data>/events            named pipe; supervisors announce state changes to the agent
//	<data>/runs/<run>.<rank>/
//	    launch.json          what to execute; durable before anything is started
//	    state                current state, written at every step
//	    output.log           the output, in the format of package logs
//	    stop-request         the requested stop mode
//	    save-request         the number of the last request to save a checkpoint; absent if there was none
//	    evict-request        why the agent itself stops the rank; absent if it does not
//	    control              named pipe; wakes the supervisor to read stop-request
//	    lock                 held by the supervisor, or by whoever ends its rank when it
//	                         is gone; only its holder writes state
//	    watch.lock           held by the process that watches the rank
//	    supervisor.log       the supervisor's own log, and the watcher's
//	    progress.json        TRAINYARD_PROGRESS; progress that the program reports
//	    metrics.jsonl        TRAINYARD_METRICS_FILE; metrics that the SDK writes
//	    secrets/             secrets that the program gets as files, while it runs
//	    gpu/                 socket and memory accounts of a rank that shares its GPU, see package share
//	    work/                the working directory
//	    home/ tmp/ report/ requests/ drafts/   if the program runs as a user of its own; report/ has
//	                         progress.json and metrics.jsonl then, and requests/ save-request
//	<data>/caches/<uid>      XDG_CACHE_HOME of such programs
//	<data>/checkpoints/<job> TRAINYARD_CHECKPOINT_DIR, kept from run to run, unless it is on a shared file system
//	<data>/checkpoint-owners/<job>  the UID of the job whose checkpoints they are
//	<data>/setups/<key>/     a cached set-up
//	<data>/set-aside/        runs and checkpoints of another history of the yard, see Runtime.SetAside
//
// Secrets are in no file that the agent writes: it passes them to the supervisor on standard input.
//
// The agent writes launch.json, stop-request, save-request and lease; the holder of a rank's lock
// writes its state. lease, state and stop-request have reserved room and are written in
// place, so that a run can be stopped and its end recorded on a full disk. The package
// also knows how the processes of a rank are recognised, since both sides must end
// them. It starts no process and decides nothing about runs.
package rundir
