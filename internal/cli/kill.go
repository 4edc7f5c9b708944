package cli

import (
	"github.com/spf13/cobra"

	"trainyard/internal/api"
)

// kill ends jobs at once.
func (a *app) kill() *cobra.Command {
	return a.changeCommand(jobChange{
		verb:  "kill",
		short: "Kill jobs immediately",
		long:  `Kill jobs immediately with SIGKILL: the program cannot save a checkpoint. Prefer cancel.`,
		next:  "its processes are killed",
		ends:  true,
		call:  (*api.Client).KillJob,
	})
}
