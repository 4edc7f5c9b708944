// Package doctor checks whether a machine is fit to be a node, or to run the server: what isolates jobs there from
// each other and from the yard, and what else makes jobs fail that could have been known before.
//
// It is behind trainyard doctor and changes nothing. Each check is a finding with what is wrong and what to do
// about it. What the machine is like comes from a System, so that tests can describe machines that they do not run
// on.
package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"trainyard/internal/agent/metadata"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

// Level says how bad a finding is.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn" // it works, but not as well or as safely as it could
	Fail Level = "fail" // jobs fail, or what is promised does not hold
)

// Finding is the outcome of one check.
type Finding struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

// System is the machine and how it is set up.
type System struct {
	Root string // in front of the paths of system files; "" for the machine itself
	Data string // data directory of the agent, the server or both
	UID  int    // of the agent

	Isolated bool          // the agent is set to run each user's jobs under a user id of their own
	Jobs     sandbox.Users // which, if it is
	MixUsers bool          // jobs of several users run at the same time

	Limits   func() string // how limits of runs are enforced
	Metadata func(user int) (metadata.Reach,
		error) // whether a user reaches a metadata service
	Free   func(dir string) (free, total job.Bytes, err error)                // of a disk
	Synced func() (bool, error)                                               // whether the clock is synchronised
	Server func(context.Context) (url string, ahead time.Duration, err error) // by how much its clock is ahead
	GPUs   func(context.Context) ([]fleet.GPU, error)                         // that the driver knows

	Sharing string // version of the library that jobs share GPUs with; "" without one
}

// Examine carries out all checks, the most important first.
func Examine(ctx context.Context, s *System) []Finding {
	list := []Finding{s.isolation(), s.namespaces(), s.seccomp(), s.limits()}
	list = append(list, s.users()...)
	list = append(list, s.metadata())
	list = append(list, s.files()...)
	list = append(list, s.neighbours(), s.disk(), s.clock(), s.shell(), s.gpus(ctx))

	return append(list, s.server(ctx)...)
}

// Worst returns the worst level of findings.
func Worst(list []Finding) Level {
	worst := OK

	for i := range list {
		switch list[i].Level {
		case Fail:
			return Fail
		case Warn:
			worst = Warn
		case OK:
		}
	}

	return worst
}

func ok(check, format string, args ...any) Finding {
	return Finding{Check: check, Level: OK, Detail: fmt.Sprintf(format, args...)}
}

func warn(check, remedy, format string, args ...any) Finding {
	return Finding{Check: check, Level: Warn, Detail: fmt.Sprintf(format, args...), Remedy: remedy}
}

func fail(check, remedy, format string, args ...any) Finding {
	return Finding{Check: check, Level: Fail, Detail: fmt.Sprintf(format, args...), Remedy: remedy}
}

// asRoot is how jobs become isolated.
const asRoot = "run the agent as root, so that each user's jobs run under a user id of their own"

func (s *System) isolation() Finding {
	const check = "isolation"

	switch {
	case s.Isolated && s.UID != 0:
		return fail(check, asRoot, "the agent is set to run each user's jobs under a user id of their own, but is not root")
	case s.Isolated && s.Jobs.Accounts:
		return ok(check, "each user's jobs run under the account of the same name")
	case s.Isolated:
		return ok(check, "each user's jobs run under a user id of their own, from %d to %d", s.Jobs.First, s.Jobs.Last)
	case s.MixUsers:
		return warn(check, asRoot+", or set --mix-users no",
			"jobs of all users run under user id %d at the same time: each can read and change the others' files", s.UID)
	case s.UID == 0:
		return warn(check, "set --isolation users",
			"jobs run as root and can do everything on this machine; the node runs jobs of one user at a time")
	}

	return warn(check, asRoot,
		"all jobs run under user id %d, that of the agent, and can read its key; the node runs jobs of one user at a time",
		s.UID)
}

