package simcli

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/sim"
	"trainyard/internal/sim/scenario"
	"trainyard/internal/sim/trace/nodes"
)

// nodeLogFlags say which recorded nodes come and go during a simulation: idle nodes of a
// batch system, or spot instances.
type nodeLogFlags struct {
	file, format, each string
	from               lasting

	count  int        // of nodes that are taken from the log
	sample fleet.Node // what each of them is

	mu      sync.Mutex // readers of several simulations count at once
	skipped int
}

func (l *nodeLogFlags) register(f *pflag.FlagSet) {
	var names []string
	for _, o := range nodes.Formats() {
		names = append(names, o.Name)
	}

	f.StringVar(&l.file, "node-log", "",
		"log of nodes that come and go (idle nodes, spot instances), beside or instead of --cluster; .gz is decompressed")
	f.StringVar(&l.format, "node-log-format", "",
		"format of the node log: "+strings.Join(names, ", ")+" (default: detected)")
	f.StringVar(&l.each, "log-nodes", "",
		"how many nodes of the node log to use at most and what each of them has, as COUNTxGPUxGPUS, e.g. 256xV100:16GBx6")
	f.Var(&l.from, "node-log-from", "begin the simulation at this time of the node log, e.g. 45d")
}

// check reads the flags, and says before anything is simulated what is wrong with the log.
func (l *nodeLogFlags) check(cmd *cobra.Command, skipBad bool) error {
	switch {
	case l.file == "" && (l.format != "" || l.each != "" || l.from != 0):
		return exit.Usagef(cmd, "--node-log-format, --log-nodes and --node-log-from go with --node-log")
	case l.file == "":
		return nil
	case l.each == "":
		return exit.Usagef(cmd, "--node-log requires --log-nodes, e.g. --log-nodes 256xV100:16GBx6")
	}

	all, err := scenario.Cluster(l.each, "", fleet.Local)
	if err != nil {
		return err
	}
	if strings.Contains(l.each, ",") {
		return exit.Usagef(cmd, "--log-nodes takes one kind of node, got %q", l.each)
	}

	l.count, l.sample = len(all), all[0]

	probe, err := l.open(skipBad)
	if err != nil {
		return err
	}

	if _, err := probe.Next(); err != nil {
		return fmt.Errorf("read the node log: %w", err)
	}

	if err := probe.Close(); err != nil {
		return fmt.Errorf("close the node log: %w", err)
	}

	return nil
}

// open opens the log for one simulation.
func (l *nodeLogFlags) open(skipBad bool) (*nodes.Reader, error) {
	return nodes.Open(l.file, l.format, nodes.Options{
		SkipBad: skipBad, Nodes: l.count, From: time.Duration(l.from), Node: l.node,
	})
}

// node makes a node of the log.
func (l *nodeLogFlags) node(name id.Node) fleet.Node {
	n := l.sample
	n.ID = name
	n.Inventory.GPUs = append([]fleet.GPU(nil), n.Inventory.GPUs...)

	for i := range n.Inventory.GPUs {
		n.Inventory.GPUs[i].UUID = fmt.Sprintf("%s-%d", name, i)
	}

	return n
}

// addTo lets the nodes of the log come and go in a simulation, beside those that it has.
func (l *nodeLogFlags) addTo(cfg *sim.Config, skipBad bool) error {
	if l.file == "" {
		return nil
	}

	log, err := l.open(skipBad)
	if err != nil {
		return err
	}

	changes := sim.Changes(&countedLog{log, l})
	if cfg.Changes != nil {
		changes = nodes.Merge(cfg.Changes, changes)
	}

	cfg.Changes = changes

	return nil
}

// countedLog is a reader of the log that notes how many rows it has skipped.
type countedLog struct {
	*nodes.Reader
	flags *nodeLogFlags
}

// Next returns the next change.
func (c *countedLog) Next() (sim.Change, error) {
	change, err := c.Reader.Next()

	if n := c.Skipped(); n > 0 {
		c.flags.mu.Lock()
		defer c.flags.mu.Unlock()

		c.flags.skipped = max(c.flags.skipped, n)
	}

	return change, err
}

// tell says how many rows of the log were skipped.
func (l *nodeLogFlags) tell(c *console.Console) {
	if l.skipped > 0 {
		c.Note("%s: %d rows could not be read and were skipped.", l.file, l.skipped)
	}
}
