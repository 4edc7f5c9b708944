package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// jobsQuery is what the flags of jobs ask for.
type jobsQuery struct {
	filter api.JobFilter
	recent time.Duration // ended jobs are shown that ended no longer ago; 0 shows all
	limit  int
	view   jobsView
	fold   bool // arrays are one line each, instead of a line for each element
}

func (a *app) jobs() *cobra.Command {
	var all, watch bool
	var show jobsShown
	var owner, name, node, project, array, since string
	var elements bool
	var limit int
	cmd := &cobra.Command{
		Use:     "jobs",
		Aliases: []string{"ps", "queue"},
		Short:   "List jobs",
		Long: `List jobs: those that run, those that wait, and those that ended within the last day, each newest
first. Jobs that have not ended are always shown. Admins see all jobs, researchers their own.

An array is one line with the number of its elements by status; --array lists the elements of one, --elements those of
all. With --node and --state, elements are listed one by one.

LEFT is the estimated remaining time, "~" marks a guess; a queued job shows its estimated run time,
and a program that has reported nothing yet is "starting". "late" marks a job that will miss its
deadline, "over expect" one that will run longer than its owner expects.`,
		Example: `  trainyard jobs
  trainyard jobs -w
  trainyard jobs --active --owner me
  trainyard jobs --ended --sort=-cost --columns id,name,status,cost
  trainyard jobs --state out_of_memory --state timeout
  trainyard jobs --counts --owner me
  trainyard jobs --array a12 --state failed
  trainyard jobs --all --since 7d -o json
  trainyard wait $(trainyard jobs -q --active --name sweep)`,
		Args: exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := jobsQuery{limit: limit, recent: 24 * time.Hour, filter: api.JobFilter{
				Owner: id.User(owner), Name: name, Node: id.Node(node), Project: id.Project(project),
				Array: id.Array(array),
			}}
			if _, ok := arrayArg(array); array != "" && !ok {
				return exit.Usagef(cmd, "--array must be the ID of an array, e.g. a12; got %q", array)
			}

			q.fold = !elements && array == "" && node == "" && len(show.states) == 0 && !show.counts
			q.filter.Single = q.fold
			if err := show.apply(cmd, a, &q); err != nil {
				return err
			}

			if all || len(q.filter.States) > 0 {
				q.recent = 0
			}

			if since != "" {
				d, err := job.ParseDuration(since)
				if err != nil {
					return exit.Usagef(cmd, "--since: %v", err)
				}

				q.recent = time.Duration(d)
			}

			if limit < 1 {
				return exit.Usagef(cmd, "--limit must be at least 1")
			}

			return a.doJobs(cmd.Context(), q, watch)
		},
	}

	flags := cmd.Flags()
	flags.BoolVarP(&watch, "watch", "w", false, "refresh the list every two seconds")
	flags.BoolVarP(&all, "all", "a", false, "include jobs that ended more than a day ago")
	show.flags(cmd)
	flags.StringVar(&owner, "owner", "", "only jobs of this `user`; me for your own")
	flags.StringVar(&project, "project", "", "only jobs of this `project`")
	flags.StringVar(&name, "name", "", "only jobs whose `name` contains this")
	flags.StringVar(&array, "array", "", "only elements of this `array`, e.g. a12")
	flags.BoolVar(&elements, "elements", false, "list the elements of arrays one by one")
	flags.StringVar(&node, "node", "", "only jobs that run or ran on this `node`")
	flags.StringVar(&since, "since", "", "show ended jobs only if they ended within this `duration`, e.g. 6h or 2d")
	flags.IntVar(&limit, "limit", 50, "maximum `number` of ended jobs to show")
	a.OutputFlag(cmd, console.Wide)
	a.QuietFlag(cmd)

	return cmd
}

func (a *app) doJobs(ctx context.Context, q jobsQuery, watch bool) error {
	client, err := a.connect()
	if err != nil {
		return err
	}

	defer client.Close()

	if q.filter.Owner == "me" {
		who, err := client.Whoami(ctx)
		if err != nil {
			return err
		}

		q.filter.Owner = who.User
	}

	if q.filter.Array != "" {
		// A server that does not know arrays would list all jobs.
		if _, err := client.Array(ctx, q.filter.Array); err != nil {
			return err
		}
	}

	if q.view.counts {
		return a.showCounts(ctx, client, q)
	}
	if watch {
		return a.watchJobs(ctx, client, q)
	}

	page, cut, err := a.listFolded(ctx, client, q)
	if err != nil {
		return err
	}

	q.view.sort(page.Jobs, a.Clock.Now())

	if cut != "" {
		defer a.Note("%s", cut)
	}

	return a.Show(page, page.names, func() error {
		lines := page.lines()
		q.view.sort(lines, a.Clock.Now())

		return a.WriteTable(
			a.jobTable(lines, q.view),
			"no jobs",
			"trainyard submit job.yaml",
			"trainyard jobs --all        include jobs that ended more than a day ago",
		)
	})
}

