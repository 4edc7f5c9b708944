package e2e_test

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/job"
)

// scenarios holds the scenarios of the repository.
func scenarios(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs("../../scenarios")
	if err != nil {
		t.Fatal(err)
	}

	return folder
}

func TestSimulateComparesPoliciesLoadsAndSeeds(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	p := newPerson(t, folder, "ada")
	at := func(name string) string { return filepath.Join(folder, name) }
	r := p.succeed(
		t,
		"simulate",
		filepath.Join(scenarios(t), "generated.yard"),
		"--policy",
		"fifo,srtf,goodput:gap=30s",
		"--load",
		"1,2",
		"--seeds",
		"2",
		"--html",
		at("page.html"),
		"--csv",
		at("all.csv"),
		"--out-json",
		at("all.json"),
		"--log",
		at("all.log"),
	)

	for _, want := range []string{"generated: 30 jobs, mean of 2 seeds", "generated at load 2", "goodput:gap=30s", "completion  mean", "utilisation"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the table does not have %q:\n%s", want, r)
		}
	}

	text, err := os.ReadFile(at("all.csv"))
	if err != nil {
		t.Fatal(err)
	}

	if rows, err := csv.NewReader(strings.NewReader(string(text))).ReadAll(); err != nil || len(rows) != 13 {
		t.Errorf("%d lines of CSV, want a head and 12 simulations (%v)", len(rows), err)
	}

	var doc struct{ Simulations, Summary []json.RawMessage }

	text, err = os.ReadFile(at("all.json"))
	if err != nil || json.Unmarshal(text, &doc) != nil || len(doc.Simulations) != 12 || len(doc.Summary) != 6 {
		t.Errorf("%d simulations and %d sums in JSON (%v)", len(doc.Simulations), len(doc.Summary), err)
	}

	text, err = os.ReadFile(at("page.html"))
	if err != nil || !strings.HasPrefix(string(text), "<!doctype html>") || strings.Count(string(text), "<svg") < 12 {
		t.Errorf("the page has %d plots (%v)", strings.Count(string(text), "<svg"), err)
	}

	text, err = os.ReadFile(at("all-generated-srtf-2-3.log"))
	if err != nil || !strings.Contains(string(text), "pending -> starting") {
		t.Errorf("the log of one simulation: %v", err)
	}
}

func TestSimulatePrintsTheDecisionsOfAScenarioAsItExpects(t *testing.T) {
	t.Parallel()
	p := newPerson(t, newFolder(t), "ada")
	file := filepath.Join(scenarios(t), "backfill-easy.yard")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	_, expected, _ := strings.Cut(string(text), "expect:\n")
	if r := p.succeed(t, "simulate", file, "--log", "-"); !strings.HasPrefix(r.out, expected) {
		t.Errorf("want\n%s\nfirst, got %s", expected, r)
	}
}

