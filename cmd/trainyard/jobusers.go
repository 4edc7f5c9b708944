package main

import (
	"fmt"
	"os"
	"syscall"

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
}

// sandboxUsers says as whom jobs run on this machine, nil if they run as the agent does.
func (c *config) sandboxUsers() (*sandbox.Users, error) {
	root := os.Geteuid() == 0

	switch {
	case c.isolation == isolationNone, c.isolation == isolationAuto && !root:
		return nil, nil
	case !root:
		return nil, fault.New(fault.Invalid, "not_root", "isolation users needs an agent that runs as root").
			WithField("isolation").WithRemedy("run the agent as root, or with --isolation none")
	}

	// Jobs pass through directories and read files that the agent makes for them. What is secret has a mode of its own.
	syscall.Umask(0o022)

	users := c.jobUIDs
	users.Accounts = c.jobAccounts

	return &users, nil
}
