package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/dataset"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

func (a *app) data() *cobra.Command {
	cmd := &cobra.Command{
		Use: "data", Short: "List, register, change or audit datasets", Args: exit.NoArgs,
		Long: `Datasets are named data with a rule on where it may be used: on local nodes, on cloud nodes, or on any.
A job that names a dataset runs only where the rule allows it.`,
		Example: `  trainyard data
  trainyard data add scans --place local --size 40GB --source /data/scans
  trainyard data set scans --copy node=box1:/data/scans
  trainyard data audit scans`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listData(cmd.Context()) },
	}

	a.OutputFlag(cmd)
	a.QuietFlag(cmd)

	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List datasets", Args: exit.NoArgs, Example: "  trainyard data list",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listData(cmd.Context()) },
	}

	a.OutputFlag(list)
	a.QuietFlag(list)
	cmd.AddCommand(list, a.showData(), a.putData("add"), a.putData("set"), a.removeData(), a.auditData())

	return cmd
}

func (a *app) listData(ctx context.Context) error {
	return a.withClient(func(c *api.Client) error {
		all, err := collect(func(p api.Page) ([]api.Dataset, string, error) {
			page, err := c.Datasets(ctx, p)
			return page.Datasets, page.Next, err
		})
		if err != nil {
			return err
		}

		names := func() []string {
			var list []string
			for i := range all {
				list = append(list, string(all[i].ID))
			}

			return list
		}

		return a.Show(api.DatasetPage{Datasets: all}, names, func() error {
			t := a.NewTable("DATASET", "PLACE", "SIZE", "OWNER", "CREATED", "SOURCE", "COPIES")
			for i := range all {
				d := &all[i]
				t.Row(
					string(d.ID),
					string(d.Place),
					size(d.Size),
					string(d.Owner),
					humanize.Ago(d.Created, a.Clock.Now()),
					d.Source,
					few(copies(d.Copies)),
				)
			}

			return a.WriteTable(
				t,
				"no datasets",
				"trainyard data add scans --place local --size 40GB     then write data: [scans] in a job file",
			)
		})
	})
}

func size(b job.Bytes) string { return orNone(b > 0, humanize.Size(b)) }

// copies writes where copies are, as --copy reads them.
func copies(list []api.Copy) []string {
	words := make([]string, len(list))
	for i, c := range list {
		switch {
		case c.Node != "":
			words[i] = "node=" + string(c.Node)
		case c.Pool != "":
			words[i] = "pool=" + c.Pool
		default:
			words[i] = "at=" + string(c.At)
		}

		if c.Path != "" {
			words[i] += ":" + c.Path
		}
	}

	return words
}

func (a *app) showData() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show DATASET",
		Short:   "Show a dataset",
		Args:    exit.Args(1, 1, "dataset"),
		Example: "  trainyard data show scans",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				d, err := c.Dataset(cmd.Context(), id.Dataset(args[0]))
				if err != nil {
					return err
				}

				return a.Show(d, nil, func() error { return a.dataDetail(&d) })
			})
		},
	}

	a.OutputFlag(cmd)

	return cmd
}

func (a *app) dataDetail(d *api.Dataset) error {
	place := string(d.Place)
	if d.Effective != "" {
		place = fmt.Sprintf("%s, and by another dataset with the same data %s", d.Place, d.Effective)
	}

	return a.Pairs("Dataset", string(d.ID), "Place", place, "Readers", readers(d.Readers), "Size", size(d.Size),
		"Owner", string(d.Owner),
		"Created", stamp(&d.Created, a.Clock.Now()), "Source", d.Source, "Copies", strings.Join(copies(d.Copies), ", "))
}

// readers writes who may use a dataset besides its owner, as --readers reads it.
func readers(list []dataset.Reader) string {
	if len(list) == 0 {
		return everybody
	}

	names := make([]string, len(list))
	for i, u := range list {
		names[i] = string(u)
	}

	return strings.Join(names, ", ")
}

// everybody is for --readers that everybody may use a dataset.
const everybody = "everybody"

// readReaders reads what readers wrote.
func readReaders(text string) []dataset.Reader {
	if text == everybody {
		return []dataset.Reader{api.Everybody}
	}

	var list []dataset.Reader
	for name := range strings.SplitSeq(text, ",") {
		list = append(list, dataset.Reader(strings.TrimSpace(name)))
	}

	return list
}

// putData is add, which refuses a name that is taken, or set, which changes what flags
// were given for.
func (a *app) putData(verb string) *cobra.Command {
	var place, bytes, source, allowed string
	var copied []string

	short, example := "Register a dataset", "  trainyard data add scans --place local --size 40GB --source /data/scans"
	if verb == "set" {
		short, example = "Change a dataset; values without a flag stay as they are", "  trainyard data set scans --place any"
	}

	cmd := &cobra.Command{
		Use: verb + " DATASET", Short: short, Args: exit.Args(1, 1, "dataset"), Example: example,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				request, err := known(cmd.Context(), c, verb, id.Dataset(args[0]))
				if err != nil {
					return err
				}

				if cmd.Flags().Changed("place") || verb == "add" {
					request.Place = job.Place(place)
				}

				if cmd.Flags().Changed("source") {
					request.Source = source
				}

				if cmd.Flags().Changed("readers") {
					request.Readers = readReaders(allowed)
				}

				if bytes != "" {
					request.Size, err = job.ParseBytes(bytes)
					if err != nil {
						return exit.Usagef(cmd, "--size: %v", err)
					}
				}

				if cmd.Flags().Changed("copy") {
					request.Copies, err = readCopies(copied)
					if err != nil {
						return exit.Usagef(cmd, "--copy: %v", err)
					}
				}

				d, err := c.PutDataset(cmd.Context(), id.Dataset(args[0]), request)
				if err != nil {
					return err
				}

				return a.Show(d, nil, func() error { return a.dataDetail(&d) })
			})
		},
	}

	f := cmd.Flags()
	f.StringVar(&place, "place", "local", "where it may be used: `local`, cloud or any")
	f.StringVar(&bytes, "size", "", "`size` of the data, e.g. 40GB; used to estimate the cost of moving it")
	f.StringVar(&source, "source", "", "where it is fetched from: a `path` on the nodes or an address")

	f.StringVar(&allowed, "readers", everybody,
		"`users`, or projects as project/NAME, who may use it besides its owner, separated by commas, or everybody")

	f.StringArrayVar(
		&copied,
		"copy",
		nil,
		"a `place` that has a copy: node=box1:/data, pool=lab or at=local; may be given several times, replaces the "+
			"previous copies",
	)

	a.OutputFlag(cmd)

	return cmd
}