func TestSimulateReadsATraceOnACluster(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	p := newPerson(t, folder, "ada")
	trace := filepath.Join(folder, "small.swf")

	rows := []string{
		"; Version: 2.2",
		"1 0 0 3600 8 -1 -1 8 3600 -1 1 1 1 -1 1 -1 -1 -1",
		"2 60 0 600 4 -1 -1 4 900 -1 1 2 1 -1 1 -1 -1 -1",
		"this is no row",
		"3 120 0 600 16 -1 -1 16 900 -1 1 2 1 -1 1 -1 -1 -1",
	}

	if err := os.WriteFile(trace, []byte(strings.Join(rows, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	args := []string{"simulate", "--trace", trace, "--cluster", "2xV100x8", "--policy", "fifo,fifo-strict"}
	if r := p.exits(t, 104, args...); !strings.Contains(r.err, "line 4") || !strings.Contains(r.err, "small.swf") {
		t.Errorf("a bad row is told with file and line: %s", r)
	}

	r := p.succeed(t, append(args, "--skip-bad")...)
	if !strings.Contains(r.out, "small.swf: 3 jobs") || !strings.Contains(r.err, "1 rows could not be read") {
		t.Errorf("a bad row is skipped and counted: %s", r)
	}

	for want, args := range map[string][]string{
		"--trace requires --cluster":  {"simulate", "--trace", trace},
		"nothing to simulate":         {"simulate"},
		"invalid cluster":             {"simulate", "--trace", trace, "--cluster", "lots"},
		"unknown policy":              {"simulate", filepath.Join(scenarios(t), "gang.yard"), "--policy", "magic"},
		"there is no file":            {"simulate", "nowhere.yard"},
		"takes neither scenarios":     {"simulate", "--from-yard", "x.yard"},
		"go with --from-yard":         {"simulate", "x.yard", "--assume", "2h"},
		"not logged in":               {"simulate", "--from-yard"},
		"--load must be greater than": {"simulate", filepath.Join(scenarios(t), "gang.yard"), "--load", "0"},
		"invalid job ID":              {"replay", "gang"},
		"different policies":          {"simulate", filepath.Join(scenarios(t), "gang.yard"), filepath.Join(scenarios(t), "srtf.yard")},
		"invalid price":               {"simulate", filepath.Join(scenarios(t), "gang.yard"), "--price", "V100=cheap"},
	} {
		if r := p.run(t, args...); r.code == 0 || !strings.Contains(r.err, want) {
			t.Errorf("trainyard %s: want %q, got %s", strings.Join(args, " "), want, r)
		}
	}
}

// sleeper is a job file of a job that holds a GPU until it is stopped.
func sleeper(name, resources, more string) string {
	return "name: " + name + "\nrun: sleep 1000\nresources: {" + resources + "}\ngrace: 1s\n" + more
}

// forecast is what simulate --from-yard says to programs.
type forecast struct {
	Cases []string
	Gaps  []string
	Jobs  []struct {
		Job, Name, Owner, State, Basis string
		When                           []struct{ Start, End, Why string }
	}
}

func TestSimulateFromYardSaysWhenJobsWouldStart(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"}, "--fake-gpus", "2xA100:40GB")
	first := y.submit(t, sleeper("first", "gpus: 2, cpus: 0.1", "expect: 2h\n"))
	y.awaitState(t, first, job.Running)
	second := y.submit(t, sleeper("second", "gpus: 2, cpus: 0.1", "max_duration: 1h\n"))

	silent := y.submit(t, sleeper("silent", "gpus: 1, cpus: 0.1", ""))
	if r := y.exits(t, 104, "simulate", "--from-yard"); !strings.Contains(r.err, silent+" (silent)") ||
		!strings.Contains(r.err, "--assume") {
		t.Errorf("a job that says nothing: %s", r)
	}

	var f forecast
	y.decode(t, &f, "simulate", "--from-yard", "--assume", "30m", "-o", "json")
	if len(f.Cases) != 1 || len(f.Jobs) != 3 || f.Jobs[0].Job != first || f.Jobs[1].Job != second ||
		f.Jobs[2].Job != silent {
		t.Fatalf("the running job first, then those that wait by their start: %+v", f)
	}

	for i, basis := range []string{"expect", "max_duration", "assumed"} {
		if f.Jobs[i].Basis != basis || len(f.Jobs[i].When) != 1 || f.Jobs[i].When[0].End == "" {
			t.Errorf("%+v, want its length from %s", f.Jobs[i], basis)
		}
	}

	if f.Jobs[1].When[0].Start != f.Jobs[0].When[0].End || f.Jobs[2].When[0].Start < f.Jobs[1].When[0].End {
		t.Errorf("each waits for the one before it: %+v", f.Jobs)
	}

	y.decode(t, &f, "simulate", "--from-yard", "--assume", "30m", "--add-nodes", "1xA100:40GBx2", "-o", "json")
	if len(f.Cases) != 2 || f.Jobs[1].When[1].Start >= f.Jobs[1].When[0].Start ||
		f.Jobs[1].When[1].Start >= f.Jobs[0].When[1].End {
		t.Errorf("with another node the second job starts at once: %+v", f)
	}

	r := y.succeed(t, "simulate", "--from-yard", "--assume", "30m", "--policy", "sjf")
	for _, want := range []string{"JOB", "EARLIER BY", second, "runs", "then: sjf", "1 job: without a run time"} {
		if !strings.Contains(r.out+r.err, want) {
			t.Errorf("the table does not have %q: %s", want, r)
		}
	}

	// Someone else sees that the GPUs are held, but neither by what nor who else waits.
	y.succeed(t, "users", "add", "ben")
	token := strings.TrimSpace(y.succeed(t, "tokens", "create", "--owner", "ben", "-q").out)
	ben := newPerson(t, y.Folder, "ben")
	ben.succeed(t, "login", y.URL(), "--token", token, "--yes")
	own := ben.submit(t, sleeper("own", "gpus: 1, cpus: 0.1", "expect: 1h\n"))

	ben.decode(t, &f, "simulate", "--from-yard", "--assume", "3h", "-o", "json")
	if len(f.Jobs) != 2 || f.Jobs[0].Job != first || f.Jobs[0].Owner != "others" || f.Jobs[1].Job != own ||
		f.Jobs[1].When[0].Start != f.Jobs[0].When[0].End {
		t.Errorf("what a researcher sees: %+v", f)
	}

	if !strings.Contains(strings.Join(f.Gaps, "\n"), "queued jobs of other users") {
		t.Errorf("it is not said that jobs of others are left out: %v", f.Gaps)
	}
}

// decision is what replay says to programs.
type decision struct {
	Job, Run, Policy, Verdict, Why string
	Line, Place                    int
	Then                           struct {
		Nodes  []string
		Reason string
	}
	Now *struct {
		Nodes  []string
		Reason string
	}
	Others []struct {
		Job, Why string
		Starts   bool
	}
	Gaps []string
}

func TestReplayMakesADecisionOfThePastAgain(t *testing.T) {
	t.Parallel()
	y := newYard(t, "--policy", "fifo")
	y.join(t, []string{"north"}, "--fake-gpus", "2xA100:40GB")
	holder := y.submit(t, sleeper("holder", "gpus: 2, cpus: 0.1", ""))
	y.awaitState(t, holder, job.Running)
	long := y.submit(t, sleeper("long", "gpus: 2, cpus: 0.1", "expect: 8h\n"))

	short := y.submit(t, sleeper("short", "gpus: 2, cpus: 0.1", "expect: 1h\n"))
	if r := y.exits(t, 104, "replay", short); !strings.Contains(r.err, "has never been placed") {
		t.Errorf("a job that waits: %s", r)
	}

	y.succeed(t, "cancel", holder)
	y.awaitState(t, long, job.Running)

	// What has happened since must not matter.
	y.join(t, []string{"south"}, "--fake-gpus", "1xA100:40GB")
	y.succeed(t, "cordon", "north")

	var d decision
	y.decode(t, &d, "replay", long, "-o", "json")
	if d.Verdict != "same" || d.Policy != "fifo" || d.Line != 2 || d.Place != 1 || len(d.Then.Nodes) != 1 ||
		!strings.HasPrefix(d.Then.Nodes[0], "north") ||
		d.Then.Reason == "" {
		t.Errorf("the same again: %+v", d)
	}

	if len(d.Others) != 1 || d.Others[0].Job != short || d.Others[0].Starts || !strings.Contains(d.Others[0].Why, "GPU") {
		t.Errorf("the other job waited: %+v", d.Others)
	}

	d = decision{}
	y.decode(t, &d, "replay", long, "--run", "1", "--policy", "sjf", "-o", "json")
	if d.Verdict != "waits" || d.Now != nil || len(d.Others) != 1 || !d.Others[0].Starts {
		t.Errorf("the shortest first: %+v", d)
	}

	r := y.succeed(t, "replay", long)
	for _, want := range []string{long + ".1 of " + long + " (long) was ordered at", "Then:  placed on north",
		"same decision by fifo", "2 queued jobs, position 1", short + " (short) stays queued: ", "Not rebuilt exactly:"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the explanation does not have %q:\n%s", want, r)
		}
	}

	if r := y.exits(t, 102, "replay", long, "--run", "7"); !strings.Contains(r.err, "no run 7") {
		t.Errorf("a run that is not there: %s", r)
	}

	if r := y.exits(t, 102, "replay", "j999"); !strings.Contains(r.err, "job j999 not found") {
		t.Errorf("a job that is not there: %s", r)
	}
}
