package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

func (a *app) users() *cobra.Command {
	cmd := &cobra.Command{
		Use: "users [USER]", Short: "List users, or show one", Args: exit.Args(0, 1, "user"),
		Long: `List users, or show one. Their roles:

  viewer      reads the jobs and the usage of their projects; changes nothing
  researcher  submits jobs, reads and changes their own
  operator    a researcher who also manages nodes and leases, and reads everything
  admin       everything

The lead of a project reads and changes its jobs: trainyard projects members PROJECT --lead USER.`,
		Example: "  trainyard users\n  trainyard users add ada --role researcher\n  trainyard users priority ada 80\n" +
			"  trainyard users disable ada",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				if len(args) == 1 {
					user, err := c.User(cmd.Context(), id.User(args[0]))
					if err != nil {
						return err
					}

					return a.showUsers(user, user)
				}

				return a.listUsers(cmd.Context(), c)
			})
		},
	}

	a.OutputFlag(cmd)
	a.QuietFlag(cmd)

	cmd.AddCommand(
		a.addUser(),
		a.setRole(),
		a.setPriority(),
		a.able("disable", "Lock a user out; their jobs go on", true),
		a.able("enable", "Let a user in again", false),
	)

	return cmd
}

func (a *app) listUsers(ctx context.Context, client *api.Client) error {
	all := api.UserPage{Users: []api.User{}}
	for {
		page, err := client.Users(ctx, api.Page{Cursor: all.Next, Limit: pageLimit})
		if err != nil {
			return err
		}

		all.Users, all.Next = append(all.Users, page.Users...), page.Next
		if page.Next == "" {
			return a.showUsers(all, all.Users...)
		}
	}
}

// showUsers shows users as a table; value is what programs get.
func (a *app) showUsers(value any, users ...api.User) error {
	names := func() []string {
		list := make([]string, len(users))
		for i, u := range users {
			list[i] = string(u.ID)
		}

		return list
	}

	return a.Show(value, names, func() error {
		now := a.Clock.Now()
		t := a.NewTable("USER", "ROLE", "STATE", "MAX PRIORITY", "USAGE", "CREATED")
		for _, u := range users {
			state := table.Cell{Text: "active", Color: table.Green}
			if u.Disabled {
				state = table.Cell{Text: "disabled", Color: table.Gray}
			}

			highest := "by role"
			if u.MaxPriority != nil {
				highest = strconv.Itoa(*u.MaxPriority)
			}

			t.Cells(
				table.Cell{Text: string(u.ID)},
				table.Cell{Text: string(u.Role)},
				state,
				table.Cell{Text: highest},
				table.Cell{
					Text: strconv.FormatFloat(u.Usage/time.Hour.Seconds(), 'f', 1, 64) + " GPU-h",
				},
				table.Cell{Text: humanize.Ago(u.Created, now)},
			)
		}

		return a.WriteTable(t, "no users")
	})
}

func (a *app) addUser() *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use: "add USER", Short: "Add a user", Args: exit.Args(1, 1, "user"),
		Example: "  trainyard users add ada\n  trainyard users add ada --role admin",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf(cmd, "role", role, tenant.Roles()); err != nil {
				return err
			}

			return a.withClient(func(c *api.Client) error {
				name := id.User(args[0])
				_, err := c.User(cmd.Context(), name)
				if err == nil {
					return fault.New(fault.Conflict, "user_exists", "user %s already exists", name).
						WithRemedy("change the role with: trainyard users role %s ROLE", name)
				}

				if fault.KindOf(err) != fault.NotFound {
					return err
				}

				user, err := c.PutUser(cmd.Context(), name, api.UserRequest{Role: tenant.Role(role)})
				if err != nil {
					return err
				}
				if err := a.showUsers(user, user); err != nil {
					return err
				}

				a.Next(fmt.Sprintf("trainyard tokens create --login --owner %s     a token for them to log in with", name))

				return nil
			})
		},
	}

	cmd.Flags().StringVar(&role, "role", string(tenant.Researcher), "`role`: viewer, researcher, operator or admin")
	a.OutputFlag(cmd)

	return cmd
}

func (a *app) setRole() *cobra.Command {
	cmd := &cobra.Command{
		Use: "role USER ROLE", Short: "Change a user's role", Args: exit.Args(2, 2, "user and role"),
		Example: "  trainyard users role ada admin",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf(cmd, "role", args[1], tenant.Roles()); err != nil {
				return err
			}

			return a.changeUser(cmd.Context(), args[0], func(u *api.UserRequest) { u.Role = tenant.Role(args[1]) })
		},
	}

	a.OutputFlag(cmd)

	return cmd
}

func (a *app) setPriority() *cobra.Command {
	cmd := &cobra.Command{
		Use: "priority USER PRIORITY", Short: "Set the highest priority of a user's jobs",
		Long: "Set the highest priority of the jobs that a user submits, from 0 to 100; role lets that of their role " +
			"apply.",
		Args:    exit.Args(2, 2, "user and priority"),
		Example: "  trainyard users priority ada 80\n  trainyard users priority ada role",
		RunE: func(cmd *cobra.Command, args []string) error {
			highest := byRole
			if args[1] != "role" {
				n, err := strconv.Atoi(args[1])
				if err != nil || n < 0 || n > maxPriority {
					return exit.Usagef(cmd, "priority must be an integer between 0 and %d, or role, got %s", maxPriority, args[1])
				}

				highest = n
			}

			return a.changeUser(cmd.Context(), args[0], func(u *api.UserRequest) { u.MaxPriority = &highest })
		},
	}

	a.OutputFlag(cmd)

	return cmd
}

// The priorities of users' jobs.
const (
	maxPriority = 100
	byRole      = -1 // lets the highest priority of their role apply
)

func (a *app) able(verb, short string, disabled bool) *cobra.Command {
	cmd := &cobra.Command{
		Use: verb + " USER", Short: short, Args: exit.Args(1, 1, "user"),
		Example: "  trainyard users " + verb + " ada",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeUser(cmd.Context(), args[0], func(u *api.UserRequest) { u.Disabled = disabled })
		},
	}

	a.OutputFlag(cmd)

	return cmd
}

// changeUser changes one thing about a user and leaves the rest as it is.
func (a *app) changeUser(ctx context.Context, name string, change func(*api.UserRequest)) error {
	return a.withClient(func(c *api.Client) error {
		user, err := c.User(ctx, id.User(name))
		if err != nil {
			return err
		}

		request := api.UserRequest{Role: user.Role, Disabled: user.Disabled}
		change(&request)
		user, err = c.PutUser(ctx, user.ID, request)
		if err != nil {
			return err
		}

		return a.showUsers(user, user)
	})
}
