package chaos_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/test/chaos/evidence"
	"trainyard/test/yardtest"
)

// check compares what was acknowledged with what the yard says and what the jobs wrote down.
func (w *world) check() {
	all := w.processes()

	for _, o := range evidence.Overlaps(all) {
		if !w.thawed(o) {
			w.report(twice, "%s", o)
		}
	}

	known := map[string]bool{}
	for _, s := range w.load.acknowledged() {
		known[s.name] = true
		w.checkJob(s, s.known(processesOf(all, s.name)))
	}

	for _, p := range all {
		if !known[p.Job] && !w.load.tried(p.Job) {
			w.report(state, "%s ran and was never submitted", p)
		}
	}

	for _, name := range nodeNames {
		if !slices.Contains(w.gone, name) {
			w.awaitNode(name, ready...)
		}
	}

	w.checkGone()
}

// afterThaw is how long a program may work on when it thaws, before its supervisor notices that its lease is over.
const afterThaw = 3 * time.Second

// thawed reports whether two processes were at work at once only because one of them was frozen with its whole node
// when the other began, and worked for a moment when it thawed: nothing on a frozen node can end it.
func (w *world) thawed(o evidence.Overlap) bool {
	return slices.ContainsFunc(w.thaws, func(t thaw) bool {
		return o.First.Host == t.host && o.Second.Begun < t.at && o.First.Last < t.at+afterThaw && o.Length < afterThaw
	})
}

// checkJob checks one job: its end, its runs and its output.
func (w *world) checkJob(s *submitted, own []*evidence.Process) {
	d, err := w.load.detail(s)
	if err != nil {
		w.report(lost, "%s (%s): %v", s.name, s.id, err)
		return
	}

	if d.Name != s.name {
		w.report(lost, "%s was acknowledged as %s, which is %s", s.name, s.id, d.Name)
		return
	}

	if !d.State.Final() {
		return // reported as stuck
	}

	if d.State != s.want {
		w.report(lost, "%s (%s) ended as %s (%s), want %s", s.name, s.id, d.Status, d.Reason, s.want)
	}

	w.checkRuns(s, d, own)
	w.checkOutput(s, own)
}

// checkRuns compares the runs that the yard shows with those that took place.
func (w *world) checkRuns(s *submitted, d api.JobDetail, own []*evidence.Process) {
	for _, p := range own {
		i := slices.IndexFunc(d.Runs, func(r api.Run) bool { return string(r.ID) == p.Run })
		if i < 0 {
			w.report(state, "%s ran, the yard does not know the run", p)
			continue
		}

		if shown := d.Runs[i].Ranks[0].Node; w.address(shown) != p.Host {
			w.report(state, "%s is shown on node %s", p, shown)
		}
	}

	for _, r := range d.Runs {
		if r.State != job.RunEnded {
			w.report(state, "run %s of %s is %s although the job has ended", r.ID, s.name, r.State)
		}
	}

	if d.State == job.Succeeded && !slices.ContainsFunc(own, func(p *evidence.Process) bool {
		return p.How == evidence.End && p.Run == string(d.Runs[len(d.Runs)-1].ID)
	}) {
		w.report(state, "%s (%s) is shown as succeeded and did not come to its end", s.name, s.id)
	}
}

// address returns that of the host of a node. A node that has joined again has a number after its name.
func (w *world) address(n id.Node) string {
	name, _, _ := strings.Cut(string(n), "-")
	if h := w.host(name); h != nil {
		return h.Address
	}

	return ""
}

// checkOutput checks that each line of a job was kept once, in order, byte for byte, and that nothing else was. What a
// node that was cut off has printed is delivered some time after the end of the job.
func (w *world) checkOutput(s *submitted, own []*evidence.Process) {
	for end := time.Now().Add(w.deliveryTime()); ; w.sleep(200 * time.Millisecond) {
		got, err := w.load.output(s, end)
		if err != nil {
			w.report(logs, "read the output of %s: %v", s.name, err)
			return
		}

		missing := w.compareOutput(got, own)
		if missing == "" {
			return
		}

		if time.Now().After(end) {
			w.report(logs, "%s", missing)
			return
		}
	}
}

// deliveryTime is how long the agents may take to deliver what is left; far more than it takes. When output is known to
// be missing it is not waited for in vain again and again.
func (w *world) deliveryTime() time.Duration {
	if slices.ContainsFunc(w.found(), func(p problem) bool { return p.column == logs }) {
		return time.Second
	}

	return time.Minute
}

// compareOutput says what is wrong with the output of a job.
func (w *world) compareOutput(got output, own []*evidence.Process) string {
	for _, p := range own {
		run := id.Run(p.Run)
		lines := got.lines[run]
		delete(got.lines, run)

		if problem := w.compareLines(p, lines, got.remarked[run]); problem != "" {
			return problem
		}
	}

	for run := range got.lines {
		return fmt.Sprintf("there is output of run %s, which never took place", run)
	}

	return ""
}

// compareLines says what is wrong with the output of a process. Where a remark of the yard says that output was lost,
// lines may be missing; those that are there must be in order all the same.
func (w *world) compareLines(p *evidence.Process, lines []string, remarked bool) string {
	n := 0
	for _, line := range lines {
		for remarked && n < p.Lines && line != evidence.Line(p.Job, p.Run, n) {
			n++
		}

		if line != evidence.Line(p.Job, p.Run, n) {
			return fmt.Sprintf("%s: where line %d should be there is %q", p, n, line)
		}

		n++
	}

	// One that was killed may have printed a line that it did not note any more.
	unnoted := 1
	if p.Over() {
		unnoted = 0
	}

	if n < p.Lines-w.row.short && !remarked || n > p.Lines+unnoted {
		return fmt.Sprintf("%s printed %d lines, %d were kept, and no remark says so", p, p.Lines, n)
	}

	return ""
}

// checkGone checks that no program is left on the nodes.
func (w *world) checkGone() {
	w.until(stuck, "the end of all programs", func() string {
		found, err := yardtest.Processes(w.shared)
		w.must(err)

		if len(found) > 0 {
			return fmt.Sprintf("process %d is left: %s", found[0].PID, found[0].Command)
		}

		return ""
	})
}
