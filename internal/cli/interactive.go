package cli

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/jobfile"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// interactiveFlags are those of commands that start a job to work in.
type interactiveFlags struct {
	jobfile.Command

	name, envFile string
	env, include  []string
	priority      int
	keep          bool
}

const (
	// defaultIdle is how long a job to work in may be idle unless its owner says otherwise.
	defaultIdle = "30m"
	// startLook is how often is looked whether such a job has started.
	startLook = 300 * time.Millisecond
	// endWait bounds how long the request to cancel such a job may take.
	endWait = 10 * time.Second
)

// startFlags are the names of the flags that say what is started.
var startFlags = []string{
	"gpus", "gpu", "cpus", "memory", "workdir", "setup", "max-duration", "place", "idle", "name", "env", "env-file",
	"include", "priority", "keep",
}

func (f *interactiveFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.GPUs, "gpus", "", "`number` of GPUs of the new job")
	flags.StringVar(&f.GPU, "gpu", "", "GPU `type`, e.g. A100:80GB; separate several with commas")
	flags.StringVar(&f.CPUs, "cpus", "", "`number` of CPUs")
	flags.StringVar(&f.Memory, "memory", "", "`memory`, e.g. 32GB")
	flags.StringVar(&f.Workdir, "workdir", "", "`directory` to upload and begin in")
	flags.StringVar(&f.Setup, "setup", "", "`command` that prepares the node")
	flags.StringVar(&f.MaxDuration, "max-duration", "", "stop the job after this `duration`, e.g. 6h")
	flags.StringVar(&f.Place, "place", "", "`place` where it may run: local, cloud or any")
	flags.StringVar(&f.Idle, "idle", defaultIdle, "stop the job when it was idle for this `duration`")
	flags.StringVarP(&f.name, "name", "n", "", "`name` of the job")
	flags.StringArrayVar(&f.env, "env", nil,
		"variable for the job, `KEY=VALUE`; KEY alone takes its value from your environment; may be given several times")
	flags.StringVar(&f.envFile, "env-file", "", "`file` with lines of KEY=VALUE")
	flags.StringArrayVar(&f.include, "include", nil,
		"upload this `file` although it is ignored or looks as if it held a secret; may be given several times")
	flags.IntVar(&f.priority, "priority", 0, "`priority` from 0 to 100; higher starts first")
	flags.BoolVar(&f.keep, "keep", false, "let the job go on when you leave it")
}

// forNewJobs refuses flags of a new job where a running one is named.
func forNewJobs(cmd *cobra.Command) error {
	for _, name := range startFlags {
		if cmd.Flags().Changed(name) {
			return exit.Usagef(cmd, "--%s is for a new job: leave out the job, or the flag", name)
		}
	}

	return nil
}

// startInteractive submits a job to work in and waits until it runs. If that fails, the job is cancelled.
func (a *app) startInteractive(
	cmd *cobra.Command, c *api.Client, f *interactiveFlags, command string,
) (id.Job, error) {
	ctx := cmd.Context()

	text, err := f.File(command)
	if err != nil {
		return "", err
	}

	changes := jobfile.Changes{Name: f.name, Env: f.env, EnvFile: f.envFile}
	if cmd.Flags().Changed("priority") {
		changes.Priority = &f.priority
	}

	draft, err := a.maker().Make(text, ".", changes)
	if err != nil {
		return "", fault.WithoutPlace(err)
	}

	if draft.Workdir != "" {
		tree, err := a.scan(ctx, draft.Workdir, f.include)
		if err != nil {
			return "", err
		}

		draft.Digest = tree.Digest
		if err := a.upload(ctx, c, tree); err != nil {
			return "", err
		}
	}

	reply, err := a.send(ctx, c, draft.Request(false))
	if err != nil {
		return "", err
	}

	a.notes(reply.Notes)

	first := reply.Jobs[0]
	a.Note("%s", a.stateLine(first))

	if err := a.awaitRunning(ctx, c, first); err != nil {
		a.endInteractive(ctx, c, first.ID)

		if ctx.Err() != nil {
			return "", exit.With(exit.Interrupted)
		}

		return "", err
	}

	return first.ID, nil
}

// awaitRunning waits until a job runs.
func (a *app) awaitRunning(ctx context.Context, c *api.Client, first api.Job) error {
	note := a.stateNotes(first)

	for {
		detail, err := c.Job(ctx, first.ID)
		if err != nil && fault.KindOf(err) != fault.Unavailable { // a server that is away comes back
			return err
		}

		if err == nil {
			note(detail.Job)

			switch {
			case detail.State.Final():
				return fault.New(fault.Conflict, "job_state", "job %s has not started: it is %s: %s", first.ID, detail.Status,
					detail.Reason).WithRemedy("see what it printed with: trainyard logs %s", first.ID)
			case detail.State == job.Running:
				return nil
			}
		}

		if !clock.Sleep(ctx, startLook) {
			return ctx.Err()
		}
	}
}

// leaveInteractive ends a job to work in that its owner has left, or says how to come back. err is how they left it: a
// connection that was lost is no reason to end what they work on.
func (a *app) leaveInteractive(ctx context.Context, c *api.Client, j id.Job, keep bool, back string, err error) {
	var lost *fault.Error
	if keep || errors.As(err, &lost) && lost.Kind == fault.Unavailable {
		a.Note("\nJob %s keeps running until it is idle.\n  come back:  trainyard %s %s\n  end it:     trainyard cancel %s",
			j, back, j, j)

		return
	}

	a.endInteractive(ctx, c, j)
}

// endInteractive cancels a job, also after Ctrl-C.
func (a *app) endInteractive(ctx context.Context, c *api.Client, j id.Job) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
	defer cancel()

	last, err := c.CancelJob(own, j)

	var refused *fault.Error
	switch {
	case err == nil:
		a.Note("%s", a.stateLine(last))
	case errors.As(err, &refused) && refused.Kind == fault.Conflict: // it has ended already
	default:
		a.Note("Job %s could not be cancelled: %v\n  try again: trainyard cancel %s", j, err, j)
	}
}

// remarkLook is how often is looked whether there is something to say about a job that somebody works in.
const remarkLook = 10 * time.Second

// noteRemarks says what the owner of a job should know when it comes up, such as that it will be stopped because it is
// idle, until ctx ends.
func (a *app) noteRemarks(ctx context.Context, c *api.Client, j id.Job, say func(text string)) {
	var known []string
	first := true

	for {
		if detail, err := c.Job(ctx, j); err == nil { // otherwise the next look may tell
			for _, text := range detail.Remarks {
				if !first && !slices.Contains(known, text) {
					say(text)
				}
			}

			known, first = detail.Remarks, false
		}

		if !clock.Sleep(ctx, remarkLook) {
			return
		}
	}
}