func (s *System) limits() Finding {
	const check = "cgroups"

	how := s.Limits()
	if how == "cgroup v2" {
		return ok(check, "limits of runs are enforced by %s", how)
	}

	if how == "cgroup v1" {
		return warn(check, "boot with systemd.unified_cgroup_hierarchy=1", "limits of runs are enforced by cgroup v1 only")
	}

	return warn(check, "run the agent as root, or in a delegated cgroup (Delegate=yes in its systemd unit)",
		"limits of runs are not enforced: %s", how)
}

// Bounds of free disk space.
const (
	littleSpace = job.Bytes(10 << 30)
	noSpace     = job.Bytes(256 << 20)
)

func (s *System) disk() Finding {
	const check = "disk"

	free, total, err := s.Free(s.Data)

	switch {
	case err != nil:
		return fail(check, "create the data directory, or name the right one with --data", "%v", err)
	case free < noSpace:
		return fail(check, "free some space", "%s of %s free on the disk that holds %s: the node takes no jobs",
			humanize.Size(free), humanize.Size(total), s.Data)
	case free < littleSpace:
		return warn(check, "free some space", "%s of %s free on the disk that holds %s",
			humanize.Size(free), humanize.Size(total), s.Data)
	}

	return ok(check, "%s of %s free on the disk that holds %s", humanize.Size(free), humanize.Size(total), s.Data)
}

// shell checks what runs the commands of jobs.
func (s *System) shell() Finding {
	const check = "shell"

	for _, path := range []string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"} {
		if _, err := os.Stat(filepath.Join(s.Root, path)); err == nil {
			return ok(check, "commands of jobs are run by %s", path)
		}
	}

	if _, err := os.Stat(filepath.Join(s.Root, "/bin/sh")); err == nil {
		return warn(check, "install bash", "bash is not installed, so /bin/sh runs the commands of jobs")
	}

	return fail(check, "install bash", "neither bash nor sh was found: no job can run")
}

// gpus checks that the driver answers and its GPUs are in order.
func (s *System) gpus(ctx context.Context) Finding {
	const check = "GPUs"

	list, err := s.GPUs(ctx)

	var broken []string
	for i := range list {
		if g := &list[i]; g.Error != "" {
			broken = append(broken, fmt.Sprintf("GPU %d: %s", g.Index, g.Error))
		}
	}

	switch {
	case err != nil:
		return fail(check, "check the driver with nvidia-smi, or hide the GPUs with --fake-gpus none", "%v", err)
	case len(list) == 0:
		return ok(check, "none were found; the node runs jobs without GPUs")
	case len(broken) > 0:
		return warn(check, "see trainyard nodes clear-error", "%d of %d cannot be used: %s", len(broken), len(list),
			humanize.List(broken...))
	}

	sharing := "cannot be shared by jobs, because this binary was built without a C compiler"
	if s.Sharing != "" {
		sharing = "can be shared by jobs (library " + s.Sharing + ")"
	}

	return ok(check, "%s; %s", humanize.GPUs(len(list), list[0].Model, list[0].Memory), sharing)
}

func (s *System) clock() Finding {
	const check, remedy = "clock", "run a time service such as chrony or systemd-timesyncd"

	synced, err := s.Synced()

	switch {
	case err != nil:
		return warn(check, remedy, "cannot tell whether the clock is synchronised: %v", err)
	case !synced:
		return warn(check, remedy, "the clock is not synchronised")
	}

	return ok(check, "the clock is synchronised")
}

// maxSkew is how far the clocks of machine and server may be apart before certificates and logs suffer.
const maxSkew = 5 * time.Second

// server checks the way to the server, of a machine that has joined one.
func (s *System) server(ctx context.Context) []Finding {
	const check = "connection"

	url, ahead, err := s.Server(ctx)

	switch {
	case url == "" && err == nil:
		return nil
	case err != nil:
		return []Finding{fail(check, "check the address, the network and that the server runs", "cannot reach %s: %v",
			url, err)}
	case ahead.Abs() > maxSkew:
		return []Finding{warn(check, "synchronise the clocks of both", "%s is reachable, but its clock is %s %s",
			url, humanize.Duration(ahead.Abs().Round(time.Second)), map[bool]string{true: "ahead", false: "behind"}[ahead > 0])}
	}

	return []Finding{ok(check, "%s is reachable", url)}
}
