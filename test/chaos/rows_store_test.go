package chaos_test

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"trainyard/test/netlab"
)

// storeRows are the faults of PostgreSQL and of yards with two servers.
func storeRows() []row {
	pg := []string{postgres}

	return []row{
		{number: "31", fault: "PostgreSQL killed, for a while and for long", stores: pg, play: func(w *world) {
			there := slices.Concat(w.on("n1"), w.on("n2"), w.on("n3"))

			for _, d := range []time.Duration{lostAfter / 3, beyond} {
				w.must(w.db.Kill())
				w.sleep(d)
				w.startDatabase()
				w.awaitServer()
			}

			w.awaitTicks(there)
			w.sameProcesses(there)
		}},
		{number: "32", fault: "PostgreSQL cut off for half of lost-after", stores: pg, play: func(w *world) {
			w.severDatabase(lostAfter / 2)
		}},
		{number: "33", fault: "PostgreSQL cut off for longer than lost-after", stores: pg, play: func(w *world) {
			w.severDatabase(beyond)
		}},
		{number: "34", fault: "PostgreSQL's open connections dropped, new ones pass", stores: pg, play: playDeadFlows},
	}
}

func (w *world) severDatabase(d time.Duration) {
	w.breakLink("db", netlab.Cut()...)
	w.sleep(d)
	w.heal("db")
	w.awaitServer()
}

// playDeadFlows lets the yard recover by itself while the connections stay dead, and in time: its runs go on.
func playDeadFlows(w *world) {
	there := slices.Concat(w.on("n1"), w.on("n2"), w.on("n3"))
	w.dropDatabaseFlows()
	w.sleep(beyond)
	w.awaitServer()
	w.awaitTicks(there)
	w.sameProcesses(there)
	w.heal("s1")
}

// dropDatabaseFlows drops what belongs to the connections to PostgreSQL that are open now, as a firewall does that was
// restarted.
func (w *world) dropDatabaseFlows() {
	ports, err := w.host("s1").Connections(netip.MustParseAddrPort(w.host("db").Address + ":5432"))
	w.must(err)

	if len(ports) == 0 {
		return
	}

	list := make([]string, 0, len(ports))
	for _, p := range ports {
		list = append(list, strconv.Itoa(p))
	}

	set := "{ " + strings.Join(list, ", ") + " }"
	w.breakLink("s1",
		netlab.Rule{Direction: netlab.Out, Match: "tcp sport " + set, Verdict: "drop"},
		netlab.Rule{Direction: netlab.In, Match: "tcp dport " + set, Verdict: "drop"},
	)
}
