package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/follow"
	"trainyard/internal/cli/table"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// arrayArg returns the array that an argument names, and false for anything else.
func arrayArg(arg string) (id.Array, bool) {
	_, ok := id.Array(arg).Number()
	return id.Array(arg), ok
}

// countsText writes how the elements of an array are: "10 RUNNING, 85 PENDING, 5 SUCCEEDED".
func countsText(a *api.Array) string {
	var parts []string
	for _, c := range a.Counts {
		parts = append(parts, fmt.Sprintf("%d %s", c.Jobs, c.Status))
	}

	return strings.Join(parts, ", ")
}

// arrayStatus is the word for an array as a whole: what some element does, or how all have ended.
func arrayStatus(a *api.Array) job.Status {
	for _, status := range []job.Status{
		job.StatusRunning, job.StatusStarting, job.StatusSuspended, job.StatusRecovering, job.StatusPending,
		job.StatusCancelling, job.StatusPausing, job.StatusPaused,
	} {
		if a.Count(status) > 0 {
			return status
		}
	}

	for _, c := range a.Counts {
		if failure(c.Status) {
			return c.Status
		}
	}

	if a.Count(job.StatusCancelled) > 0 {
		return job.StatusCancelled
	}

	return job.StatusSucceeded
}

// failure reports whether a status is that of a job that has failed.
func failure(s job.Status) bool { return len(job.FailedAs(s)) > 0 && s != job.StatusCancelled }

// arrayLine is an array as a line in a list of jobs.
func arrayLine(a *api.Array) api.Job {
	return api.Job{
		ID: id.Job(a.ID), Name: a.Name, Owner: a.Owner, Project: a.Project, Status: arrayStatus(a), State: arrayState(a),
		Resources: a.Resources, Priority: a.Priority, Submitted: a.Submitted, Since: a.Submitted, Ended: a.Ended,
		Cost: a.Cost, Reason: humanize.Count(a.Size, "element") + ": " + countsText(a),
	}
}

// arrayState is by what lists are divided: it has not ended as long as an element has not.
func arrayState(a *api.Array) job.State {
	switch {
	case a.Ended != nil:
		return job.Succeeded
	case a.Count(job.StatusRunning) > 0:
		return job.Running
	}

	return job.Pending
}

// listArrays fetches the arrays that belong into a list of jobs: those that have not ended, and of the others those
// that ended recently.
func (a *app) listArrays(
	ctx context.Context, client *api.Client, q jobsQuery, active, ended bool,
) ([]api.Array, error) {
	f := api.ArrayFilter{Owner: q.filter.Owner, Project: q.filter.Project, Name: q.filter.Name, Active: !ended}
	f.Limit = pageLimit

	var list []api.Array

	for {
		page, err := client.Arrays(ctx, f)
		if withoutArrays(err) {
			return list, nil // it has no elements that could be missing from the list
		}
		if err != nil {
			return nil, err
		}

		for _, one := range page.Arrays {
			recent := one.Ended == nil || q.recent == 0 || !one.Ended.Before(a.Clock.Now().Add(-q.recent))
			if recent && (one.Ended == nil && active || one.Ended != nil && ended) {
				list = append(list, one)
			}
		}

		if page.Next == "" || len(list) >= maxArrays {
			return list, nil
		}

		f.Cursor = page.Next
	}
}

// withoutArrays reports whether an error says that the server is of a release that has no arrays.
func withoutArrays(err error) bool {
	var refusal *fault.Error
	return errors.As(err, &refusal) && refusal.Code == api.NoArrays
}

// maxArrays bounds how many arrays are listed.
const maxArrays = 200

// showArray writes an array for people.
func (a *app) showArray(ctx context.Context, client *api.Client, name id.Array) error {
	array, err := client.Array(ctx, name)
	if err != nil {
		return err
	}

	var failed api.JobPage
	if hasFailed(&array) {
		failed, err = client.Jobs(ctx, api.JobFilter{
			Array: name, States: []job.State{job.Failed}, Oldest: true, Page: api.Page{Limit: mostShown},
		})
		if err != nil {
			return err
		}
	}

	return a.Show(array, nil, func() error {
		now := a.Clock.Now()
		limit := ""
		if array.Limit > 0 {
			limit = fmt.Sprintf("%d at the same time", array.Limit)
		}

		err := a.Fields([]console.Field{
			{Name: "Array", Value: strings.TrimSpace(string(array.ID) + " " + array.Name)},
			{Name: "Owner", Value: string(array.Owner)}, {Name: "Project", Value: string(array.Project)},
			{Name: "Values", Value: array.Values}, {Name: "Limit", Value: limit},
			{Name: "Elements", Value: fmt.Sprintf("%d (%s to %s)", array.Size, array.First, array.Last)},
			{Name: "Status", Value: countsText(&array)},
			{Name: "Resources", Value: array.Resources},
			{Name: "Submitted", Value: stamp(&array.Submitted, now)}, {Name: "Ended", Value: stamp(array.Ended, now)},
			{Name: "Cost", Value: arrayCost(&array)},
		}...)
		if err != nil {
			return err
		}

		for _, j := range failed.Jobs {
			if _, err := fmt.Fprintf(a.Stdout, "  %s\n", a.elementLine(j)); err != nil {
				return err
			}
		}

		a.Next(
			fmt.Sprintf("trainyard jobs --array %s     list its elements", array.ID),
			fmt.Sprintf("trainyard job %s              show one of them", array.First),
			fmt.Sprintf("trainyard cancel %s           cancel all that have not ended", array.ID),
		)

		return nil
	})
}

