// Command trainyard is the yard: server, agent and command line in one binary.
//
// This package reads the configuration and wires the parts together; it is the
// only importer of adapters. It decides nothing about jobs and nodes.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"trainyard/cmd/trainyard/clouds"
	"trainyard/internal/agent/runtime/subprocess"
	"trainyard/internal/cli"
	"trainyard/internal/cloud/process"
	"trainyard/internal/sim/simcli"
)

func main() {
	// A supervisor and a watcher are started for every run: nothing else may happen before them.
	if status, is := subprocess.Run(os.Args, os.Stderr); is {
		os.Exit(status)
	}

	// Nor before a machine of the process provider: it becomes the reaper of all that runs in it.
	if len(os.Args) == 3 && os.Args[1] == process.Subcommand {
		os.Exit(process.Machine(context.Background(), os.Stderr))
	}

	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	env := systemEnv()

	return cli.Execute(ctx, env, rootCommand(env), os.Args[1:])
}

// rootCommand has all commands: those that speak to a yard and those that start one.
func rootCommand(env cli.Env) *cobra.Command {
	root := cli.New(env)
	root.AddCommand(upCommand(env), serverCommand(env), agentCommand(env), backupCommand(env), restoreCommand(env),
		doctorCommand(env), generateCommand())
	root.AddCommand(simcli.Commands(env, policies())...)

	names := cobra.FixedCompletions(policies().Names(), cobra.ShellCompDirectiveNoFileComp)
	for _, cmd := range root.Commands() {
		cli.CompleteFlag(cmd, "policy", names)
	}

	if offers, _, err := root.Find([]string{"offers"}); err == nil && offers != root {
		offers.AddCommand(clouds.ImportCommand(env)) // it needs the providers, which only the wiring knows
	}

	return root
}
