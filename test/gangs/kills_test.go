package gangs_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/job"
	"trainyard/test/yardtest"
)

var (
	killsFlag = flag.Int("kills", 9, "how often server or agent is killed while a gang starts")
	seedFlag  = flag.Uint64("seed", 1, "seed of the moments")
)

// begun counts how often the programs wrote down that they began: by job, run and rank.
func (w *world) begun() map[string]int {
	w.t.Helper()

	text, err := os.ReadFile(filepath.Join(w.shared, "begun"))
	w.must(err)

	counts := map[string]int{}
	for line := range strings.Lines(string(text)) {
		counts[strings.TrimSpace(line)]++
	}

	return counts
}

// kill ends the server or an agent as a power cut would, and starts it again.
func (w *world) kill(victim string) {
	w.t.Helper()

	if victim == "s" {
		w.must(w.Server().Kill())
		w.startServer()
		w.must(w.AwaitReady(w.ctx))

		return
	}

	w.must(w.agents[victim].Kill())
	w.startAgent(victim)
}

// clean reports whether no supervisor of a run is left on the machine.
func (w *world) clean() bool {
	all, err := yardtest.Processes(w.Folder)
	w.must(err)

	for _, p := range all {
		if strings.Contains(p.Command, " supervise ") {
			return false
		}
	}

	return true
}

// TestKillsWhileAGangStarts kills the server or an agent at a random moment after each submission. Each rank of each
// gang begins once, in the first run of its job: nothing is lost and nothing runs twice.
func TestKillsWhileAGangStarts(t *testing.T) {
	w := newWorld(t, 2, false)
	random := rand.New(rand.NewPCG(*seedFlag, 0))
	victims := []string{"s", "n1", "n2"}

	for i := range *killsFlag {
		j := w.submit(fmt.Sprintf("gang-%d", i), fmt.Sprintf(`
run: echo $TRAINYARD_RUN $NODE_RANK >> %s/begun
resources: {nodes: 2, cpus: 1}
`, w.shared))

		time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
		w.kill(victims[i%len(victims)])

		d := w.ends(j, job.Succeeded)
		if len(d.Runs) != 1 {
			t.Errorf("job %s had %d runs", j, len(d.Runs))
		}

		for rank := range 2 {
			if n := w.begun()[fmt.Sprintf("%s %d", d.Runs[0].ID, rank)]; n != 1 {
				t.Errorf("rank %d of %s began %d times", rank, d.Runs[0].ID, n)
			}
		}
	}

	w.await("no process is left", w.clean)
}

// TestKillsWhileRanksWait kills the server and all agents while one rank waits for the other.
func TestKillsWhileRanksWait(t *testing.T) {
	w := newWorld(t, 2, false)
	open := filepath.Join(w.shared, "open")
	j := w.submit("it", fmt.Sprintf(`
setup: if [ $NODE_RANK = 1 ]; then until [ -e %s ]; do sleep 0.1; done; fi
run: echo $TRAINYARD_RUN $NODE_RANK >> %s/begun
resources: {nodes: 2, cpus: 1}
`, open, w.shared))

	ready := func() bool {
		return strings.Contains(w.command("job", string(j)), "ready, waiting for the other ranks")
	}
	w.await("a rank waits for the other", ready)

	for _, victim := range []string{"n1", "n2", "s"} {
		w.kill(victim)
	}

	w.await("it still waits", ready)

	if _, err := os.Stat(filepath.Join(w.shared, "begun")); err == nil {
		t.Fatal("a program began before all ranks were ready")
	}

	w.must(os.WriteFile(open, nil, 0o600))
	w.kill("s")

	d := w.ends(j, job.Succeeded)
	if got := w.begun(); len(d.Runs) != 1 || len(got) != 2 || got["j1.1 0"] != 1 || got["j1.1 1"] != 1 {
		t.Errorf("%d runs, which began %v", len(d.Runs), got)
	}

	w.await("no process is left", w.clean)
}
