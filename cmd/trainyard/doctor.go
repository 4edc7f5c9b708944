package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"trainyard/internal/agent"
	"trainyard/internal/agent/doctor"
	"trainyard/internal/agent/inventory"
	"trainyard/internal/agent/metadata"
	"trainyard/internal/agent/runtime/cgroup"
	"trainyard/internal/agent/share"
	"trainyard/internal/auth"
	"trainyard/internal/cli"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/clock"
	"trainyard/internal/diskspace"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
)

func doctorCommand(env cli.Env) *cobra.Command {
	settings := append(append([]setting{dataSetting}, agentSettings...), logSettings...)
	out := console.New(env)

	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Check whether this machine is fit to be a node or to run the server",
		GroupID: cli.GroupStart,
		Args:    cobra.NoArgs,
		Long: `Check what isolates jobs on this machine from each other and from the yard, and what else makes jobs fail
that can be known before: cgroups, namespaces, seccomp, the range of user ids, the cloud's metadata
service, permissions of keys and data, disk, clock, shell, GPUs and the way to the server. Run it as the user of the
agent or the server, with the same settings. It changes nothing.

The exit code is 1 if a check fails; warnings do not count.`,
		Example: "  trainyard doctor\n  trainyard doctor --data /var/lib/trainyard-agent -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := readConfig(cmd, env, settings)
			if err != nil {
				return err
			}

			return showFindings(out, doctor.Examine(cmd.Context(), machineOf(c, env.Clock)))
		},
	}

	register(cmd, settings)
	out.OutputFlag(cmd)

	shown := []string{"data", "config", "output", "isolation", "job-uids", "job-accounts", "mix-users"}
	for _, s := range settings {
		if !slices.Contains(shown, s.name) {
			_ = cmd.Flags().MarkHidden(s.name) // it exists: it was just registered
		}
	}

	return cmd
}

// machineOf describes this machine as the settings of its agent say.
func machineOf(c *config, clk clock.Clock) *doctor.System {
	return &doctor.System{
		Data: c.data, UID: os.Geteuid(), Isolated: c.isolates(), Jobs: c.jobUsers(), MixUsers: c.mixUsers,
		Limits: func() string {
			place, err := cgroup.Find()
			if err != nil {
				return err.Error()
			}

			return place.String()
		},
		Sharing:  share.Version(embeddedGPUShare()),
		Metadata: metadata.Look,
		Free:     diskspace.Free,
		Synced:   clockSynced,
		GPUs: func(ctx context.Context) ([]fleet.GPU, error) {
			return lookAtGPUs(ctx, clk, c.fakeGPUs != "")
		},
		Server: func(ctx context.Context) (string, time.Duration, error) {
			return reachServer(ctx, clk, filepath.Join(c.data, "agent"))
		},
	}
}

// showFindings prints findings and returns the error that stands for the exit code.
func showFindings(out *console.Console, list []doctor.Finding) error {
	err := out.Show(list, nil, func() error {
		t := out.NewTable("CHECK", "RESULT", "DETAIL")
		colors := map[doctor.Level]table.Color{doctor.OK: table.Green, doctor.Warn: table.Yellow, doctor.Fail: table.Red}

		for i := range list {
			f := &list[i]
			detail := f.Detail
			if f.Remedy != "" {
				detail += "; " + f.Remedy
			}

			t.Cells(table.Cell{Text: f.Check}, table.Cell{Text: string(f.Level), Color: colors[f.Level]},
				table.Cell{Text: detail})
		}

		return t.Write(out.Stdout)
	})
	if err != nil || doctor.Worst(list) != doctor.Fail {
		return err
	}

	return &exit.Result{Code: exit.Error}
}

// lookAtGPUs asks the driver for the GPUs of this machine, without the agent's memory of their faults.
func lookAtGPUs(ctx context.Context, clk clock.Clock, none bool) (_ []fleet.GPU, err error) {
	dir, err := os.MkdirTemp("", "trainyard-doctor-")
	if err != nil {
		return nil, fmt.Errorf("look at the GPUs: %w", err)
	}

	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	machine := inventory.Open(inventory.Options{DataDir: dir, Address: "none", NoGPUs: none, Clock: clk})
	found, err := machine.Look(ctx, nil)

	return found.Inventory.GPUs, errors.Join(append(found.Problems, err, machine.Close())...)
}

// clockSynced reports whether a time service keeps the machine's clock.
func clockSynced() (bool, error) {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		return false, fmt.Errorf("read the state of the clock: %w", err)
	}

	return t.Status&unix.STA_UNSYNC == 0, nil
}

// reachServer asks the server that this machine has joined whether it is there, and returns its address and by how much
// its clock is ahead. The address is "" for a machine that has not joined.
func reachServer(
	ctx context.Context, clk clock.Clock, dir string,
) (url string, ahead time.Duration, err error) {
	url, err = agent.JoinedServer(dir)
	if url == "" || err != nil {
		return url, 0, err
	}

	identity, err := auth.LoadNodeIdentity(filepath.Join(dir, "identity"))
	if err != nil {
		return url, 0, err
	}

	return askServer(ctx, clk, url, identity.JoinTLS())
}

// askServer asks a server for its time.
func askServer(ctx context.Context, clk clock.Clock, url string, trust *tls.Config) (_ string,
	ahead time.Duration, err error) {
	transport := &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/healthz", http.NoBody)
	if err != nil {
		return url, 0, fmt.Errorf("ask %s: %w", url, err)
	}

	resp, err := client.Do(req)
	if err != nil {
		return url, 0, err
	}

	defer func() { _ = resp.Body.Close() }()

	if resp.StatusCode != http.StatusOK {
		return url, 0, fault.New(fault.Unavailable, "not_healthy", "it answers %s", resp.Status)
	}

	at, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return url, 0, fmt.Errorf("read the server's time: %w", err)
	}

	return url, at.Sub(clk.Now()), nil
}
