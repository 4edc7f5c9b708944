// Package runtime executes the ranks of runs on this machine: the agent's side.
//
// For each rank the agent starts a supervisor (packages subprocess and supervisor) in
// its own session, which outlives the agent, or gives the rank to one whose rank has ended. Agent and
// supervisor are two processes that talk only through files and named pipes in the
// run directory, whose layout and formats are package rundir. An agent that restarts
// finds everything there.
//
// This package makes the run directory and the working directory (Start), starts the
// supervisor, takes over the ranks of an earlier agent (Adopt), passes stop requests
// on (Stop), records the end of ranks whose supervisor was killed, and removes old run
// directories, set-ups and checkpoints (Forget and pruning).
//
// If a supervisor is killed, the agent ends the processes of its rank from outside.
// A process that cleared its environment and left its session is then found only by
// its cgroup.
//
// # Set-up
//
// A set-up is cached under a key made of its text, the digest of the files, the
// environment and the owner. <data>/setups/<key>/dir is given to it as
// TRAINYARD_SETUP_DIR: the path is the same for all runs with that key, so a virtual
// environment belongs there. What the set-up changes in the working directory is
// kept as a copy in setups/<key>/tree and put into the working directory of later
// runs; absolute paths into the working directory do not survive, since each run has
// its own. One run makes a set-up while the others that need it wait; a failed one
// leaves nothing behind. Set-ups that no run uses are removed when they are old or
// the cache is full, the least recently used first.
//
// # Environments
//
// A launch may ask for a Python environment (package pyenv). The supervisor makes it before the set-up, in the same
// cache, by the same rules: <data>/setups/py-<key>/dir, made once while others wait, read-only after that.
//
// # Users
//
// With Options.Users each program runs as a user of its own (package sandbox), and so does its set-up: the cached
// directory is sealed when it is complete. The folders of a rank and the cache of its user are made here, and the
// working directory is given to the user when its files are there.
//
// # Visitors
//
// People may start processes beside a program (Visit, package visitor), inside the same walls, and connect to ports
// that its processes listen on (DialPort).
//
// The package never talks to the server and never decides what runs.
package runtime