// known returns what is registered under a name. For add it must be nothing.
func known(ctx context.Context, c *api.Client, verb string, name id.Dataset) (api.DatasetRequest, error) {
	d, err := c.Dataset(ctx, name)
	switch {
	case verb == "set":
		return d.DatasetRequest, err
	case err == nil:
		return d.DatasetRequest, fault.New(fault.Conflict, "dataset_exists", "dataset %s already exists", name).
			WithRemedy("change it with: trainyard data set %s", name)
	case fault.KindOf(err) == fault.NotFound:
		return api.DatasetRequest{}, nil
	}

	return api.DatasetRequest{}, err
}

// readCopies reads node=box1:/data, pool=lab, at=local.
func readCopies(list []string) ([]api.Copy, error) {
	var all []api.Copy

	for _, text := range list {
		kind, rest, _ := strings.Cut(text, "=")
		name, path, _ := strings.Cut(rest, ":")
		c := api.Copy{Path: path}

		switch kind {
		case "node":
			c.Node = id.Node(name)
		case "pool":
			c.Pool = name
		case "at":
			c.At = job.Place(name)
		}

		if name == "" || !slices.Contains([]string{"node", "pool", "at"}, kind) {
			return nil, fmt.Errorf("invalid copy %q: use node=box1:/data, pool=lab or at=local", text)
		}

		all = append(all, c)
	}

	return all, nil
}

func (a *app) removeData() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "remove DATASET",
		Aliases: []string{"rm"},
		Short:   "Remove a dataset; its audit records are kept",
		Args:    exit.Args(1, 1, "dataset"),
		Example: "  trainyard data remove scans",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				if err := a.sure(cmd.Context(), "Remove dataset "+args[0]+
					"? Jobs that use it can no longer be placed."); err != nil {
					return err
				}

				if err := c.RemoveDataset(cmd.Context(), id.Dataset(args[0])); err != nil {
					return err
				}

				_, err := fmt.Fprintf(a.Stdout, "Dataset %s removed; the data itself was not touched.\n", args[0])

				return err
			})
		},
	}

	a.YesFlag(cmd)

	return cmd
}

func (a *app) auditData() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "audit DATASET", Short: "Show whether a dataset ever left the premises", Args: exit.Args(1, 1, "dataset"),
		Long: `Show whether a dataset ever left the premises, when and by whom, and list where it was used. For its
owner and for admins.`,
		Example: "  trainyard data audit scans",
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > pageLimit {
				return exit.Usagef(cmd, "--limit must be from 1 to %d", pageLimit)
			}

			return a.withClient(func(c *api.Client) error {
				audit, err := c.AuditDataset(cmd.Context(), id.Dataset(args[0]), limit)
				if err != nil {
					return err
				}

				return a.Show(audit, nil, func() error { return a.auditText(&audit) })
			})
		},
	}

	cmd.Flags().IntVar(&limit, "limit", 20, "`number` of uses to list")
	a.OutputFlag(cmd)

	return cmd
}

func (a *app) auditText(audit *api.Audit) error {
	color := table.Green
	if audit.Left {
		color = table.Red
	}

	rule := string(audit.Place)
	if rule == "" {
		rule = "no longer registered"
	}

	if err := a.Fields(
		console.Field{Name: "Dataset", Value: string(audit.Dataset)},
		console.Field{Name: "Place", Value: rule},
		console.Field{Name: "Left premises", Value: audit.Answer, Color: color},
		console.Field{
			Name:  "Uses",
			Value: fmt.Sprintf("%d inside, %d outside, %d by an override", audit.Inside, audit.Outside, audit.Against),
		},
		console.Field{Name: "Outside copies", Value: strings.Join(copies(audit.Copies), ", ")},
	); err != nil {
		return err
	}

	if len(audit.Uses) == 0 {
		return nil
	}

	t := a.NewTable("WHEN", "RUN", "OWNER", "NODE", "WHERE", "OVERRIDE")
	for _, u := range audit.Uses {
		where := table.Cell{Text: "inside"}
		if u.Outside {
			where = table.Cell{Text: "outside", Color: table.Red}
		}

		t.Cells(
			table.Cell{Text: u.At.UTC().Format("2006-01-02 15:04 UTC")},
			table.Cell{Text: string(u.Run)},
			table.Cell{Text: string(u.Owner)},
			table.Cell{Text: string(u.Node)},
			where,
			table.Cell{Text: u.Override},
		)
	}

	if _, err := io.WriteString(a.Stdout, "\n"); err != nil {
		return err
	}

	if all := audit.Inside + audit.Outside; all > len(audit.Uses) {
		defer a.Note("Showing the newest %d of %d uses; use --limit for more.", len(audit.Uses), all)
	}

	return t.Write(a.Stdout)
}