func arrayCost(a *api.Array) string {
	if a.Cost == 0 {
		return ""
	}

	return humanize.Dollars(a.Cost)
}

// hasFailed reports whether an element has failed.
func hasFailed(a *api.Array) bool {
	for _, c := range a.Counts {
		if failure(c.Status) {
			return true
		}
	}

	return false
}

// elementLine writes an element with its index and value: "j15 [3] 0.1 FAILED: exit code 1".
func (a *app) elementLine(j api.Job) string {
	text := string(j.ID)
	if j.Index != nil {
		text += " [" + strconv.Itoa(*j.Index) + "] " + table.Plain(j.Value)
	}

	text += " " + string(j.Status)
	if j.Reason != "" {
		text += ": " + table.Plain(j.Reason)
	}

	return text
}

// changedArray says what became of the elements of an array that was changed.
func (a *app) changedArray(c jobChange, done api.ArrayChange) error {
	text := fmt.Sprintf("%s: %s changed (%s)", done.Array.ID, humanize.Count(done.Changed, "element"),
		countsText(&done.Array))
	if done.Refused > 0 {
		text += fmt.Sprintf("; %d could not be changed: %s", done.Refused, table.Plain(done.Reason))
	}

	if _, err := fmt.Fprintln(a.Stdout, text); err != nil {
		return err
	}

	if done.Changed > 0 && done.Array.Ended == nil {
		a.Note("  next: %s", strings.Replace(c.next, "it is", "they are", 1))
	}

	return nil
}

// elements yields the ids of the elements of an array in their order.
func elements(a *api.Array) []id.Job {
	first, _ := a.First.Number()
	list := make([]id.Job, a.Size)
	for i := range list {
		list[i] = id.NewJob(first + uint64(i))
	}

	return list
}

// followArray follows the output of the elements of an array to their end, so many at a time, in their order. Each line
// has the index of its element. It returns the error that carries the exit code of the first that did not succeed.
func (a *app) followArray(ctx context.Context, client *api.Client, array *api.Array, f api.LogFilter,
	p *follow.Printer,
) error {
	jobs := elements(array)
	ends, errs := make([]api.Job, len(jobs)), make([]error, len(jobs))
	next := make(chan int)

	var group sync.WaitGroup
	for range min(maxAttached, len(jobs)) {
		group.Go(func() {
			for i := range next {
				label := strconv.Itoa(i)
				ends[i], errs[i] = follow.Follower{Note: a.Note}.Job(ctx, client, jobs[i], f,
					func(l api.LogLine) error { return p.Line(label, l) }, func(api.Job) {})

				if errs[i] == nil && ends[i].State != job.Succeeded {
					a.Note("%s", a.elementLine(ends[i]))
				}
			}
		})
	}

	for i := range jobs {
		if ctx.Err() != nil {
			break
		}

		select {
		case next <- i:
		case <-ctx.Done():
		}
	}

	close(next)
	group.Wait()

	if err := p.Close(); err != nil {
		return fmt.Errorf("write output: %w", err)
	}

	if ctx.Err() != nil {
		return a.detached([]string{string(array.ID)})
	}

	if last, err := client.Array(ctx, array.ID); err == nil {
		a.Note("%s: %s", array.ID, countsText(&last))
	}

	return a.followed(ctx, make([]string, len(jobs)), ends, errs)
}

// waitArray waits until all elements of an array have ended. It returns the array and, under its id, how the first
// element ended that did not succeed.
func (a *app) waitArray(ctx context.Context, client *api.Client, name id.Array) (api.Array, api.Job, error) {
	var last api.Array

	err := follow.Follower{Note: a.Note}.Persist(ctx, func(alive func()) (bool, error) {
		for {
			array, err := client.Array(ctx, name)
			if err != nil {
				return false, err
			}

			alive()
			last = array

			if array.Ended != nil {
				return true, nil
			}
			if !clock.Sleep(ctx, time.Second) {
				return false, ctx.Err()
			}
		}
	})
	if err != nil {
		return last, api.Job{}, err
	}

	page, err := client.Jobs(ctx, api.JobFilter{
		Array: name, States: []job.State{job.Failed, job.Cancelled}, Oldest: true, Page: api.Page{Limit: 1},
	})
	end := arrayLine(&last)

	if len(page.Jobs) > 0 {
		end.State, end.ExitCode = page.Jobs[0].State, page.Jobs[0].ExitCode
	}

	return last, end, err
}

// listedJobs is a list of jobs and arrays.
type listedJobs struct {
	api.JobPage
	Arrays []api.Array `json:"arrays,omitempty"`
}

// names lists the ids of arrays and jobs.
func (l *listedJobs) names() []string {
	var list []string
	for i := range l.Arrays {
		list = append(list, string(l.Arrays[i].ID))
	}

	return append(list, ids(l.Jobs)...)
}

// lines returns all as lines of a list of jobs, in its order: what runs, what waits, what has ended.
func (l *listedJobs) lines() []api.Job {
	if len(l.Arrays) == 0 {
		return l.Jobs
	}

	all := make([]api.Job, 0, len(l.Arrays)+len(l.Jobs))
	for i := range l.Arrays {
		all = append(all, arrayLine(&l.Arrays[i]))
	}

	all = append(all, l.Jobs...)
	slices.SortStableFunc(all, func(x, y api.Job) int {
		return cmp.Compare(lineTurn(&x), lineTurn(&y))
	})

	return all
}

// lineTurn orders lines by whether they hold nodes, wait, or have ended.
func lineTurn(j *api.Job) int {
	if j.State.Final() {
		return 2
	}

	return turn(j.State)
}
