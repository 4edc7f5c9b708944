package rundir

import (
	"hash/crc32"
	"path/filepath"
	"strconv"
	"time"

	"trainyard/internal/id"
)

// Names inside the data directory.
const (
	RunsDir          = "runs"
	SetupsDir        = "setups"
	CheckpointsDir   = "checkpoints"
	SetAsideDir      = "set-aside"
	ContactLeaseFile = "lease"
	EventsPipe       = "events"
	CachesDir        = "caches" // of programs such as pip, one for each user whose jobs run isolated
	// CheckpointOwnersDir has a file for each job with checkpoints: its UID.
	CheckpointOwnersDir = "checkpoint-owners"
	KeptDir             = "kept" // working directories of ranks that have ended
)

// LockFile is the name of the lock in the data directory and in a run directory, WatchLockFile that of the lock
// of whoever watches a rank.
const (
	LockFile      = "lock"
	WatchLockFile = "watch.lock"
)

// Names inside a run directory.
const (
	LaunchFile    = "launch.json"
	StateFile     = "state"
	OutputFile    = "output.log"
	StopFile      = "stop-request"
	SaveFile      = "save-request"
	SuspendFile   = "suspend-request"
	EvictFile     = "evict-request"
	StartFile     = "start-request"
	HostFile      = "hostfile"
	InputPipe     = "input"
	ControlPipe   = "control"
	SupervisorLog = "supervisor.log"
	WorkDir       = "work"
	ProgressFile  = "progress.json"
	MetricsFile   = "metrics.jsonl"
	SecretsDir    = "secrets"
	ShareDir      = "gpu" // socket and memory accounts of the rank on the GPU that it shares, see package share
)

// Names inside the run directory of a rank whose program runs as a user of its own. The first three, and WorkDir,
// belong to that user.
const (
	HomeDir     = "home"
	TmpDir      = "tmp"      // the program's /tmp
	ReportDir   = "report"   // has ProgressFile and MetricsFile
	RequestsDir = "requests" // has SaveFile; the program only reads it
	DraftsDir   = "drafts"   // of snapshots; closed to the program
)

// Hidden subcommands of the trainyard binary.
const (
	Subcommand       = "supervise"        // DIR: the supervisor of a rank
	SeriesSubcommand = "supervise-series" // DIR: the supervisor of a rank and of those that its input names after it
	WatchSubcommand  = "watch-ranks"      // DATA: the watcher of the ranks that its input names, see package watcher
)

// RankDirVar is set in the environment of every process of a rank, so that agent and supervisor can
// find processes that left its session.
const RankDirVar = "TRAINYARD_RANK_DIR"

// LeftoverGrace is how long processes that a program leaves behind when it exits
// have between SIGTERM and SIGKILL.
const LeftoverGrace = 250 * time.Millisecond

// RankName returns the name of a rank's run directory.
func RankName(run id.Run, rank int) string { return string(run) + "." + strconv.Itoa(rank) }

// GroupName returns the name of the cgroup of a run directory. It contains a checksum of the path,
// because another agent on this machine may run a rank of the same name.
func GroupName(dir string) string {
	return filepath.Base(dir) + "-" + strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(dir))), 16)
}
