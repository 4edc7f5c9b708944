package cli

import (
	"github.com/spf13/cobra"

	"trainyard/internal/api"
)

// pause takes jobs off their nodes until they are resumed.
func (a *app) pause() *cobra.Command {
	return a.changeCommand(jobChange{
		verb:  "pause",
		short: "Pause jobs until they are resumed",
		long: `Stop jobs and release their resources. A running program gets SIGTERM and its grace period to save a
checkpoint. A paused job keeps its ID and starts a new run when it is resumed.`,
		next: "its resources are released once it has stopped",
		call: (*api.Client).PauseJob,
	})
}
