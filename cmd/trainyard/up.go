package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/cli"
	"trainyard/internal/cli/contexts"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func upCommand(env cli.Env) *cobra.Command {
	settings := append(append(append([]setting{dataSetting}, serverSettings...), agentSettings...), logSettings...)
	var submit string
	demo := false
	cmd := &cobra.Command{
		Use:     "up",
		Short:   "Start a complete yard on this machine",
		GroupID: cli.GroupStart,
		Args:    cobra.NoArgs,
		Long: `Start server and agent in one process and log the command line in, so that jobs can be submitted at
once.

Jobs run under your own account, so the yard is for you alone: other users are refused, unless it is
started as root with --isolation users, or with --mix-users yes.

With --demo the yard is simulated: people, nodes, prices and a month of jobs are made up when it is first started, and
its nodes only pretend to run jobs. It has a data folder of its own and is labelled as a demo wherever it is shown.

Ctrl-C stops the yard: running jobs are stopped with their grace period and restart at the next up.`,
		Example: "  trainyard up\n  trainyard up --fake-gpus 4xA100:80GB\n" +
			"  trainyard up --submit examples/digits/job.yaml\n" +
			"  trainyard up --demo",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := readConfig(cmd, env, settings)
			if err != nil {
				return err
			}

			c.single = true
			if demo {
				return upDemo(cmd.Context(), c, env, submit)
			}

			if err := c.checkFolder(); err != nil {
				return err
			}

			return up(cmd.Context(), c, env, submit)
		},
	}

	register(cmd, settings)
	cmd.Flags().BoolVar(&demo, "demo", false,
		"start a simulated yard with a month of work in it, in a data folder of its own")
	cmd.Flags().StringVar(&submit, "submit", "", "submit this job file at once and follow it")

	return cmd
}

// localContext is the name of the login that up makes.
const localContext = "local"

// up runs a whole yard until ctx ends.
func up(ctx context.Context, c *config, env cli.Env, submit string) error {
	log, closeLog, err := upLog(c)
	if err != nil {
		return err
	}

	defer closeLog()

	if c.isolation == isolationAuto { // it is the yard of whoever starts it, and their jobs need their files
		c.isolation = isolationNone
	}

	c.personal = c.isolation == isolationNone && !c.mixUsers

	s, err := startServer(ctx, c, log)
	if err != nil {
		return err
	}
	if err := s.waitLead(ctx); err != nil || ctx.Err() != nil {
		return errors.Join(err, s.stop())
	}

	agentDone := make(chan error, 1)
	agentCtx, stopAgent := context.WithCancel(context.Background())
	defer stopAgent()

	if err := startAgent(agentCtx, ctx, c, s, log, agentDone); err != nil {
		return errors.Join(err, s.stop())
	}

	if err := localLogin(ctx, s, env); err != nil {
		stopAgent()
		return errors.Join(err, <-agentDone, s.stop())
	}

	say(env.Stderr, "The yard is up at %s\n", s.url)
	s.warnOfOthers(ctx, env)
	say(env.Stderr, "  data  %s\n  log   %s\n", c.data, filepath.Join(c.data, "yard.log"))
	say(env.Stderr, "  node  %s\n", s.awaitNode(ctx, agentDone))

	stopPortal, err := s.showPortal(ctx, userName(), func(format string, args ...any) { say(env.Stderr, format, args...) })
	if err != nil {
		stopAgent()
		return errors.Join(err, <-agentDone, s.stop())
	}

	say(env.Stderr, "\n")

	if submit != "" {
		first := cli.New(env)
		cli.Execute(ctx, env, first, []string{"--context", localContext, "submit", "--yes", submit})
	}

	if ctx.Err() == nil {
		say(
			env.Stderr,
			"\nNext, in another terminal:\n  %s nodes\n  %s jobs\n  %s run -- echo hello\nCtrl-C stops the yard.\n",
			self(),
			self(),
			self(),
		)
	}

	select {
	case <-ctx.Done():
		say(env.Stderr, "\nStopping the yard; running jobs are stopped and restart with the next trainyard up.\n")
	case err = <-s.failed:
	case agentErr := <-agentDone:
		err = fmt.Errorf("the agent ended: %w", agentErr)
		agentDone <- nil
	}

	// The agent first, so that its last reports and output are taken.
	stopAgent()

	return errors.Join(err, <-agentDone, stopPortal(), s.stop())
}

// joinPatience is how long up waits for the agent of its machine to join; looking at the hardware takes moments.
const joinPatience = 10 * time.Second

// awaitNode waits until the agent of this machine has joined and says so, so that whoever looks next finds a node.
func (r *running) awaitNode(ctx context.Context, ended chan error) string {
	patience, cancel := context.WithTimeout(ctx, joinPatience)
	defer cancel()

	for {
		var nodes []yardmaster.NodeInfo
		if err := r.current().Query(patience, func(y *yardmaster.Yard) { nodes = y.Nodes("", 1) }); err != nil {
			r.log.Warn("cannot list the nodes", "error", err)
		}

		if len(nodes) > 0 {
			return describeNode(&nodes[0].Node)
		}

		select {
		case err := <-ended:
			ended <- err // up reports it
			return "the agent ended"
		default:
		}

		if !clock.Sleep(patience, 20*time.Millisecond) {
			return "joining: it still looks at the hardware of this machine"
		}
	}
}

