package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/jobfile"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/spec"
)

// rerun submits a job again.
func (a *app) rerun() *cobra.Command {
	var f submitFlags
	var changes []string
	cmd := &cobra.Command{
		Use:   "rerun JOB",
		Short: "Submit a job again, with changes",
		Long: `Submit a job again as a new job: its job file as the server has it, with the files of its working
directory as they were then. --set changes fields of the job file, by their path: resources.gpus=4, params.lr=0.1,
env.SEED=7, name=second; an empty value removes one. Otherwise as submit: the plan is shown, the job is followed,
and its exit code is that of the command.

A deadline that has passed and jobs of its own file that it needed are left out, which is said. ` + handlesHelp,
		Example: `  trainyard rerun j7
  trainyard rerun @last --set params.lr=0.3 --set env.LR=0.3
  trainyard rerun resnet50@last --set resources.gpus=4 --dry-run`,
		Args:              exit.Args(1, 1, "job"),
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var draft *jobfile.Draft
			var name id.Job

			err := a.withClient(func(client *api.Client) (err error) {
				name, draft, err = a.draftAgain(cmd.Context(), client, args[0], changes)
				return err
			})
			if err != nil {
				return err
			}

			return filesRemoved(name, a.doSubmit(cmd.Context(), draft, f))
		},
	}

	flags := cmd.Flags()
	flags.StringArrayVar(&changes, "set", nil, "change a field of the job file, `KEY=VALUE`; may be given several times")
	flags.BoolVarP(&f.detach, "detach", "d", false, "submit without following the job")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show the plan and submit nothing")
	flags.BoolVar(&f.raw, "raw", false, rawHelp)
	a.YesFlag(cmd)
	a.OutputFlag(cmd)
	a.QuietFlag(cmd)

	return cmd
}

// draftAgain makes a submission of a job that was submitted before.
func (a *app) draftAgain(
	ctx context.Context,
	client *api.Client,
	handle string,
	changes []string,
) (id.Job, *jobfile.Draft, error) {
	array, whole := arrayArg(handle)
	if whole { // its elements have the same file
		found, err := client.Array(ctx, array)
		if err != nil {
			return "", nil, err
		}

		handle = string(found.First)
	}

	detail, err := client.Job(ctx, id.Job(handle))
	if err != nil {
		return "", nil, err
	}

	var s job.Spec
	if err := json.Unmarshal(detail.Spec, &s); err != nil {
		return "", nil, fmt.Errorf("read the job file of %s: %w", detail.ID, err)
	}

	if len(s.Env) > 0 { // its values are shown to the owner alone, and not by themselves
		detail, err = client.JobWithEnv(ctx, detail.ID)
		if err != nil {
			return "", nil, err
		}
		if err := json.Unmarshal(detail.Spec, &s); err != nil {
			return "", nil, fmt.Errorf("read the job file of %s: %w", detail.ID, err)
		}
	}

	if detail.Index != nil && !whole {
		spec.OfElement(&s, detail.Value)
		a.Note("note: %s was element %d of %s; it is submitted again as an array of its value alone", detail.ID,
			*detail.Index, detail.Array)
	}

	left := spec.Again(&s, a.Clock.Now())
	if left.Deadline {
		a.Note("note: the deadline of %s has passed and is left out; give another with --set deadline=…", detail.ID)
	}
	if len(left.Needs) > 0 {
		a.Note("note: %s needed %s of its file, which is left out", detail.ID, few(left.Needs))
	}

	text, err := spec.Set(s, changes)
	if err != nil {
		return "", nil, err
	}

	draft, err := a.maker().Make(text, ".", jobfile.Changes{})
	if err != nil {
		return "", nil, fault.WithoutPlace(err)
	}

	// The files are at the server. Those in this folder may be others by now.
	draft.Workdir, draft.Digest = "", detail.Workdir

	return detail.ID, draft, nil
}

// filesRemoved says what it means if the files of a job are not at the server any more.
func filesRemoved(j id.Job, err error) error {
	var refused *fault.Error
	if !errors.As(err, &refused) || refused.Code != "workdir_missing" {
		return err
	}

	return fault.New(fault.Conflict, "workdir_removed", "the files of job %s are not stored for you any more", j).
		WithRemedy("submit the job file again from its folder: trainyard submit job.yaml").WithCause(err)
}
