package chaos_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/quantile"
	"trainyard/internal/store/storetest"
	"trainyard/test/bench/report"
	"trainyard/test/netlab"
	"trainyard/test/yardtest"
)

var (
	failoversFlag = flag.Int("failovers", 0, "take the lead from a server this many times; 0 for 100 with -all")
	outFlag       = flag.String("out", "", "write the figures of the failovers to `file`")
)

// TestFailovers takes the lead from one of two servers again and again, while clients write and jobs flow.
func TestFailovers(t *testing.T) {
	if unavailable != nil {
		t.Skip(unavailable)
	}

	times := *failoversFlag
	if times == 0 && *allFlag {
		times = 100
	}

	if times == 0 {
		t.Skip("takes long: make test-chaos or make bench-failover")
	}

	origin, err := report.Begin(t.Context(), *outFlag, fmt.Sprintf("%d failovers", times), time.Now())
	if err != nil {
		t.Fatal(err)
	}

	f := &failovers{times: times}
	r := row{
		number: "failover", fault: "leader killed, frozen or cut off", standby: true, calm: true, play: f.play,
		lasts: time.Duration(times) * time.Minute,
	}
	w := newWorld(t, r, postgres)
	w.load.cpus = "0.25"
	w.perform()

	if w.missing != nil {
		storetest.SkipPostgres(t, w.missing)
	}

	broken := map[string]int{}
	for _, p := range w.found() {
		t.Errorf("%s: %s", p.column, p.text)
		broken[p.column]++
	}

	if broken[harness] > 0 {
		return
	}

	figures := map[string]float64{
		"failovers":      float64(len(f.took)),
		"failover_s_p50": quantile.NearestRank(f.seconds(), 0.5),
		"failover_s_p99": quantile.NearestRank(f.seconds(), 0.99),
		"writes":         float64(len(w.load.acknowledged())),
		"writes_lost":    float64(broken[lost]),
		"runs_twice":     float64(broken[twice]),
	}

	t.Log(f.table(figures))

	if *outFlag != "" {
		r := report.Report{Origin: origin, Figures: figures}
		if err := r.Save(*outFlag); err != nil {
			t.Fatal(err)
		}
	}
}

// failovers is a yard of two servers that lose the lead in turn.
type failovers struct {
	times int
	took  []failover
}

// failover is one change of the lead.
type failover struct {
	how  string
	took time.Duration // from the fault to the first write that is acknowledged by the other server
}

// writers is how many clients write all the time, and writeEvery how often each does.
const (
	writers    = 2
	writeEvery = 500 * time.Millisecond
)

func (f *failovers) play(w *world) {
	var tasks sync.WaitGroup

	stop := make(chan struct{})
	for n := range writers {
		tasks.Go(func() { write(w, n, stop) })
	}

	for n := range f.times {
		if !f.once(w, n) {
			break
		}
	}

	close(stop)
	tasks.Wait()
}

// write submits jobs until the end.
func write(w *world, writer int, stop <-chan struct{}) {
	for n := 1; ; n++ {
		if _, err := w.load.submit(fmt.Sprintf("write%d-%d", writer, n), "-lines 5 -every 100ms"); err != nil {
			w.report(lost, "submit: %v", err)
			return
		}

		select {
		case <-stop:
			return
		case <-time.After(writeEvery):
		}
	}
}

// once takes the lead from the server that has it, and reports whether the other took it.
func (f *failovers) once(w *world, n int) bool {
	leader, other := w.leaderAndStandby()
	if leader == nil {
		return false
	}

	how := []string{"killed", "frozen", "cut off"}[n%3]
	begun := time.Now()

	switch how {
	case "killed":
		w.must(leader.Server().Kill())
	case "frozen":
		w.signal(syscall.SIGSTOP, leader.Server().PID())
	case "cut off":
		w.breakLink(w.nameOf(leader), netlab.Cut()...)
	}

	if !w.writeThrough(other, fmt.Sprintf("probe%d", n)) {
		return false
	}

	f.took = append(f.took, failover{how, time.Since(begun)})
	w.t.Logf("failover %d: leader %s %s, first write after %.2f s",
		n+1, w.nameOf(leader), how, time.Since(begun).Seconds())

	switch how {
	case "frozen":
		w.signal(syscall.SIGCONT, leader.Server().PID())
	case "cut off":
		w.heal(w.nameOf(leader))
	}

	w.revive(leader)

	return true
}

