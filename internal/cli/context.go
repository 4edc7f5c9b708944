package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"trainyard/internal/cli/contexts"
	"trainyard/internal/cli/exit"
)

func (a *app) contexts() *cobra.Command {
	cmd := &cobra.Command{
		Use: "context", Short: "List the logins of this machine, or choose one", Args: exit.NoArgs,
		Long: `List the logins of this machine. The current one has a star; choose another with "context use NAME", or
for one command with --context.`,
		Example: "  trainyard context\n  trainyard context use lab",
		RunE:    func(*cobra.Command, []string) error { return a.listContexts() },
	}

	use := &cobra.Command{
		Use: "use NAME", Short: "Make a login the current one", Args: exit.Args(1, 1, "login"),
		ValidArgsFunction: a.completeContexts,
		Example:           "  trainyard context use lab",
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := a.logins()
			if err != nil {
				return err
			}

			login, ok := file.Get(args[0])
			if !ok {
				return contexts.NotFound(args[0])
			}

			file.Current = login.Name
			if err := file.Save(); err != nil {
				return err
			}

			_, err = fmt.Fprintf(a.Stdout, "The current login is %s at %s.\n", login.Name, login.Server)

			return err
		},
	}

	cmd.AddCommand(use)
	a.OutputFlag(cmd)

	return cmd
}

// shownContext is a login without its secret.
type shownContext struct {
	Name    string `json:"name"`
	Server  string `json:"server"`
	User    string `json:"user"`
	Current bool   `json:"current"`
}

func (a *app) listContexts() error {
	file, err := a.logins()
	if err != nil {
		return err
	}

	list := struct {
		Contexts []shownContext `json:"contexts"`
	}{[]shownContext{}}
	for _, c := range file.Contexts {
		list.Contexts = append(list.Contexts, shownContext{c.Name, c.Server, c.User, c.Name == file.Current})
	}

	return a.Show(list, nil, func() error {
		t := a.NewTable("CURRENT", "NAME", "USER", "SERVER")
		for _, c := range list.Contexts {
			star := ""
			if c.Current {
				star = "*"
			}

			t.Row(star, c.Name, c.User, c.Server)
		}

		return a.WriteTable(t, "no logins", "trainyard login https://HOST:7443")
	})
}
