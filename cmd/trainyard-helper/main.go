// Command trainyard-helper is the part of trainyard that is started for every run: supervisor, watcher and the first
// process of the namespaces. `make build` embeds it in trainyard, whose agent starts it; people never do.
package main

import (
	"fmt"
	"os"

	"trainyard/internal/agent/runtime/subprocess"
)

func main() {
	status, is := subprocess.Run(os.Args, os.Stderr)
	if !is {
		_, _ = fmt.Fprintln(os.Stderr, "trainyard-helper is started by the agent of trainyard")
		status = 2
	}

	os.Exit(status)
}
