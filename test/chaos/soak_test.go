package chaos_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/store/storetest"
	"trainyard/test/netlab"
)

var (
	soakFlag  = flag.Duration("soak", 0, "break a yard at random for this long")
	seedFlag  = flag.Uint64("seed", 0, "seed of all chances of the soak; 0 for one that is made up and printed")
	jobsFlag  = flag.Int("jobs", 2000, "jobs of the soak")
	storeFlag = flag.String("store", postgres, "store of the soak")
)

// TestSoak breaks one yard at random, in all ways, while many jobs flow.
func TestSoak(t *testing.T) {
	if unavailable != nil {
		t.Skip(unavailable)
	}

	if *soakFlag == 0 {
		t.Skip("takes long: make soak")
	}

	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1_000_000
	}

	t.Logf("seed %d, %s, %d jobs; the same again: make soak SEED=%d SOAK=%s", seed, *soakFlag, *jobsFlag, seed, *soakFlag)

	s := &soak{injected: map[string]int{}, seed: seed}
	r := row{
		number: "soak", fault: "random", calm: true, short: inPipe, disks: nodeDisks(), play: s.play, lasts: *soakFlag,
	}
	w := newWorld(t, r, *storeFlag)
	w.load.cpus = "0.25" // so that many run at a time
	w.perform()

	if w.missing != nil {
		storetest.SkipPostgres(t, w.missing)
	}

	for _, p := range w.found() {
		t.Errorf("%s: %s", p.column, p.text)
	}

	t.Log(s.report(w))
}

// soak is a yard under random faults.
type soak struct {
	seed uint64

	mu       sync.Mutex
	injected map[string]int
}

// injection is a kind of fault: it breaks something for a while and heals it.
type injection struct {
	name string
	do   func(w *world, rng *rand.Rand, d time.Duration)
}

// play lets faults of the nodes and faults of server and store happen beside each other, one of each at a time.
func (s *soak) play(w *world) {
	var tasks sync.WaitGroup

	end := time.Now().Add(*soakFlag)
	for n, kinds := range [][]injection{nodeFaults(), serverFaults(w.store)} {
		rng := rand.New(rand.NewPCG(s.seed, uint64(n)))

		// A task ends with must, too: the row is then reported as broken.
		tasks.Go(func() {
			for time.Now().Before(end) {
				k := kinds[rng.IntN(len(kinds))]
				d := time.Duration(rng.Int64N(int64(lostAfter * 3 / 2)))
				w.t.Logf("%s for %s", k.name, d.Round(time.Millisecond))
				k.do(w, rng, d)

				s.mu.Lock()
				s.injected[k.name]++
				s.mu.Unlock()

				w.sleep(time.Second + time.Duration(rng.Int64N(int64(4*time.Second))))
			}
		})
	}

	s.submit(w, end)
	tasks.Wait()
}

// submit spreads the jobs over the time.
func (s *soak) submit(w *world, end time.Time) {
	rng := rand.New(rand.NewPCG(s.seed, 100))
	every := time.Until(end) / time.Duration(*jobsFlag)

	for n := range *jobsFlag {
		next := time.Now().Add(every)
		flags := fmt.Sprintf("-lines %d -every 100ms", 1+rng.IntN(40))

		if _, err := w.load.submit(fmt.Sprintf("job%d", n+1), flags); err != nil {
			w.report(lost, "submit: %v", err)
			return
		}

		w.sleep(time.Until(next))
	}
}

// report says what was injected and what came of it.
func (s *soak) report(w *world) string {
	var b strings.Builder

	total := 0
	for _, name := range slices.Sorted(maps.Keys(s.injected)) {
		fmt.Fprintf(&b, "%5d × %s\n", s.injected[name], name)
		total += s.injected[name]
	}

	runs := w.processes()
	fmt.Fprintf(&b, "%5d faults in all, %d jobs in %d runs, store %s, seed %d\n",
		total, len(w.load.acknowledged()), len(runs), w.store, s.seed)

	if len(w.found()) == 0 {
		b.WriteString("every promise held: no job ran twice, none was lost, none is stuck, " +
			"every log is exact, what was shown is true")
	} else {
		fmt.Fprintf(&b, "%d promises were broken", len(w.found()))
	}

	return "injected:\n" + b.String()
}

func anyNode(rng *rand.Rand) string { return nodeNames[rng.IntN(len(nodeNames))] }