// describeNode names a node, what it has, and what its agent still does.
func describeNode(n *fleet.Node) string {
	text := fmt.Sprintf("%s with %s CPUs", n.ID, n.Inventory.CPUs)
	if gpus := n.Inventory.GPUs; len(gpus) > 0 {
		text += " and " + humanize.GPUs(len(gpus), gpus[0].Model, gpus[0].Memory)
	}

	if n.Inventory.Activity != "" {
		text += ", " + n.Inventory.Activity
	}

	return text
}

// warnOfOthers says that others have accounts in a yard whose jobs can do whatever its owner can.
func (r *running) warnOfOthers(ctx context.Context, env cli.Env) {
	if !r.config.personal {
		return
	}

	users, err := r.store.Users(ctx, "", 100)
	if err != nil {
		r.log.Warn("cannot list the users", "error", err)
		return
	}

	var others []string
	for i := range users {
		if u := &users[i]; !u.Disabled && u.ID != "admin" && u.ID != userName() {
			others = append(others, string(u.ID))
		}
	}

	if len(others) > 0 {
		say(env.Stderr, "WARNING: jobs run under your account, so those of %s can read and change everything of yours.\n"+
			"Start the yard as root with --isolation users, or disable them: %s users disable NAME\n",
			humanize.List(others...), self())
	}
}

func say(w io.Writer, format string, args ...any) {
	// A terminal that cannot be written to has nobody who reads.
	_, _ = fmt.Fprintf(w, format, args...)
}

// self is how the user called this program.
func self() string {
	if strings.ContainsRune(os.Args[0], filepath.Separator) {
		return os.Args[0]
	}

	return "trainyard"
}

// upLog logs to a file, so that the terminal stays readable.
func upLog(c *config) (*slog.Logger, func(), error) {
	if err := os.MkdirAll(c.data, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make data folder: %w", err)
	}

	f, err := os.OpenFile(filepath.Join(c.data, "yard.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open log: %w", err)
	}

	return c.logger(cli.Env{Stderr: f}), func() { _ = f.Close() }, nil
}

// startAgent starts the agent of this machine, with a join token made for it.
func startAgent(agentCtx, ctx context.Context, c *config, s *running, log *slog.Logger, done chan<- error) error {
	secret, err := auth.Mint(tenant.JoinToken, rand.Reader, s.folders.ca.Hash())
	if err != nil {
		return err
	}

	if _, err := s.current().Do(
		ctx,
		yardmaster.AddToken{
			By: "yard",
			Token: tenant.Token{ID: secret.ID, Kind: tenant.JoinToken, Owner: "admin", Hash: secret.Hash,
				Class: "local", UsesLeft: 1, Expires: s.clock.Now().Add(10 * time.Minute), Note: "made by up"},
		},
	); err != nil {
		return fmt.Errorf("make join token: %w", err)
	}

	local := *c
	local.server, local.token = s.url, secret.Text
	a, err := newAgent(&local, log, nil, true)
	if err != nil {
		return err
	}

	go func() { done <- a.Run(agentCtx) }()

	return nil
}

// localLogin makes whoever started the yard an admin of it and logs the command line in.
func localLogin(ctx context.Context, s *running, env cli.Env) error {
	file, err := contexts.Load(env.ConfigDir)
	if err != nil {
		return err
	}

	file.Current = localContext

	if known, ok := file.Get(localContext); ok && known.Server == s.url && s.knows(ctx, known) {
		return file.Save()
	}

	name := userName()
	if _, err := s.current().Do(ctx, yardmaster.PutUser{User: name, Role: tenant.Admin, By: "yard"}); err != nil {
		return fmt.Errorf("add user %s: %w", name, err)
	}

	return s.login(ctx, file, localContext, name)
}

// login makes an access token for a user and keeps it under a name for the command line.
func (r *running) login(ctx context.Context, file *contexts.File, under string, name id.User) error {
	secret, err := auth.Mint(tenant.AccessToken, rand.Reader, r.folders.ca.Hash())
	if err != nil {
		return err
	}

	if _, err := r.current().Do(
		ctx,
		yardmaster.AddToken{
			By: "yard",
			Token: tenant.Token{ID: secret.ID, Kind: tenant.AccessToken, Owner: name, Hash: secret.Hash,
				Scope: tenant.ScopeAdmin, Expires: r.clock.Now().Add(90 * 24 * time.Hour), Note: "made by up", Login: true},
		},
	); err != nil {
		return fmt.Errorf("make access token: %w", err)
	}

	file.Put(contexts.Context{
		Name: under, Server: r.url, User: string(name), Token: secret.Text, CA: string(r.folders.ca.PEM()),
	})

	return file.Save()
}

// knows reports whether an earlier login still works.
func (r *running) knows(ctx context.Context, c contexts.Context) bool {
	tls, err := auth.PinnedTLS([]byte(c.CA))
	if err != nil {
		return false
	}

	client := api.NewClient(c.Server, c.Token, tls)
	defer client.Close()

	_, err = client.Whoami(ctx)

	return fault.KindOf(err) == ""
}

// userName is the name of whoever started the yard, as a user of it.
func userName() id.User {
	if u, err := user.Current(); err == nil {
		name := strings.ToLower(u.Username)
		if id.Name(name) {
			return id.User(name)
		}
	}

	return "admin"
}
