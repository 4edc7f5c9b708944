// Package cli holds the commands that people and scripts type.
//
// Each command is thin: it reads flags, calls the yard through api, and shows
// the answer as a table for people or as JSON or YAML for programs. Answers go
// to standard output; hints, progress, questions and errors to standard error.
// It decides nothing about jobs and keeps nothing but logins. Leaving a
// command, by Ctrl-C or a lost connection, never ends a job. cmd/trainyard
// adds the commands that start servers and agents to New's root and runs all
// by Execute.
package cli

import (
	"context"

	"github.com/spf13/cobra"

	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/forecasts"
)

// Env is all that the commands know of the machine they run on.
type Env = console.Env

// SystemEnv returns the real machine's Env.
func SystemEnv(version string) Env { return console.System(version) }

// The groups that help shows the commands in.
const (
	GroupStart  = "start"
	GroupJobs   = "jobs"
	GroupYard   = "yard"
	GroupUsage  = "usage"
	GroupAccess = "access"
)

// app is what the commands share while one of them runs.
type app struct {
	*console.Console
	context string // chosen by --context
	foresee *forecasts.Forecasts
}

// New returns the root command with all commands that speak to a yard over its API.
func New(env Env) *cobra.Command {
	a := &app{Console: console.New(env)}
	a.foresee = forecasts.New(a.Console, a.connect, a.completeJobs)

	root := &cobra.Command{
		Use:   "trainyard",
		Short: "Run a research team's training jobs",
		Long: `Trainyard runs a research team's training jobs on its own machines and in the cloud.

Submit a job file with submit, watch it with logs and jobs, and list the machines with nodes.`,
		Version:       env.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          exit.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	root.SetIn(a.In)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetVersionTemplate("trainyard {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exit.Usagef(cmd, "%v", err)
	})

	root.AddGroup(
		&cobra.Group{ID: GroupStart, Title: "Start:"},
		&cobra.Group{ID: GroupJobs, Title: "Jobs:"},
		&cobra.Group{ID: GroupYard, Title: "Yard:"},
		&cobra.Group{ID: GroupUsage, Title: "Usage, quotas and data:"},
		&cobra.Group{ID: GroupAccess, Title: "Access:"},
	)

	root.PersistentFlags().StringVar(&a.context, "context", "", "use this `login` instead of the current one")
	root.PersistentFlags().BoolVar(&a.NoColor, "no-color", false, "disable colors, as the variable NO_COLOR does")
	add(root, GroupStart, a.login(), a.initFile(), a.validate(), a.version())
	add(root, GroupJobs, a.foresee.Commands()...)
	add(root, GroupJobs, a.submit(), a.run(), a.jobs(), a.job(), a.top(), a.logs(), a.attach(), a.wait(),
		a.rerun(), a.edit(), a.cancel(), a.kill(), a.pause(), a.resume(), a.checkpoints(), a.fetch(), a.exec(), a.shell(),
		a.notebook(), a.tensorboard(), a.forward(), a.cp(), a.schedules(),
		a.inbox(), a.accept(), a.dismiss())
	add(root, GroupYard, a.nodes(), a.cordon(), a.uncordon(), a.drain(), a.reservations(), a.offers(), a.leases(),
		a.release(), a.events())
	add(root, GroupUsage, a.usage(), a.savings(), a.waste(), a.quota(), a.retention(), a.data(), a.override())
	add(root, GroupAccess, a.contexts(), a.logout(), a.whoami(), a.users(), a.projects(), a.tokens(), a.secrets(),
		a.notify())
	root.AddCommand(exit.Topic())
	a.completeAll(root)
	root.SetHelpCommandGroupID(GroupStart)
	root.SetCompletionCommandGroupID(GroupStart)

	return root
}

func add(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = group
		root.AddCommand(c)
	}
}

// Execute runs the command that args name and returns the exit code. A
// cancelled ctx stands for Ctrl-C.
func Execute(ctx context.Context, env Env, root *cobra.Command, args []string) int {
	began := false
	mark(root, &began)
	root.SetArgs(append([]string{}, args...)) // cobra takes nil for the process's own arguments

	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exit.OK
	}

	err = exit.Clarify(err)
	if !began {
		err = exit.AsUsage(cmd, err)
	}

	asJSON := false
	if f := cmd.Flags().Lookup("output"); f != nil {
		asJSON = f.Value.String() == console.JSON
	}

	exit.Show(env.Stderr, err, asJSON)

	return exit.Code(err)
}

// mark makes every command note that it began: an error before that is one of usage.
func mark(cmd *cobra.Command, began *bool) {
	for _, c := range cmd.Commands() {
		mark(c, began)
	}

	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*began = true
			return run(cmd, args)
		}
	} else if run := cmd.Run; run != nil {
		cmd.Run = func(cmd *cobra.Command, args []string) {
			*began = true
			run(cmd, args)
		}
	}
}
