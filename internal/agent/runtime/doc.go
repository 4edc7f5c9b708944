// Package runtime carries out one rank of a run on this machine.
//
// The agent starts, for each rank, a small supervisor: the same binary again
// with a hidden subcommand, in a session of its own, which outlives the agent.
// The supervisor starts the program, writes its output, enforces its limits,
// stops it when asked or when the yard is out of touch, and records how it
// ended. Everything about a rank lies in its run directory, so that an agent
// that starts anew finds all of it:
//
//	<data>/lock              held by the agent: one agent per data directory
//	<data>/lease             until when the runs may go on without the yard
//	<data>/events            named pipe; supervisors tell the agent of changes
//	<data>/runs/<run>.<rank>/
//	    launch.json          what to do; durable before anything is started
//	    state.json           how far it is; replaced as a whole at every step
//	    output.log           the output, in the format of package runlog
//	    stop                 how it was told to stop
//	    control              named pipe; wakes the supervisor to read stop
//	    lock                 held by the supervisor, or by the agent when there is none;
//	                         only its holder writes state.json
//	    supervisor.log       what the supervisor itself had to say
//	    progress.json        TRAINYARD_PROGRESS; what the program tells of how far it is
//	    metrics.jsonl        TRAINYARD_METRICS_FILE; what the SDK tells of the training
//	    work/                the working directory
//	<data>/checkpoints/<job> TRAINYARD_CHECKPOINT_DIR, kept from run to run
//	<data>/setups/<key>/     a cached set-up, see below
//
// # The end of a run
//
// A rank has ended when none of its processes is left: the supervisor is the
// reaper of all its descendants, so that a process that forks twice and takes a
// session of its own still comes back to it. It also looks into the run's cgroup and for
// the variable TRAINYARD_RANK_DIR in the environment of all processes.
//
// SIGTERM goes to the program that the job's script started, and not to the processes that the program started
// itself: it needs them to save itself, and passes the signal on if they are to know. Who loses
// its parent over that is told next. At half of the grace period everything that is left and was
// there when the stop came gets SIGTERM, and after it everything gets SIGKILL until nothing is
// left. When the program ends by itself what it left behind gets a quarter of a
// second. Only then is the end written to state.json. If the supervisor itself
// is killed the agent does the same from outside; there a process that cleared
// its environment and left its session is found by its cgroup only.
//
// # Scripts
//
// Set-up and command are run by bash -e (sh -e where there is no bash), so that
// a script of several lines stops at the first that fails. Standard input is empty.
//
// # Set-up
//
// A set-up is cached under a key made of its text, the files' digest, the
// environment and the owner. <data>/setups/<key>/dir is given to it as
// TRAINYARD_SETUP_DIR: the path is the same for all runs with that key, so a
// virtual environment belongs there. What the set-up changes in the working
// directory is kept as a copy in setups/<key>/tree and put into the working
// directory of later runs; absolute paths into the working directory do not
// last, since each run has its own. One run makes a set-up while the others
// that need it wait; a failed one leaves nothing behind. Old set-ups that no run uses are
// removed, the least recently used first.
//
// # A full disk
//
// The program goes on. Output that cannot be written is counted and a remark
// says how much is missing. A state is written again every second until that
// succeeds; so long the agent sees the state before it.
//
// The package never talks to the server and never decides what runs: the agent
// calls New, Adopt, Start, Stop, Renew and Forget, and main calls Supervise. The
// packages cgroup, process and tree below it do the parts that know nothing of runs.
package runtime
