// Package subprocess runs the processes that belong to runs, apart from their programs: the supervisor of a rank, the
// first process of its namespaces, the watcher of all ranks of an agent, and those that copy files for people.
//
// Most are started for every run, so what they import is initialised for every run. The package and all that it imports
// therefore stay small. It is all that command trainyard-helper contains, which trainyard embeds and loads into memory
// when an agent starts. The package decides nothing itself.
package subprocess

import (
	"context"
	"io"
	"os"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/runtime/supervisor"
	"trainyard/internal/agent/runtime/visitor"
	"trainyard/internal/agent/runtime/watcher"
	"trainyard/internal/agent/sandbox"
)

// Run runs this process as the supervisor of a rank, as the first process of its namespaces, as the watcher of ranks or
// as a visitor that copies files, if its arguments say so, and returns its exit status. It returns false for every
// other process. main calls it before anything else is set up, and so does every test binary in which an agent starts
// runs.
func Run(args []string, stderr io.Writer) (status int, is bool) {
	switch {
	case len(args) == 2 && args[1] == sandbox.InitCommand:
		return sandbox.Init(stderr), true
	case len(args) == 3 && args[1] == rundir.Subcommand:
		return supervisor.Run(context.Background(), args[2], stderr), true
	case len(args) == 3 && args[1] == rundir.SeriesSubcommand:
		return supervisor.RunSeries(context.Background(), args[2], os.Stdin, stderr), true
	case len(args) == 3 && args[1] == rundir.WatchSubcommand:
		return watcher.Run(context.Background(), args[2], os.Stdin), true
	case len(args) == 4 && args[1] == visitor.CopyCommand:
		return visitor.CopyFiles(args[2], args[3], os.Stdin, os.Stdout, stderr), true
	}

	return 0, false
}
