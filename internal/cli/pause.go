package cli

import (
	"github.com/spf13/cobra"

	"trainyard/internal/api"
)

// pause takes jobs off their nodes until they are resumed.
func (a *app) pause() *cobra.Command {
	return a.changeCommand(jobChange{
		verb:  "pause",
		short: "Stop jobs so that they can be resumed",
		long: `Stop jobs and free their resources. A running program gets SIGTERM and its grace period to save a
checkpoint. A paused job keeps its id and starts a new run when it is resumed.`,
		next: "it frees its resources once it has stopped",
		call: (*api.Client).PauseJob,
	})
}
