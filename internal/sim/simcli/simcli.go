// Package simcli holds the commands that simulate: simulate, replay and recommend.
//
// They read flags, take a scenario, a trace or the history of a yard, run it through
// internal/sim, and show the outcome with the same console as the commands of internal/cli.
// They change nothing in a yard and know no adapter: the policies come from the wiring,
// which adds Commands to the root.
package simcli

import (
	"github.com/spf13/cobra"

	"trainyard/internal/cli"
	"trainyard/internal/place"
)

// Commands returns the commands. The registry has the policies that they can name.
func Commands(env cli.Env, registry place.Registry) []*cobra.Command {
	return []*cobra.Command{
		simulateCommand(env, registry),
		replayCommand(env, registry),
		recommendCommand(env, registry),
	}
}
