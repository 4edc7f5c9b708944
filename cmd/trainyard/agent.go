package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"trainyard/internal/agent"
	"trainyard/internal/agent/doctor"
	"trainyard/internal/agent/runtime"
	"trainyard/internal/cli"
	"trainyard/internal/cli/contexts"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/job"
	sdk "trainyard/sdk/python"
)

func agentCommand(env cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "agent", Short: "Run this machine as a node of a yard", GroupID: cli.GroupStart, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	cmd.AddCommand(joinCommand(env), agentRunCommand(env))

	return cmd
}

func joinCommand(env cli.Env) *cobra.Command {
	settings := append(append([]setting{
		dataSetting,
		{
			"token",
			"",
			"join token, created with trainyard tokens create --join; - reads it from standard input. Other users of the " +
				"machine see what is on a command line: use token-file, - or the variable",
			text(func(c *config) *string { return &c.token }),
		},
		{
			"token-file",
			"",
			"file with the join token",
			text(func(c *config) *string { return &c.tokenFile }),
		},
	}, agentSettings...), logSettings...)

	cmd := &cobra.Command{
		Use:   "join URL",
		Short: "Join a yard and run its jobs",
		Args:  cobra.ExactArgs(1),
		Long: `Join the yard at URL with a join token and run its jobs until stopped.

The token carries the fingerprint of the server's CA, so the machine cannot join another server by
mistake. The machine's key never leaves it. Runs outlive the agent: when it restarts it adopts them.`,
		Example: "  trainyard agent join https://yard.example.org:7443 --token-file join-token\n" +
			"  trainyard tokens create --join -q | ssh gpu-1 trainyard agent join https://yard.example.org:7443 --token -\n" +
			"  trainyard agent join https://127.0.0.1:7443 --token-file join-token --fake-gpus 8xA100:80GB --name gpu-1",
		RunE: func(cmd *cobra.Command, args []string) error {
			return runAgent(cmd, env, settings, args[0])
		},
	}

	register(cmd, settings)

	return cmd
}

func agentRunCommand(env cli.Env) *cobra.Command {
	settings := append(append([]setting{dataSetting}, agentSettings...), logSettings...)
	cmd := &cobra.Command{
		Use:     "run",
		Short:   "Run jobs for the yard this machine has joined",
		Args:    cobra.NoArgs,
		Long:    "Run jobs for the yard that this machine has joined before, until stopped.",
		Example: "  trainyard agent run --data /var/lib/trainyard",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runAgent(cmd, env, settings, "")
		},
	}

	register(cmd, settings)

	return cmd
}

func runAgent(cmd *cobra.Command, env cli.Env, settings []setting, url string) error {
	c, err := readConfig(cmd, env, settings)
	if err != nil {
		return err
	}

	c.server = url

	c.token, err = contexts.ReadToken(c.token, c.tokenFile, env.Stdin)
	if err != nil {
		return err
	}

	log := c.logger(env)
	registry := prometheus.NewRegistry()
	registry.MustRegister(processMetrics()...)

	if shared := doctor.SharedWithServer("/", c.data, os.Geteuid()); shared != "" && !c.isolates() {
		log.Warn("jobs are not isolated from the server on this machine and can become admins; see trainyard doctor",
			"shared", shared)
	}

	a, err := newAgent(c, log, registry, false)
	if err != nil {
		return err
	}

	stop, err := serveMetrics(cmd.Context(), c.metrics, "metrics", promhttp.HandlerFor(registry,
		promhttp.HandlerOpts{}), log)
	if err != nil {
		return err
	}

	return errors.Join(a.Run(cmd.Context()), stop())
}

// newAgent wires an agent to the runtime of this machine. With stopRuns what
// runs is stopped when the agent is.
func newAgent(c *config, log *slog.Logger, registry prometheus.Registerer, stopRuns bool) (*agent.Agent, error) {
	dir := filepath.Join(c.data, "agent")
	wheel, err := sdk.Build()
	if err != nil {
		return nil, err
	}

	clk := clock.NewSteady()

	users, err := c.sandboxUsers()
	if err != nil {
		return nil, err
	}

	engine, containers, err := c.containers(dir, users != nil, clk)
	if err != nil {
		return nil, err
	}

	exe := helperPath(embeddedHelper(), log)

	return agent.New(agent.Config{
		SDK:            agent.SDK{Name: wheel.Name, Data: wheel.Data},
		ShareLibrary:   embeddedGPUShare(),
		GPUBypass:      c.gpuBypass,
		Dir:            dir,
		Server:         c.server,
		JoinToken:      c.token,
		Name:           c.name,
		Address:        c.address,
		FakeGPUs:       c.fakeGPUs,
		Version:        version,
		Probe:          c.probe,
		ProbePython:    c.probePython,
		CRIU:           c.criu,
		MixUsers:       c.mixUsers,
		Topology:       c.topology,
		Labels:         c.labels,
		Isolated:       users != nil,
		Containers:     engine,
		Metadata:       blockMetadata(users, log),
		OnLeaseEnd:     c.onLeaseEnd,
		SpotNotice:     c.spotNotice,
		CPUs:           c.cpus,
		Memory:         c.memory,
		DataRoots:      c.dataRoots,
		DataHosts:      c.dataHosts,
		Private:        []string{c.data},
		MinFree:        c.minFree,
		Log:            log,
		Clock:          clk,
		Metrics:        registry,
		StopRunsOnExit: stopRuns,
		NewRuntime: func(p runtime.Preparation) (agent.Runtime, error) {
			return runtime.New(runtime.Options{
				Dir: dir, Exe: exe, Preparation: p, Log: log, Clock: clk, CRIU: c.criu, Python: c.probePython,
				Users: users, MaxPIDs: c.maxPIDs, MaxDisk: job.Bytes(c.maxDisk), PassEnv: c.passEnv,
				KeepRuns: c.keepRuns, KeptBytes: job.Bytes(c.maxKept), MinFree: c.minFree,
				Containers: containers,
			})
		},
	})
}

// serveMetrics serves metrics if a setting gives an address, and returns how to stop.
func serveMetrics(
	ctx context.Context,
	addr, setting string,
	handler http.Handler,
	log *slog.Logger,
) (func() error, error) {
	if addr == "" {
		return func() error { return nil }, nil
	}

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "listen", "cannot serve metrics on %s: %v", addr, err).WithField(setting)
	}

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", handler)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := srv.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics ended", "error", err)
		}
	}()

	log.Info("metrics served", "address", fmt.Sprintf("http://%s/metrics", listener.Addr()))

	return srv.Close, nil
}
