package cli

import (
	"github.com/spf13/cobra"

	"trainyard/internal/api"
)

// resume puts paused jobs back into the queue.
func (a *app) resume() *cobra.Command {
	return a.changeCommand(jobChange{
		verb:  "resume",
		short: "Requeue paused jobs",
		long:  `Requeue paused jobs. They start a new run, from their checkpoint if they have one.`,
		next:  "it is queued",
		call:  (*api.Client).ResumeJob,
	})
}
