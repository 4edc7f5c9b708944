// Package checkpoints finds the checkpoints that programs write, stores them with the server, and brings the right one
// back before a later run.
//
// A Saver follows the checkpoint directory of one rank. It decides when a checkpoint is complete (find.go: by the SDK's
// marker, by a known layout, by a rename, or because nothing is written any more), cuts its files into content-defined
// chunks (cut.go), uploads those that the store lacks (store.go) and enters it in the catalogue. One checkpoint is
// uploaded at a time; of those that became complete meanwhile the newest is next. Restore makes a checkpoint directory
// hold exactly one checkpoint, whose every chunk it verifies. On a shared file system nothing is uploaded or downloaded
// but the list of files (shared.go).
//
// A Keeper uploads the output files of a rank that has ended in the same way (outputs.go): those files of its working
// directory that the job file names (chosen.go).
//
// The agent uses it (agent/checkpoints.go). The package decides nothing about runs: what is restored is what the
// launch says, and the end of a rank is held back by the agent.
package checkpoints

import (
	"context"
	"io"
	"log/slog"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Yard is what the package needs of the server.
type Yard interface {
	// Chunks says where chunks are uploaded to, of those that the store lacks, or downloaded from.
	Chunks(ctx context.Context, req api.ChunksRequest) (api.ChunksReply, error)
	// PutChunk stores a chunk through the server.
	PutChunk(ctx context.Context, run id.Run, digest string, content []byte) error
	// FetchChunk opens a chunk through the server.
	FetchChunk(ctx context.Context, run id.Run, digest string) (io.ReadCloser, error)
	// AddCheckpoint enters a checkpoint, or one rank's part of it, in the catalogue.
	AddCheckpoint(ctx context.Context, in api.NewCheckpoint) (api.NewCheckpointReply, error)
	// AddOutputs enters output files in the catalogue, or asks whether there is room for them.
	AddOutputs(ctx context.Context, in api.NewOutputs) error
	// UnneededDirs says which directories on a shared file system are not needed any more.
	UnneededDirs(ctx context.Context, in api.SharedDirs) (api.SharedDirsReply, error)
}

var _ Yard = (*api.Client)(nil)

// Options configures the savers and restores of an agent. Dir, Yard, Log and Clock are required.
type Options struct {
	Dir  string      // where the state of uploads is kept between starts of the agent
	Yard func() Yard // the connection to the server, which may change
	Log  *slog.Logger
	// Clock is compared with the times of files.
	Clock clock.Clock
	// Changed is called when there is something new to report.
	Changed func()
	// Problem is called with the newest error of an operation, nil if it works again.
	Problem func(operation string, err error)
	// Shared checks that a shared file system is there, and returns its root.
	Shared func(ctx context.Context, name string) (string, error)
	// Free measures a disk; see package diskspace.
	Free func(dir string) (free, total job.Bytes, err error)

	Every time.Duration // how often a checkpoint directory is looked at; 2 seconds if left out
	// Rest is for how long files of an unknown layout must be unchanged before they count as complete; 10 seconds if
	// left out.
	Rest time.Duration
	// Interval is the least time between two checkpoints of a run that neither a marker nor a known layout tells apart
	// from any other files; 10 seconds if left out.
	Interval time.Duration
	// Patience is how long the end of a rank is held back while nothing of its checkpoint moves; 10 minutes if left out.
	Patience time.Duration
}

// The defaults.
const (
	defaultEvery    = 2 * time.Second
	defaultRest     = 10 * time.Second
	defaultInterval = 10 * time.Second
	defaultPatience = 10 * time.Minute
)

// Rank is one rank of a run whose checkpoints are saved.
type Rank struct {
	Run     id.Run
	UID     id.UID
	Rank    int
	Ranks   int    // of the run
	Dir     string // the checkpoint directory
	Shared  string // the shared file system on which it is, "" if it is on a disk of the node
	Started time.Time
	Every   time.Duration // how often its program saves, as the job file says; 0 if it does not
}

// Checkpoints saves and restores the checkpoints of the ranks of a node.
type Checkpoints struct {
	opt   Options
	gear  *gear
	store *store
}

// New returns the checkpoints of a node.
func New(opt Options) *Checkpoints {
	if opt.Every == 0 {
		opt.Every = defaultEvery
	}

	if opt.Rest == 0 {
		opt.Rest = defaultRest
	}

	if opt.Interval == 0 {
		opt.Interval = defaultInterval
	}

	if opt.Patience == 0 {
		opt.Patience = defaultPatience
	}

	return &Checkpoints{opt: opt, gear: newGear(), store: newStore(opt.Yard, opt.Dir)}
}

// Close drops idle connections to the object store.
func (c *Checkpoints) Close() { c.store.close() }
