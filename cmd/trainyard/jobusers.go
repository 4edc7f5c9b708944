package main

import (
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"trainyard/internal/agent/metadata"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/fault"
)

// Values of --isolation.
const (
	isolationAuto  = "auto"
	isolationUsers = "users"
	isolationNone  = "none"
)

// isolationSettings are those of an agent about what jobs can do to it and to each other.
var isolationSettings = []setting{
	{
		"isolation",
		"auto",
		"wall off jobs of different users from each other: users (each user's jobs run under a uid of their own; needs " +
			"root), none (all run as the agent does), or auto (users if the agent is root, else none)",
		func(c *config, v string) error {
			c.isolation = v

			if v != isolationAuto && v != isolationUsers && v != isolationNone {
				return fmt.Errorf("must be auto, users or none, got %q", v)
			}

			return nil
		},
	},
	{
		"job-uids",
		"200000-265535",
		"range of uids for --isolation users, as FIRST-LAST; the same on every node that shares files with others",
		func(c *config, v string) (err error) {
			c.jobUIDs, err = sandbox.ParseUsers(v)
			return err
		},
	},
	{
		"job-accounts",
		"no",
		"run jobs under this machine's account of the same name as the user, instead of --job-uids: yes or no",
		yesNo(func(c *config) *bool { return &c.jobAccounts }),
	},
	{
		"job-max-pids",
		"4096",
		"how many processes and threads a run may have on this node; 0 for no limit",
		number(func(c *config) *int { return &c.maxPIDs }),
	},
	{
		"job-max-disk",
		"500GB",
		"how much of this node's disk the folders of a run may use; 0B for no limit",
		size(func(c *config) *int64 { return &c.maxDisk }),
	},
	{
		"keep-runs",
		"24h",
		"how long the working directory of a run is kept on this node after its end, for trainyard fetch; 0s to keep none",
		length(func(c *config) *time.Duration { return &c.keepRuns }, 0),
	},
	{
		"max-kept-runs",
		"20GB",
		"how much room kept working directories may take; the oldest are removed first, and also when less than twice " +
			"min-free-disk is free",
		size(func(c *config) *int64 { return &c.maxKept }),
	},
}

// isolates reports whether the agent is set to run jobs under uids of their own, which it can as root only.
func (c *config) isolates() bool {
	return c.isolation == isolationUsers || c.isolation == isolationAuto && os.Geteuid() == 0
}

// jobUsers is as whom jobs run if the agent isolates them.
func (c *config) jobUsers() sandbox.Users {
	users := c.jobUIDs
	users.Accounts = c.jobAccounts

	return users
}

// sandboxUsers says as whom jobs run on this machine, nil if they run as the agent does.
func (c *config) sandboxUsers() (*sandbox.Users, error) {
	switch {
	case !c.isolates():
		return nil, nil
	case os.Geteuid() != 0:
		return nil, fault.New(fault.Invalid, "not_root", "isolation users needs an agent that runs as root").
			WithField("isolation").WithRemedy("run the agent as root, or with --isolation none")
	}

	// Jobs pass through directories and read files that the agent makes for them. What is secret has a mode of its own.
	syscall.Umask(0o022)

	users := c.jobUsers()

	return &users, nil
}

// blockMetadata keeps jobs from the cloud's metadata service and returns what the inventory says of that.
func blockMetadata(users *sandbox.Users, log *slog.Logger) string {
	switch {
	case users == nil:
		return "not blocked: jobs run under the agent's user id"
	case users.Accounts:
		return "not blocked: jobs run under accounts of the machine"
	}

	if err := metadata.Block(users.First, users.Last); err != nil {
		log.Warn("jobs can reach the cloud's metadata service", "error", err)
		return "not blocked: " + err.Error()
	}

	return string(metadata.Blocked)
}
