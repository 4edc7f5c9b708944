package cli

import (
	"github.com/spf13/cobra"

	"trainyard/internal/api"
)

// cancel ends jobs for good, with a grace period.
func (a *app) cancel() *cobra.Command {
	return a.changeCommand(jobChange{
		verb:  "cancel",
		short: "End jobs",
		long: `End jobs for good. A running program gets SIGTERM and its grace period to save a checkpoint, then
SIGKILL.`,
		next: "its program has its grace period to save a checkpoint",
		call: (*api.Client).CancelJob,
	})
}