// listFolded fetches the jobs asked for, and the arrays among them as such if they are folded.
func (a *app) listFolded(ctx context.Context, client *api.Client, q jobsQuery) (listedJobs, string, error) {
	page, cut, err := a.listJobs(ctx, client, q)
	all := listedJobs{JobPage: page}
	if err != nil || !q.fold {
		return all, cut, err
	}

	active, ended := splitStates(q.filter.States)
	all.Arrays, err = a.listArrays(ctx, client, q, len(active) > 0, len(ended) > 0)

	return all, cut, err
}

// listJobs fetches the jobs asked for: those that run, those that wait, and then those that have ended, each newest
// first. Jobs that have not ended are shown however old they are and do not count against the limit. cut says which
// jobs were left out, "" if none were.
func (a *app) listJobs(ctx context.Context, client *api.Client, q jobsQuery) (all api.JobPage, cut string, err error) {
	active, ended := q.filter, q.filter
	active.States, ended.States = splitStates(q.filter.States)

	all.Jobs = []api.Job{}
	if len(active.States) > 0 {
		page, more, err := collectJobs(ctx, client, active, maxActive, nil)
		if err != nil {
			return page, "", err
		}

		all = page
		slices.SortStableFunc(all.Jobs, func(x, y api.Job) int { return cmp.Compare(turn(x.State), turn(y.State)) })

		if more {
			cut = fmt.Sprintf("Showing the newest %d jobs that have not ended; narrow the list, e.g. with --owner me.",
				maxActive)
		}
	}

	if len(ended.States) == 0 {
		return all, cut, nil
	}

	var keep func(api.Job) bool
	if q.recent > 0 {
		from := a.Clock.Now().Add(-q.recent)
		ended.Since = from.Add(-longestLife)
		keep = func(j api.Job) bool { return j.Ended != nil && !j.Ended.Before(from) }
	} else {
		ended.Sort = q.view.serverSort()
	}

	page, more, err := collectJobs(ctx, client, ended, q.limit, keep)
	if err != nil {
		return page, "", err
	}

	// A job may have ended between the two requests.
	all.Jobs = slices.DeleteFunc(all.Jobs, func(j api.Job) bool {
		return slices.ContainsFunc(page.Jobs, func(e api.Job) bool { return e.ID == j.ID })
	})
	all.Jobs = append(all.Jobs, page.Jobs...)

	if more {
		which := "newest"
		if ended.Sort != "" {
			which = "first"
		}

		cut = strings.TrimSpace(cut + fmt.Sprintf("\nShowing the %s %s; use --limit for more.", which,
			humanize.Count(len(page.Jobs), "ended job")))
	}

	return all, cut, nil
}

// turn orders jobs that have not ended: those that hold nodes come first.
func turn(s job.State) int {
	if s.Live() {
		return 0
	}

	return 1
}

const (
	// longestLife bounds how long before its end a job may have been submitted
	// to be found among the recently ended: the server lists by submission.
	longestLife = 30 * 24 * time.Hour
	// mostScanned bounds how many jobs are looked at for those to keep.
	mostScanned = 2000
	// maxActive bounds how many jobs that have not ended are shown: no person reads more, and each page is a request.
	maxActive = 2000
)

// collectJobs fetches pages until there are as many jobs to keep as wanted, and
// reports whether there may be more. A nil keep keeps all.
func collectJobs(
	ctx context.Context,
	client *api.Client,
	f api.JobFilter,
	limit int,
	keep func(api.Job) bool,
) (all api.JobPage, more bool, err error) {
	all.Jobs = []api.Job{}

	for scanned := 0; ; {
		f.Limit = pageLimit
		if keep == nil {
			f.Limit = min(limit-len(all.Jobs), pageLimit)
		}

		page, err := client.Jobs(ctx, f)
		if err != nil {
			return page, false, err
		}

		for _, j := range page.Jobs {
			if keep == nil || keep(j) {
				all.Jobs = append(all.Jobs, j)
			}
		}

		scanned += len(page.Jobs)
		if page.Next == "" || len(all.Jobs) >= limit || keep != nil && scanned >= mostScanned {
			more = page.Next != "" && len(all.Jobs) >= limit || len(all.Jobs) > limit
			all.Jobs = all.Jobs[:min(len(all.Jobs), limit)]
			return all, more, nil
		}

		f.Cursor = page.Next
	}
}

// remarkColor is the colour of a reason: it stands out if the owner of the job should know something.
func remarkColor(j *api.Job) table.Color {
	if len(j.Remarks) > 0 {
		return table.Yellow
	}

	return table.NoColor
}

// ranFor writes how long a job has run, or ran, in all: the time in the queue before and between its runs does not
// count.
func ranFor(j api.Job, now time.Time) string {
	if j.Started == nil {
		return ""
	}

	return humanize.Duration(ran(&j, now))
}

// nodeList writes a few names, and how many there are beyond.
func nodeList(nodes []id.Node) string {
	var names []string
	for i, n := range nodes {
		if i == 2 && len(nodes) > 3 {
			names = append(names, "+"+strconv.Itoa(len(nodes)-2))
			break
		}

		names = append(names, string(n))
	}

	return strings.Join(names, ",")
}
