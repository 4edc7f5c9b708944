package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"trainyard/internal/diskspace"
	"trainyard/internal/job"
)

// limitSettings are those of a server that say what is kept, and how much users may have and do.
var limitSettings = []setting{
	{
		"keep-unused",
		"24h",
		"how long blobs are kept that no job, run or checkpoint refers to; 0s for ever, otherwise at least 1h",
		func(c *config, v string) error {
			err := length(func(c *config) *time.Duration { return &c.limits.Unused }, 0)(c, v)
			if err == nil && c.limits.Unused > 0 && c.limits.Unused < time.Hour {
				err = errors.New("must be 0s or at least 1h")
			}

			return err
		},
	},
	{
		"keep-workdirs",
		"0s",
		"how long working directories are kept after the end of their jobs; 0s for ever",
		length(func(c *config) *time.Duration { return &c.limits.Workdirs }, 0),
	},
	{
		"keep-output",
		"0s",
		"how long the output of jobs is kept after their end; 0s for ever",
		length(func(c *config) *time.Duration { return &c.limits.Output }, 0),
	},
	{
		"keep-checkpoints",
		"0s",
		"how long checkpoints are kept after the end of their jobs, unless they are pinned; 0s for ever",
		length(func(c *config) *time.Duration { return &c.limits.Checkpoints }, 0),
	},
	{
		"keep-output-files",
		"0s",
		"how long output files (outputs in the job file) are kept after the end of their jobs; 0s for ever",
		length(func(c *config) *time.Duration { return &c.limits.Files }, 0),
	},
	{
		"keep-jobs",
		"0s",
		"how long anything of a job is kept after its end, unless a checkpoint of it is pinned; usage and costs stay; 0s " +
			"for ever, otherwise at least 1d",
		func(c *config, v string) error { return longTime(c, v, &c.limits.Jobs) },
	},
	{
		"keep-events",
		"0s",
		"how long events are kept; 0s for ever, otherwise at least 1d",
		func(c *config, v string) error { return longTime(c, v, &c.limits.Events) },
	},
	{
		"keep-postings",
		"400d",
		"how long usage and savings are kept by job, run and hour; totals of days are kept for ever; 0s for ever, " +
			"otherwise at least 1d",
		func(c *config, v string) error { return longTime(c, v, &c.limits.Postings) },
	},
	{
		"max-output",
		"100GB",
		"maximum size of the output of a user's ended jobs, above which that of the jobs that ended first is removed; 0B " +
			"for no limit",
		byteSize(func(c *config) *job.Bytes { return &c.limits.UserOutput }),
	},
	{
		"max-all-output",
		"0B",
		"the same of all users together; 0B for no limit",
		byteSize(func(c *config) *job.Bytes { return &c.limits.AllOutput }),
	},
	{
		"max-checkpoints",
		"0B",
		"maximum size of all checkpoints of ended jobs, above which those of the jobs that ended first are removed unless " +
			"they are pinned; 0B for no limit",
		byteSize(func(c *config) *job.Bytes { return &c.limits.Bytes }),
	},
	{
		"max-output-files",
		"500GB",
		"maximum size of the output files of a user's ended jobs, above which those of the jobs that ended first are " +
			"removed, and of a single run; 0B for no limit",
		byteSize(func(c *config) *job.Bytes { return &c.limits.UserFiles }),
	},
	{
		"max-all-output-files",
		"0B",
		"the same of all users together; 0B for no limit",
		byteSize(func(c *config) *job.Bytes { return &c.limits.AllFiles }),
	},
	{
		"max-jobs",
		"20000",
		"maximum number of jobs per user that have not ended",
		number(func(c *config) *int { return &c.maxJobs }),
	},
	{
		"max-priority",
		"researcher=50,lead=80,operator=100,admin=100",
		"highest priority of the jobs of each role, and of leads in their projects; 100 for roles that are left out",
		priorityCaps,
	},
	{
		"max-job-text",
		"64MB",
		"maximum size of the commands, set-up scripts and variables of a user's jobs that have not ended, which are kept " +
			"in memory; 0B for no limit",
		size(func(c *config) *int64 { return &c.jobText }),
	},
	{
		"max-all-job-text",
		"1GB",
		"the same of all users together; 0B for no limit",
		size(func(c *config) *int64 { return &c.allJobText }),
	},
	{"log-limit", "1GB", "maximum output kept per rank of a run", size(func(c *config) *int64 { return &c.logLimit })},
	{
		"max-file",
		"5GB",
		"maximum size of a file in a working directory",
		size(func(c *config) *int64 { return &c.maxFile }),
	},
	{
		"max-uploads",
		"32",
		"maximum number of files that a user uploads at the same time; 0 for no limit",
		number(func(c *config) *int { return &c.maxUploads }),
	},
	{
		"max-uploaded",
		"500GB",
		"maximum size of the uploaded files of a user, as long as they are kept; 0B for no limit",
		size(func(c *config) *int64 { return &c.maxUploaded }),
	},
	{
		"max-all-uploaded",
		"0B",
		"the same of all users together; 0B for no limit",
		size(func(c *config) *int64 { return &c.allUploaded }),
	},
	{
		"max-streams",
		"256",
		"maximum number of live feeds that a user follows at the same time; 0 for no limit",
		number(func(c *config) *int { return &c.maxStreams }),
	},
	{
		"disk-reserve",
		"auto",
		"room that uploads leave free for the database on the disks with the data directory and the blobs; 0B for " +
			"none, auto for a twentieth of the disk, at most 1GB",
		func(c *config, v string) error {
			if v == "auto" {
				c.diskReserve = int64(diskspace.AutoReserve)
				return nil
			}

			return size(func(c *config) *int64 { return &c.diskReserve })(c, v)
		},
	},
	{
		"metrics-listen",
		"",
		"address to serve the Prometheus metrics on over plain HTTP, e.g. 127.0.0.1:9101, instead of at /metrics of the " +
			"API (default: at /metrics)",
		text(func(c *config) *string { return &c.metricsListen }),
	},
	{"rate", "500", "requests per second allowed per token, node and address; 0 for no limit", func(c *config,
		v string) (err error) {
		c.rate, err = strconv.ParseFloat(v, 64)
		if err != nil || c.rate < 0 {
			err = fmt.Errorf("must be a rate of at least 0, got %q", v)
		}

		return err
	}},
	{"burst", "1000", "burst of requests allowed per token, node and address",
		number(func(c *config) *int { return &c.burst })},
}

// longTime reads how long records are kept.
func longTime(c *config, v string, into *time.Duration) error {
	err := length(func(*config) *time.Duration { return into }, 0)(c, v)
	if err == nil && *into > 0 && *into < 24*time.Hour {
		err = errors.New("must be 0s or at least 1d")
	}

	return err
}

func byteSize(target func(c *config) *job.Bytes) func(*config, string) error {
	return func(c *config, v string) (err error) {
		*target(c), err = job.ParseBytes(v)
		return err
	}
}