// linkFault breaks the link of a node with rules.
func linkFault(name string, rules ...netlab.Rule) injection {
	return injection{name, func(w *world, rng *rand.Rand, d time.Duration) {
		n := anyNode(rng)
		w.breakLink(n, rules...)
		w.sleep(d)
		w.heal(n)
	}}
}

// stopFault stops processes of a node and lets them continue.
func stopFault(name string, kinds ...string) injection {
	return injection{name, func(w *world, rng *rand.Rand, d time.Duration) {
		n := anyNode(rng)
		pids := w.pids(n, kinds...)
		w.signal(syscall.SIGSTOP, pids...)
		w.sleep(d)

		if slices.Contains(kinds, aProgram) {
			w.noteThaw(n)
		}

		w.signal(syscall.SIGCONT, pids...)
	}}
}

// nodeFaults are those of one node and its link.
func nodeFaults() []injection {
	return []injection{
		linkFault("link of a node cut", netlab.Cut()...),
		linkFault("what a node sends dropped", netlab.Drop(netlab.Out)),
		linkFault("what a node receives dropped", netlab.Drop(netlab.In)),
		linkFault("30 % of a node's packets lost", netlab.Lose(30)...),
		{"link of a node down", func(w *world, rng *rand.Rand, d time.Duration) {
			n := anyNode(rng)
			w.must(w.host(n).Unplug())
			w.sleep(d)
			w.heal(n)
		}},
		stopFault("agent frozen", anAgent),
		stopFault("node frozen", anAgent, aSupervisor, aProgram),
		{"agent killed", func(w *world, rng *rand.Rand, d time.Duration) {
			n := anyNode(rng)
			w.must(w.agents[n].Kill())
			w.sleep(d)
			w.startAgent(n)
		}},
		{"supervisors killed", func(w *world, rng *rand.Rand, _ time.Duration) {
			w.signal(syscall.SIGKILL, w.pids(anyNode(rng), aSupervisor)...)
		}},
		{"agent and supervisors killed", func(w *world, rng *rand.Rand, d time.Duration) {
			n := anyNode(rng)
			w.must(w.agents[n].Kill())
			w.signal(syscall.SIGKILL, w.pids(n, aSupervisor)...)
			w.sleep(d)
			w.startAgent(n)
		}},
		{"disk of a node full", func(w *world, rng *rand.Rand, d time.Duration) {
			free := w.fill(anyNode(rng))
			w.sleep(d)
			free()
		}},
		{"disk of a node full, and its link cut", func(w *world, rng *rand.Rand, d time.Duration) {
			n := anyNode(rng)
			free := w.fill(n)
			w.breakLink(n, netlab.Cut()...)
			w.sleep(d)
			w.heal(n)
			free()
		}},
	}
}

// serverFaults are those of the server and its store.
func serverFaults(store string) []injection {
	kinds := []injection{
		{"server killed", func(w *world, _ *rand.Rand, d time.Duration) {
			w.must(w.yard.Server().Kill())
			w.sleep(d)
			w.startServer()
			w.awaitServer()
		}},
		{"server frozen", func(w *world, _ *rand.Rand, d time.Duration) {
			pid := w.yard.Server().PID()
			w.signal(syscall.SIGSTOP, pid)
			w.sleep(d)
			w.signal(syscall.SIGCONT, pid)
		}},
		{"connections of the server reset", func(w *world, _ *rand.Rand, d time.Duration) {
			w.breakLink("s1", netlab.Reset("7443")...)
			w.sleep(d)
			w.heal("s1")
		}},
		{"30 % of the server's packets lost", func(w *world, _ *rand.Rand, d time.Duration) {
			w.breakLink("s1", netlab.Lose(30)...)
			w.sleep(d)
			w.heal("s1")
		}},
	}

	if store != postgres {
		return kinds
	}

	return append(kinds,
		injection{"PostgreSQL killed", func(w *world, _ *rand.Rand, d time.Duration) {
			w.must(w.db.Kill())
			w.sleep(d)
			w.startDatabase()
		}},
		injection{"PostgreSQL cut off", func(w *world, _ *rand.Rand, d time.Duration) {
			w.severDatabase(d)
		}},
		injection{"PostgreSQL's open connections dropped", func(w *world, _ *rand.Rand, d time.Duration) {
			w.dropDatabaseFlows()
			w.sleep(d)
			w.heal("s1")
		}},
	)
}
