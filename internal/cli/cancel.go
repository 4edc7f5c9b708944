package cli

import (
	"github.com/spf13/cobra"

	"trainyard/internal/api"
)

// cancel ends jobs for good, with a grace period.
func (a *app) cancel() *cobra.Command {
	return a.changeCommand(jobChange{
		verb:  "cancel",
		short: "Cancel jobs",
		long: `Cancel jobs. A running program gets SIGTERM and, after its grace period to save a checkpoint,
SIGKILL.`,
		next: "its program has its grace period to save a checkpoint",
		ends: true,
		call: (*api.Client).CancelJob,
	})
}
