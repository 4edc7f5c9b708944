package fleet

import (
	"fmt"
	"time"

	"trainyard/internal/id"
)

// Agent is one start of an agent's process, and where it runs. A node has one at a time; whoever else presents the
// node's certificate works on a copy of its data directory.
type Agent struct {
	Node    id.Node
	Process string        // random, of this start
	Machine string        // identifies the machine over its boots; "" if it has no such mark
	Boot    string        // identifies this boot of the machine
	Folder  string        // identifies the data directory on the machine, also when it is renamed; a copy has another
	Started time.Duration // when it started, since the machine's boot
	Host    string        // name of the machine, for people
	Path    string        // of the data directory, for people
	Since   time.Time     // when it was admitted
}

// SamePlace reports whether two processes are of one data directory in one boot of a machine.
func (a *Agent) SamePlace(b *Agent) bool {
	return a.Machine == b.Machine && a.Boot == b.Boot && a.Folder == b.Folder
}

// Place says where an agent runs, for people.
func (a *Agent) Place() string {
	return fmt.Sprintf("host %s in %s (machine %.8s, boot %.8s)",
		orUnknown(a.Host), orUnknown(a.Path), orUnknown(a.Machine), orUnknown(a.Boot))
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}

	return s
}
