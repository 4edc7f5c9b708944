package crash_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/test/yardtest"
)

// check compares what was asked for with what the yard says and what the jobs
// wrote down.
func check(t *testing.T, y *yard, l *load) {
	t.Helper()
	client := l.clients[0]
	all := listJobs(t, client)
	rec := readRecord(t, y.shared)
	feed := checkFeed(t, l)

	known := 0
	for _, p := range l.plans {
		for _, a := range p.jobs {
			known++
			got := all[a.name]
			if len(got) != 1 || got[0].ID != a.id {
				t.Errorf("%s job %s was acknowledged as %s; the yard has %v", p.kind, a.name, a.id, got)
				continue
			}

			checkJob(t, client, p, a, rec, feed[a.id])
		}

		checkOrder(t, p, rec)
	}

	if known != len(all) {
		t.Errorf("%d jobs were submitted, the yard has %d", known, len(all))
	}

	for name := range rec.byName {
		if all[name] == nil {
			t.Errorf("job %s ran, the yard does not know it", name)
		}
	}

	checkGone(t, y)
}

// listJobs reads the whole list of jobs, by name.
func listJobs(t *testing.T, client *api.Client) map[string][]api.Job {
	t.Helper()
	all, cursor := map[string][]api.Job{}, ""
	for {
		page, err := client.Jobs(t.Context(), api.JobFilter{Page: api.Page{Cursor: cursor, Limit: 500}})
		if err != nil {
			t.Fatalf("list jobs: %v", err)
		}

		for _, j := range page.Jobs {
			all[j.Name] = append(all[j.Name], j)
		}

		cursor = page.Next
		if cursor == "" {
			return all
		}
	}
}

// checkFeed reads the whole feed, compares it with what was followed live, and
// returns the entries of each job.
func checkFeed(t *testing.T, l *load) map[id.Job][]api.Event {
	t.Helper()
	var events []api.Event
	for {
		cursor := strconv.Itoa(len(events)) // entries are numbered from 1 without a gap
		page, err := l.clients[0].Events(t.Context(), api.EventFilter{Page: api.Page{Cursor: cursor, Limit: 500}})
		if err != nil {
			t.Fatalf("read the feed: %v", err)
		}

		if len(page.Events) == 0 {
			break
		}

		events = append(events, page.Events...)
	}

	byJob := map[id.Job][]api.Event{}
	for i, ev := range events {
		if ev.Seq != uint64(i+1) {
			t.Fatalf("entry %d of the feed has the number %d", i+1, ev.Seq)
		}

		switch ev.Kind {
		case "yard.bug", "node.suspect", "node.lost":
			t.Errorf("entry %d of the feed: %s %s: %s", ev.Seq, ev.Kind, ev.Node, ev.Reason)
		}

		byJob[ev.Job] = append(byJob[ev.Job], ev)
	}

	for end := time.Now().Add(drainTime); l.watch.last() < uint64(len(events)) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}

	l.stop()
	l.watch.mu.Lock()
	defer l.watch.mu.Unlock()

	followed := l.watch.events[:min(len(l.watch.events), len(events))]
	for i := range events {
		if i >= len(followed) {
			t.Errorf("the feed that was followed ends at entry %d of %d", len(followed), len(events))
			break
		}

		if diff := cmp.Diff(events[i], followed[i]); diff != "" {
			t.Errorf("entry %d of the feed was otherwise when it was followed:\n%s", i+1, diff)
			break
		}
	}

	return byJob
}

// checkJob checks one job: its end, its way there, its runs and its output.
func checkJob(t *testing.T, client *api.Client, p *plan, a *asked, rec *record, events []api.Event) {
	t.Helper()
	d, err := client.Job(t.Context(), a.id)
	if err != nil {
		t.Errorf("%s job %s: %v", p.kind, a.id, err)
		return
	}

	fail := func(format string, args ...any) {
		t.Errorf("%s job %s (%s): %s", p.kind, a.id, a.name, fmt.Sprintf(format, args...))
	}
	if d.State != a.want {
		fail("ended as %s (%s), want %s", d.State, d.Reason, a.want)
	}

	if want := max(0, a.runs); a.runs != 0 && len(d.Runs) != want {
		fail("had %d runs, want %d: %s", len(d.Runs), want, describe(d.Runs))
	}

	for _, problem := range checkPath(d.State, events) {
		fail("%s", problem)
	}

	checkRuns(t, a, d, rec, fail)
	read := readOutput(t, client, a.id)
	checkOutput("read", read, a, rec, fail)

	if a.printed != nil {
		checkOutput("followed", a.printed, a, rec, fail)
	}
}

func describe(runs []api.Run) string {
	var parts []string
	for _, r := range runs {
		parts = append(parts, fmt.Sprintf("%s %s %s (%s)", r.ID, r.State, r.Cause, r.Reason))
	}

	return strings.Join(parts, "; ")
}

// checkPath checks that a job went through its states as the table of
// transitions says and reached one last state once.
func checkPath(last job.State, events []api.Event) (problems []string) {
	at := job.State("")
	for _, ev := range events {
		to, ok := jobState(ev)
		if !ok {
			continue
		}

		if at == "" {
			if to != job.Pending {
				problems = append(problems, fmt.Sprintf("began as %s", to))
			}
		} else if job.State(ev.From) != at || !follows(at, to) {
			problems = append(problems, fmt.Sprintf("was %s, and then went from %s to %s (entry %d)", at, ev.From, to, ev.Seq))
		}

		at = to
	}

	if at != last {
		problems = append(problems, fmt.Sprintf("is %s, the feed says %s", last, at))
	}

	return problems
}

