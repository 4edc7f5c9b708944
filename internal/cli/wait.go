package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/follow"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

func (a *app) wait() *cobra.Command {
	var timeout string
	cmd := &cobra.Command{
		Use:   "wait JOB...",
		Short: "Wait until jobs have ended",
		Long: `Wait until jobs have ended and end with their exit code: that of the first that
did not succeed (see: trainyard help exit-codes). Jobs that have not ended within
--timeout give 101, and so does a job that is paused until its owner decides, as when its
budget is used up.

` + arraysHelp,
		Example: `  id=$(trainyard submit -q job.yaml)
  trainyard wait $id && trainyard logs $id
  trainyard wait j7 j8 --timeout 2h`,
		Args:              exit.Args(1, 0, "job"),
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var limit job.Duration

			if timeout != "" {
				var err error
				limit, err = job.ParseDuration(timeout)
				if err != nil {
					return exit.Usagef(cmd, "--timeout: %v", err)
				}
			}

			return a.doWait(cmd.Context(), args, time.Duration(limit))
		},
	}

	cmd.Flags().StringVar(&timeout, "timeout", "", "give up after this `duration`, e.g. 90s or 2h")
	a.OutputFlag(cmd)

	return cmd
}

func (a *app) doWait(ctx context.Context, jobs []string, limit time.Duration) error {
	client, err := a.connect()
	if err != nil {
		return err
	}

	defer client.Close()

	bounded := ctx

	if limit > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}

	names := make([]string, len(jobs)) // a name may mean another job later on
	for i, handle := range jobs {
		if _, ok := arrayArg(handle); ok {
			names[i] = handle
			continue
		}

		j, err := client.FindJob(bounded, handle)
		if err != nil {
			return err
		}

		names[i] = string(j)
	}

	var arrays []api.Array
	ends, errs := make([]api.Job, len(jobs)), make([]error, len(jobs))

	for i, j := range names {
		if array, ok := arrayArg(j); ok {
			var last api.Array
			last, ends[i], errs[i] = a.waitArray(bounded, client, array)
			arrays = append(arrays, last)
		} else {
			ends[i], errs[i] = follow.Follower{Note: a.Note}.UntilEnded(
				bounded, client, id.Job(j), time.Second, a.pauseNotes())
		}

		if errors.Is(errs[i], context.DeadlineExceeded) && ctx.Err() == nil {
			errs[i] = &exit.Result{
				Code: exit.NotFinished,
				Err: fault.New(fault.Unavailable, "not_finished", "%s has not finished within %s", j, job.Duration(limit)).
					WithRemedy("it is still running; see its state with: trainyard job %s", j),
			}

			break
		}

		if errs[i] == nil && !ends[i].State.Final() {
			errs[i] = undecided(ends[i])
		}

		if errs[i] != nil {
			break
		}
	}

	result := a.followed(ctx, names, ends, errs)
	if ctx.Err() != nil {
		return result
	}

	page := listedJobs{JobPage: api.JobPage{Jobs: []api.Job{}}, Arrays: arrays}
	for _, j := range ends {
		if _, isArray := arrayArg(string(j.ID)); j.ID != "" && !isArray {
			page.Jobs = append(page.Jobs, j)
		}
	}

	return errors.Join(a.Show(page, page.names, func() error {
		for i := range page.Arrays {
			a.Note("%s: %s", page.Arrays[i].ID, countsText(&page.Arrays[i]))
		}

		for _, j := range page.Jobs {
			a.Note("%s", a.stateLine(j))
		}

		return nil
	}), result)
}

// pauseNotes returns a function that says once that a job is paused, and why: somebody has to resume it.
func (a *app) pauseNotes() func(api.Job) {
	paused := false

	return func(j api.Job) {
		if j.State == job.Paused && !paused {
			a.Note("%s", a.stateLine(j))
		}

		paused = j.State == job.Paused
	}
}

// undecided says that a job is paused until its owner decides.
func undecided(j api.Job) error {
	return &exit.Result{
		Code: exit.NotFinished,
		Err: fault.New(fault.Conflict, "job_paused", "job %s is paused until its owner decides: %s", j.ID, j.Reason).
			WithRemedy("see what can be done with: trainyard job %s", j.ID),
	}
}
