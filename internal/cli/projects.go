package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
)

func (a *app) projects() *cobra.Command {
	cmd := &cobra.Command{
		Use: "projects [PROJECT]", Short: "List projects with their members, or show one", Args: exit.Args(0, 1, "project"),
		Long: `List projects with their members: those that you are a member of, or for admins and operators all. Only its
members may submit jobs to a project in this list. Any other name of a project is a label that everybody may use; it
becomes a project when an admin adds it or sets a quota on it.`,
		Example: "  trainyard projects\n  trainyard projects add vision\n" +
			"  trainyard projects members vision --add ada --lead bob\n  trainyard projects rm vision",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				if len(args) == 0 {
					return a.listProjects(cmd.Context(), c)
				}

				one, err := c.Project(cmd.Context(), id.Project(args[0]))
				if err != nil {
					return err
				}

				return a.showMembers(one)
			})
		},
	}

	a.OutputFlag(cmd)
	a.QuietFlag(cmd)
	cmd.AddCommand(a.addProject(), a.removeProject(), a.members())

	return cmd
}

func (a *app) listProjects(ctx context.Context, client *api.Client) error {
	list, err := collect(func(p api.Page) ([]api.Project, string, error) {
		page, err := client.Projects(ctx, p)
		return page.Projects, page.Next, err
	})
	if err != nil {
		return err
	}

	names := func() []string {
		out := make([]string, len(list))
		for i := range list {
			out[i] = string(list[i].ID)
		}

		return out
	}

	return a.Show(api.ProjectPage{Projects: list}, names, func() error {
		t := a.NewTable("PROJECT", "MEMBERS", "LEADS", "CREATED")
		for i := range list {
			p := &list[i]

			created := ""
			if p.Created != nil {
				created = humanize.Ago(*p.Created, a.Clock.Now())
			}

			t.Cells(table.Cell{Text: string(p.ID)}, table.Cell{Text: strconv.Itoa(len(p.Members))},
				table.Cell{Text: strings.Join(leadsOf(p), ", ")}, table.Cell{Text: created})
		}

		return a.WriteTable(t, "no projects with members", "trainyard projects add PROJECT")
	})
}

// leadsOf lists the leads of a project.
func leadsOf(p *api.Project) []string {
	var leads []string
	for _, m := range p.Members {
		if m.Lead {
			leads = append(leads, string(m.User))
		}
	}

	return leads
}

// showMembers shows the members of a project.
func (a *app) showMembers(p api.Project) error {
	names := func() []string {
		out := make([]string, len(p.Members))
		for i, m := range p.Members {
			out[i] = string(m.User)
		}

		return out
	}

	return a.Show(p, names, func() error {
		t := a.NewTable("MEMBER", "ROLE")
		for _, m := range p.Members {
			role := "member"
			if m.Lead {
				role = "lead"
			}

			t.Cells(table.Cell{Text: string(m.User)}, table.Cell{Text: role})
		}

		return a.WriteTable(t, "project "+string(p.ID)+" has no members",
			"trainyard projects members "+string(p.ID)+" --add USER")
	})
}

func (a *app) addProject() *cobra.Command {
	var members, leads []string
	cmd := &cobra.Command{
		Use: "add PROJECT", Short: "Create a project, to which only its members may submit jobs",
		Args:    exit.Args(1, 1, "project"),
		Example: "  trainyard projects add vision --member ada --member ben --lead bob",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				one, err := c.AddProject(cmd.Context(), id.Project(args[0]))
				if err != nil {
					return err
				}

				return a.changeMembers(cmd.Context(), c, one, memberChanges{add: members, lead: leads})
			})
		},
	}

	cmd.Flags().StringArrayVar(&members, "member", nil, "`user` who becomes a member; may be repeated")
	cmd.Flags().StringArrayVar(&leads, "lead", nil, "`user` who becomes a lead; may be repeated")
	a.OutputFlag(cmd)

	return cmd
}

func (a *app) removeProject() *cobra.Command {
	return &cobra.Command{
		Use: "rm PROJECT", Short: "Remove a project; its jobs stay, and its name is a label again",
		Args:    exit.Args(1, 1, "project"),
		Example: "  trainyard projects rm vision",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				if err := c.RemoveProject(cmd.Context(), id.Project(args[0])); err != nil {
					return err
				}

				_, err := fmt.Fprintf(a.Stdout, "%s removed\n", args[0])

				return err
			})
		},
	}
}

// memberChanges says who joins and who leaves a project.
type memberChanges struct{ add, lead, remove []string }

func (a *app) members() *cobra.Command {
	var changes memberChanges
	cmd := &cobra.Command{
		Use: "members PROJECT", Short: "Show the members of a project, add or remove some", Args: exit.Args(1, 1, "project"),
		Long: `Show the members of a project, add or remove some. A lead may read and change the jobs of the project
and see its usage. Jobs of a member who leaves go on.`,
		Example: "  trainyard projects members vision\n  trainyard projects members vision --add ada --lead bob --remove eve",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				one, err := c.Project(cmd.Context(), id.Project(args[0]))
				if err != nil {
					return err
				}

				return a.changeMembers(cmd.Context(), c, one, changes)
			})
		},
	}

	cmd.Flags().StringArrayVar(&changes.add, "add", nil,
		"`user` who becomes a member, or a member instead of a lead; may be repeated")
	cmd.Flags().StringArrayVar(&changes.lead, "lead", nil, "`user` who becomes a lead; may be repeated")
	cmd.Flags().StringArrayVar(&changes.remove, "remove", nil, "`user` who leaves; may be repeated")
	a.OutputFlag(cmd)
	a.QuietFlag(cmd)

	return cmd
}

// changeMembers changes the members of a project and shows those that it has then.
func (a *app) changeMembers(ctx context.Context, client *api.Client, p api.Project, changes memberChanges) error {
	for _, u := range changes.add {
		if _, err := client.PutMember(ctx, p.ID, id.User(u), api.MemberRequest{}); err != nil {
			return err
		}
	}

	for _, u := range changes.lead {
		if _, err := client.PutMember(ctx, p.ID, id.User(u), api.MemberRequest{Lead: true}); err != nil {
			return err
		}
	}

	for _, u := range changes.remove {
		if err := client.RemoveMember(ctx, p.ID, id.User(u)); err != nil {
			return err
		}
	}

	p, err := client.Project(ctx, p.ID)
	if err != nil {
		return err
	}

	return a.showMembers(p)
}
