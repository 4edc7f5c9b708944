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
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"trainyard/internal/cli/table"
	"trainyard/internal/clock"
)

// Env is all that the commands know of the machine they run on.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	LookupEnv      func(key string) (string, bool)
	Clock          clock.Clock
	Entropy        io.Reader // for idempotency keys
	Version        string
	ConfigDir      string                // holds the file with the logins
	CacheDir       string                // holds digests of files that were shipped before; "" keeps none
	IsTerminal     func(stream any) bool // asked about Stdin, Stdout and Stderr
	Width          func() int            // of the terminal; 0 if unknown
	// ReadSecret reads a line from the terminal without showing it; nil reads it from Stdin.
	ReadSecret func() (string, error)
}

// SystemEnv returns the real machine's Env.
func SystemEnv(version string) Env {
	env := Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: os.LookupEnv,
		Clock: clock.Wall{}, Entropy: rand.Reader, Version: version,
		IsTerminal: func(stream any) bool {
			f, ok := stream.(*os.File)
			return ok && term.IsTerminal(int(f.Fd()))
		},
		Width: func() int {
			width, _, err := term.GetSize(int(os.Stdout.Fd()))
			if err != nil {
				return 0
			}
			return width
		},
		ReadSecret: func() (string, error) {
			text, err := term.ReadPassword(int(os.Stdin.Fd()))
			return string(text), err
		},
	}
	if dir, err := os.UserConfigDir(); err == nil { // XDG_CONFIG_HOME, or what the system uses in its place
		env.ConfigDir = filepath.Join(dir, "trainyard")
	}
	if dir, err := os.UserCacheDir(); err == nil {
		env.CacheDir = filepath.Join(dir, "trainyard")
	}
	return env
}

// The groups that help shows the commands in.
const (
	GroupStart  = "start"
	GroupJobs   = "jobs"
	GroupYard   = "yard"
	GroupAccess = "access"
)

// app is what the commands share while one of them runs.
type app struct {
	env     Env
	output  string // format chosen by -o
	quiet   bool   // ids only
	yes     bool   // ask nothing
	noColor bool
	context string // chosen by --context
	stdin   *bufio.Reader
}

// New returns the root command with all commands that speak to a yard over its API.
func New(env Env) *cobra.Command {
	a := &app{env: env, output: outTable, stdin: bufio.NewReader(env.Stdin)}
	root := &cobra.Command{
		Use:           "trainyard",
		Short:         "Run a research team's training jobs",
		Long:          "Trainyard runs a research team's training jobs on the machines it has.\n\nHand in a job file with submit, watch it with logs and jobs, and see what it runs on with nodes.",
		Version:       env.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(a.stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetVersionTemplate("trainyard {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef(cmd, "%v", err)
	})
	root.AddGroup(
		&cobra.Group{ID: GroupStart, Title: "Start:"},
		&cobra.Group{ID: GroupJobs, Title: "Jobs:"},
		&cobra.Group{ID: GroupYard, Title: "Yard:"},
		&cobra.Group{ID: GroupAccess, Title: "Access:"},
	)
	root.PersistentFlags().StringVar(&a.context, "context", "", "use the yard of this login instead of the current one")
	root.PersistentFlags().BoolVar(&a.noColor, "no-color", false, "no colours, as with the variable NO_COLOR")
	add(root, GroupStart, a.login(), a.validate(), a.version())
	add(root, GroupJobs, a.submit(), a.run(), a.jobs(), a.job(), a.logs(), a.wait(),
		a.change("cancel"), a.change("kill"), a.change("pause"), a.change("resume"))
	add(root, GroupYard, a.nodes(), a.drain(), a.undrain(), a.events())
	add(root, GroupAccess, a.contexts(), a.logout(), a.whoami(), a.users(), a.tokens())
	root.AddCommand(exitCodes())
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
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	if !began {
		err = asUsage(cmd, err)
	}
	code := ExitCode(err)
	format := outTable
	if f := cmd.Flags().Lookup("output"); f != nil {
		format = f.Value.String()
	}
	showError(env.Stderr, err, code, format)
	return code
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

// terminal reports whether a stream is one that a person looks at.
func (a *app) terminal(stream any) bool {
	return a.env.IsTerminal != nil && a.env.IsTerminal(stream)
}

// getenv returns a variable of the environment, "" if it is not set.
func (a *app) getenv(key string) string {
	if a.env.LookupEnv == nil {
		return ""
	}
	value, _ := a.env.LookupEnv(key)
	return value
}

// color reports whether what goes to this stream may be coloured.
func (a *app) color(stream any) bool {
	return !a.noColor && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb" && a.terminal(stream)
}

// table returns an empty table for standard output. A person's terminal cuts
// long lines; wide output and pipes get them whole.
func (a *app) table(head ...string) *table.Table {
	width := 0
	if a.output != outWide && a.terminal(a.env.Stdout) && a.env.Width != nil {
		width = a.env.Width()
	}
	return table.New(a.color(a.env.Stdout), width, head...)
}

// note writes a line for the person at the terminal, beside the command's output.
func (a *app) note(format string, args ...any) {
	// A message that cannot be shown is no reason to fail what it is about.
	_, _ = fmt.Fprintf(a.env.Stderr, format+"\n", args...)
}

// next suggests commands, to people only.
func (a *app) next(commands ...string) {
	if !a.terminal(a.env.Stderr) || a.quiet || a.output == outJSON || a.output == outYAML {
		return
	}
	a.note("\nNext:\n  %s", strings.Join(commands, "\n  "))
}

// confirm asks a yes-or-no question. Where nobody can be asked the answer is yes:
// a script says what it means by calling the command.
func (a *app) confirm(ctx context.Context, question string) (bool, error) {
	if a.yes || !a.terminal(a.env.Stdin) || !a.terminal(a.env.Stderr) {
		return true, nil
	}
	answer, err := a.ask(ctx, question+" [Y/n] ")
	if err != nil {
		return false, err
	}
	switch strings.ToLower(answer) {
	case "", "y", "yes":
		return true, nil
	}
	return false, nil
}

// ask shows a question and reads a line.
func (a *app) ask(ctx context.Context, question string) (string, error) {
	_, _ = fmt.Fprint(a.env.Stderr, question)
	return a.line(ctx, func() (string, error) { return a.stdin.ReadString('\n') })
}

// line reads a line and gives up when ctx ends; reading goes on until the
// process ends then, since a read from a terminal cannot be called off.
func (a *app) line(ctx context.Context, read func() (string, error)) (string, error) {
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := read()
		done <- result{text, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case r := <-done:
		text := strings.TrimSpace(r.text)
		if r.err == io.EOF && text != "" {
			r.err = nil
		}
		if r.err != nil {
			return "", fmt.Errorf("read the answer: %w", r.err)
		}
		return text, nil
	}
}
