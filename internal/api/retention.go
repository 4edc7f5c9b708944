package api

import (
	"context"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Retention is what the server keeps, for how long, and how much that is.
type Retention struct {
	Limits    RetentionLimits  `json:"limits"`
	Disks     []Disk           `json:"disks,omitempty" doc:"disks of the server; for admins"`
	Collected *Collection      `json:"collected,omitempty" doc:"the last collection; absent before the first one"`
	Users     []RetentionShare `json:"users" doc:"what users have; those who are not admins see their own"`
}

// RetentionLimits say how long things are kept.
type RetentionLimits struct {
	Unused      job.Duration `json:"unused" doc:"how long blobs are kept that nothing refers to; 0s for ever"`
	Workdirs    job.Duration `json:"workdirs" doc:"how long working directories are kept after the end of a job; 0s for ever"`
	Output      job.Duration `json:"output" doc:"how long output is kept after the end of a job; 0s for ever"`
	Checkpoints job.Duration `json:"checkpoints" doc:"how long checkpoints are kept after the end of a job; 0s for ever"`
	Jobs        job.Duration `json:"jobs" doc:"how long anything of a job is kept after its end; 0s for ever"`
	Events      job.Duration `json:"events" doc:"how long events are kept; 0s for ever"`
	MaxOutput   job.Bytes    `json:"max_output" doc:"most bytes of output of ended jobs of a user; 0 for no limit"`
	MaxAll      job.Bytes    `json:"max_all_output" doc:"most bytes of output of ended jobs of all users; 0 for no limit"`
	MaxSaved    job.Bytes    `json:"max_checkpoints" doc:"most bytes of checkpoints of ended jobs; 0 for no limit"`
	Files       job.Duration `json:"output_files,omitempty" doc:"how long output files are kept after the end of a job; absent for ever"`
	MaxFiles    job.Bytes    `json:"max_output_files,omitempty" doc:"most bytes of output files of ended jobs of a user; absent for no limit"`
	Postings    job.Duration `json:"postings,omitempty" doc:"how long usage and savings are kept by job, run and hour; absent for ever"`
	MaxAllFiles job.Bytes    `json:"max_all_output_files,omitempty" doc:"most bytes of output files of ended jobs of all users; absent for no limit"`
}

// Disk is a disk that the server stores things on.
type Disk struct {
	Path    string    `json:"path"`
	Free    job.Bytes `json:"free"`
	Total   job.Bytes `json:"total"`
	Reserve job.Bytes `json:"reserve" doc:"room that uploads leave free"`
}

// Collection is what was stored when the server last removed what is not kept.
type Collection struct {
	At      time.Time `json:"at"`
	Removed string    `json:"removed,omitempty" doc:"what was removed"`
	Failure string    `json:"failure,omitempty" doc:"why it was not completed"`
	Jobs    int       `json:"jobs"`
	Files   Amount    `json:"files" doc:"of working directories"`
	Chunks  Amount    `json:"chunks" doc:"of checkpoints and output files"`
	Output  Amount    `json:"output"`
}

// Amount is how much there is of something.
type Amount struct {
	Count int       `json:"count"`
	Bytes job.Bytes `json:"bytes"`
}

// RetentionShare is what a user has.
type RetentionShare struct {
	User        id.User   `json:"user"`
	Jobs        int       `json:"jobs"`
	Output      job.Bytes `json:"output"`
	Checkpoints job.Bytes `json:"checkpoints"`
	Files       job.Bytes `json:"output_files,omitempty"`
}

// Retention returns what the server keeps.
func (c *Client) Retention(ctx context.Context) (Retention, error) {
	return get[Retention](ctx, c, at("retention"), nil)
}