// writeThrough submits a job to one server only, until it is acknowledged.
func (w *world) writeThrough(server *yardtest.Yard, name string) bool {
	c, err := w.yard.ClientAt(server.Address, w.yard.Admin())
	w.must(err)

	defer c.Close()

	only := &load{w: w, end: make(chan struct{}), cpus: w.load.cpus, clients: []*api.Client{c}, patience: time.Second}
	time.AfterFunc(patience, func() { close(only.end) })

	s, err := only.submit(name, "-lines 5 -every 100ms")
	if err != nil {
		w.report(stuck, "no write was acknowledged by the standby: %v", err)
		return false
	}

	w.load.adopt(s)

	return true
}

// revive brings a server back that has lost the lead: as a standby if it still runs, else it is started again.
func (w *world) revive(server *yardtest.Yard) {
	w.until(stuck, "server "+w.nameOf(server)+" to come back", func() string {
		select {
		case <-server.Server().Gone():
			w.start(server)
		default:
		}

		if ready, why := w.answers(server); !ready {
			return why
		}

		return ""
	})
}

// answers reports whether a server answers requests, itself or by the leader.
func (w *world) answers(server *yardtest.Yard) (ready bool, why string) {
	c, err := w.yard.ClientAt(server.Address, w.yard.Admin())
	w.must(err)

	defer c.Close()

	ctx, cancel := context.WithTimeout(w.ctx, answerTime)
	defer cancel()

	if _, err := c.Whoami(ctx); err != nil {
		return false, err.Error()
	}

	return true, ""
}

// leaderAndStandby finds out which server leads.
func (w *world) leaderAndStandby() (leader, standby *yardtest.Yard) {
	w.until(stuck, "one leader", func() string {
		first, second := w.leads(w.yard), w.leads(w.second)

		switch {
		case first && second:
			return "both servers lead"
		case first:
			leader, standby = w.yard, w.second
		case second:
			leader, standby = w.second, w.yard
		default:
			return "no server leads"
		}

		return ""
	})

	return leader, standby
}

// leads reports whether a server says that it leads.
func (w *world) leads(server *yardtest.Yard) bool {
	text, err := server.Readiness(w.ctx)

	return err == nil && !strings.HasPrefix(text, "standby")
}

// nameOf is the host of a server.
func (w *world) nameOf(server *yardtest.Yard) string {
	if server == w.yard {
		return "s1"
	}

	return "s2"
}

// start starts a server on its host.
func (w *world) start(server *yardtest.Yard) {
	host := w.nameOf(server)
	server.Binary = w.binary(host)
	w.must(w.host(host).Do(server.StartServer))
}

// openSecond starts the second server, on the same database and data as the first.
func (w *world) openSecond() {
	folder := filepath.Join(w.folder, "s2")
	w.must(os.Mkdir(folder, 0o700))
	w.must(os.Symlink(w.data("s1"), filepath.Join(folder, "server")))

	w.second = &yardtest.Yard{Folder: folder, Store: w.yard.Store, Address: w.host("s2").Address + ":7443"}
	w.second.Flags = w.serverFlags(w.second.Address)
	w.start(w.second)
}

// seconds are the times of all failovers, in order of length.
func (f *failovers) seconds() []float64 {
	all := make([]float64, 0, len(f.took))
	for _, t := range f.took {
		all = append(all, t.took.Seconds())
	}

	slices.Sort(all)

	return all
}

// table shows the figures.
func (f *failovers) table(figures map[string]float64) string {
	byKind := map[string][]float64{}
	for _, t := range f.took {
		byKind[t.how] = append(byKind[t.how], t.took.Seconds())
	}

	lines := []string{"| leader | failovers | p50 s | p99 s |", "| --- | ---: | ---: | ---: |"}
	for _, how := range []string{"killed", "frozen", "cut off"} {
		if all := byKind[how]; len(all) > 0 {
			slices.Sort(all)
			lines = append(lines, fmt.Sprintf("| %s | %d | %.2f | %.2f |",
				how, len(all), quantile.NearestRank(all, 0.5), quantile.NearestRank(all, 0.99)))
		}
	}

	lines = append(lines, fmt.Sprintf("| all | %.0f | %.2f | %.2f |",
		figures["failovers"], figures["failover_s_p50"], figures["failover_s_p99"]))
	lines = append(lines, fmt.Sprintf("%.0f writes acknowledged, %.0f lost, %.0f jobs ran twice",
		figures["writes"], figures["writes_lost"], figures["runs_twice"]))

	return "failovers\n" + strings.Join(lines, "\n")
}