// follows reports whether some event leads from one state to the other.
func follows(from, to job.State) bool {
	return slices.ContainsFunc(job.Events(), func(ev job.Event) bool {
		after, err := from.After(ev)
		return err == nil && after == to
	})
}

// checkRuns compares the runs that the yard knows with those that were carried out.
func checkRuns(t *testing.T, a *asked, d api.JobDetail, rec *record, fail func(string, ...any)) {
	t.Helper()
	good := map[int]int{}

	for _, e := range rec.byName[a.name] {
		i := slices.IndexFunc(d.Runs, func(r api.Run) bool { return r.ID == e.run })
		if i < 0 || e.rank >= len(d.Runs[i].Ranks) {
			fail("rank %d of run %s was carried out, the yard has no such run", e.rank, e.run)
			continue
		}

		if e.how == "end" && e.code == 0 {
			good[e.rank]++
		}

		rank := d.Runs[i].Ranks[e.rank]
		if e.how == "end" && (rank.ExitCode == nil && e.code != 0 || rank.ExitCode != nil && *rank.ExitCode != e.code) {
			fail("rank %d of run %s ended with code %d, the yard says %v", e.rank, e.run, e.code, rank.ExitCode)
		}

		for _, other := range rec.byName[a.name] {
			if other.run != e.run && !e.over(other) && !other.over(e) {
				fail("run %s and run %s were at once", e.run, other.run)
			}
		}
	}

	for rank := range a.ranks {
		if d.State == job.Succeeded && good[rank] != 1 || d.State != job.Succeeded && good[rank] != 0 {
			fail("is %s; rank %d ended well %d times", d.State, rank, good[rank])
		}
	}

	for _, r := range d.Runs {
		if r.State != job.RunEnded {
			fail("run %s is %s although the job has ended", r.ID, r.State)
		}
	}
}

// checkOutput checks that each line of a job was kept once, in order, and that
// nothing else was.
func checkOutput(how string, got output, a *asked, rec *record, fail func(string, ...any)) {
	for _, e := range rec.byName[a.name] {
		lines := got[rankOf(e.run, e.rank)]
		for i, line := range lines {
			if line != "L"+strconv.Itoa(i) {
				fail("%s line %d of run %s rank %d is %q", how, i, e.run, e.rank, line)
				break
			}
		}

		if e.end >= 0 && len(lines) != e.lines {
			fail("run %s rank %d printed %d lines, %d were %s", e.run, e.rank, e.lines, len(lines), how)
		}
	}

	for k := range got {
		if rec.executions[k] == nil {
			fail("there is output of %s, which was never carried out", k)
		}
	}
}

// checkOrder checks that the jobs of a pipeline ran one after the other.
func checkOrder(t *testing.T, p *plan, rec *record) {
	t.Helper()

	for i := 1; i < len(p.jobs); i++ {
		for _, after := range rec.byName[p.jobs[i].name] {
			for _, before := range rec.byName[p.jobs[i-1].name] {
				if before.end < 0 || before.end > after.start {
					t.Errorf("%s ran before %s, which it needs, had ended", after.run, before.run)
				}
			}
		}
	}
}

// checkGone checks that nothing is left of what ran, neither process nor
// record, and that server and agents end well when asked.
func checkGone(t *testing.T, y *yard) {
	t.Helper()
	var left []string
	for end := time.Now().Add(drainTime); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		left = leftovers(t, y)
		if len(left) == 0 {
			break
		}
	}

	if len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}

	for name, p := range y.agents {
		if code, err := p.Stop(20 * time.Second); err != nil || code != 0 {
			t.Errorf("agent %s ended with code %d (%v) when asked to", name, code, err)
		}
	}

	if left := leftovers(t, y); len(left) > 0 { // no job is left, so nothing outlives an agent
		t.Errorf("left behind by the agents:\n%s", strings.Join(left, "\n"))
	}

	if code, err := y.Server().Stop(20 * time.Second); err != nil || code != 0 {
		t.Errorf("the server ended with code %d (%v) when asked to", code, err)
	}

	for _, log := range []string{y.ServerLog(), y.AgentLog("north"), y.AgentLog("south")} {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}

		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "level=ERROR") && !slowDisk(line) || strings.HasPrefix(line, "panic:") {
				t.Errorf("%s says %s", filepath.Base(log), line)
			}
		}
	}
}

// slowDisk reports whether a line of a log says that the disk took long, which it may.
func slowDisk(line string) bool {
	return strings.Contains(line, "commit hangs") || strings.Contains(line, "cannot be stored now")
}

// leftovers lists the processes other than server and agents, the run
// directories and the containers that are still there.
func leftovers(t *testing.T, y *yard) []string {
	t.Helper()
	found, err := yardtest.Processes(y.Folder)
	if err != nil {
		t.Fatal(err)
	}

	own := []int{y.Server().PID()}
	for _, p := range y.agents {
		own = append(own, p.PID())
	}

	var left []string
	for _, p := range found {
		if !slices.Contains(own, p.PID) {
			left = append(left, fmt.Sprintf("process %d: %s", p.PID, p.Command))
		}
	}

	for _, name := range agentNames {
		entries, err := os.ReadDir(filepath.Join(y.AgentData(name), "agent", "runs"))
		if err != nil {
			t.Fatal(err)
		}

		for _, e := range entries {
			left = append(left, "record of a run on "+name+": "+e.Name())
		}
	}

	if y.engine != nil {
		for line := range strings.Lines(y.engine.Run(t, "ps", "--all", "--format", "container {{.ID}} {{.Status}} {{.Labels}}")) {
			left = append(left, strings.TrimSpace(line))
		}
	}

	return left
}
