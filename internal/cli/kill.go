package cli

import (
	"github.com/spf13/cobra"

	"trainyard/internal/api"
)

// kill ends jobs at once.
func (a *app) kill() *cobra.Command {
	return a.changeCommand(jobChange{
		verb:  "kill",
		short: "End jobs at once",
		long:  `End jobs for good and at once, with SIGKILL: the program cannot save a checkpoint. Prefer cancel.`,
		next:  "its processes are killed",
		call:  (*api.Client).KillJob,
	})
}
