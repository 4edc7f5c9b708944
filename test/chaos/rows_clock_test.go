package chaos_test

import (
	"os"
	"slices"
	"time"
)

// clockRows are clocks that are set while everything runs.
func clockRows() []row {
	return []row{
		{number: "17", fault: "clocks of server and nodes set, by minutes and hours, both ways", play: func(w *world) {
			there := slices.Concat(w.on("n1"), w.on("n2"), w.on("n3"))

			for _, step := range []time.Duration{5 * time.Minute, -5 * time.Minute, 3 * time.Hour, -3 * time.Hour, 0} {
				for _, host := range []string{"s1", w.victim()} {
					w.setClock(host, step)
					w.sleep(2 * time.Second)
				}
			}

			w.sleep(lostAfter)
			w.awaitTicks(there)
			w.sameProcesses(there)

			// A server that starts with another clock than it stopped with.
			for _, step := range []time.Duration{2 * time.Hour, -2 * time.Hour, 0} {
				w.must(w.yard.Server().Kill())
				w.setClock("s1", step)
				w.startServer()
				w.awaitServer()
				w.sleep(2 * time.Second)
			}

			w.awaitTicks(there)
			w.sameProcesses(there)
		}},
	}
}

// setClock sets the wall clock of a host off from that of the machine: the binary reads it from a file beside itself.
func (w *world) setClock(host string, step time.Duration) {
	file := w.binary(host) + ".clock"
	w.must(os.WriteFile(file+".new", []byte(step.String()+"\n"), 0o600))
	w.must(os.Rename(file+".new", file)) // so that nobody reads half of it
}
