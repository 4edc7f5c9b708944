package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/table"
	"trainyard/internal/job"
)

// completionTime is how long a shell waits for names that only the server knows.
const completionTime = 2 * time.Second

// completion is what cobra calls for the words that may follow.
type completion = func(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective)

// completeAll lets the shell complete nodes, logins and states wherever a command takes one: by its usage line and
// by the names of its flags, so that a new command need not ask for it.
func (a *app) completeAll(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		a.completeAll(c)
	}

	if cmd.ValidArgsFunction == nil && strings.Contains(cmd.Use, "NODE") {
		cmd.ValidArgsFunction = a.completeNodes
	}

	CompleteFlag(cmd, "node", a.completeNodes)
	CompleteFlag(cmd, "state", cobra.FixedCompletions(job.StateWords(), cobra.ShellCompDirectiveNoFileComp))
	CompleteFlag(cmd, "context", a.completeContexts)
}

// CompleteFlag lets the shell complete the values of a flag, if the command has one of that name.
func CompleteFlag(cmd *cobra.Command, flag string, words completion) {
	if cmd.Flags().Lookup(flag) == nil && cmd.PersistentFlags().Lookup(flag) == nil {
		return
	}

	_ = cmd.RegisterFlagCompletionFunc(flag, words) // it fails only for a flag that is not there
}

// fromServer returns the words that a question to the server gives, as far as they begin as was typed.
func (a *app) fromServer(
	cmd *cobra.Command, start string, ask func(ctx context.Context, c *api.Client, add func(word, text string)) error,
) ([]string, cobra.ShellCompDirective) {
	client, err := a.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}

	defer client.Close()

	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()

	var words []string

	err = ask(ctx, client, func(word, text string) {
		if strings.HasPrefix(word, start) {
			words = append(words, cobra.CompletionWithDesc(word, table.Plain(text)))
		}
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}

	return words, cobra.ShellCompDirectiveNoFileComp
}

// completeJobs suggests ids of the newest jobs.
func (a *app) completeJobs(cmd *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
	return a.completeJobsIn(nil)(cmd, nil, start)
}

// completeJobsIn suggests ids and names of the newest jobs that are in one of these states, in any without states.
func (a *app) completeJobsIn(states []job.State) completion {
	return func(cmd *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
		return a.fromServer(cmd, start, func(ctx context.Context, c *api.Client, add func(word, text string)) error {
			page, err := c.Jobs(ctx, api.JobFilter{States: states, Page: api.Page{Limit: 100}})
			names := map[string]bool{}

			for _, j := range page.Jobs {
				add(string(j.ID), string(j.Status)+" "+j.Name)

				if j.Name != "" && !names[j.Name] {
					names[j.Name] = true
					add(j.Name, string(j.ID)+" "+string(j.Status))
				}
			}

			add("@last", "your newest job")

			return err
		})
	}
}

// changeable lists the states of jobs that a command can change: resume those that are paused, others those that have
// not ended.
func changeable(verb string) []job.State {
	if verb == "resume" {
		return []job.State{job.Paused}
	}

	return slices.DeleteFunc(job.States(), func(s job.State) bool {
		return s.Final() || verb == "pause" && s == job.Paused
	})
}

// completeNodes suggests names of nodes.
func (a *app) completeNodes(cmd *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
	return a.fromServer(cmd, start, func(ctx context.Context, c *api.Client, add func(word, text string)) error {
		page, err := c.Nodes(ctx, api.Page{Limit: 100})
		for i := range page.Nodes {
			n := &page.Nodes[i]
			add(string(n.ID), strings.TrimSpace(nodeState(n)+" "+gpuKinds(n)))
		}

		return err
	})
}

// completeContexts suggests the logins of this machine.
func (a *app) completeContexts(_ *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
	file, err := a.logins()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}

	var words []string
	for _, c := range file.Contexts {
		if strings.HasPrefix(c.Name, start) {
			words = append(words, cobra.CompletionWithDesc(c.Name, c.User+" at "+c.Server))
		}
	}

	return words, cobra.ShellCompDirectiveNoFileComp
}
