package simcli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/cli"
	"trainyard/internal/clock"
	"trainyard/internal/place"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/place/lp"
	"trainyard/internal/sim/whatif"
	"trainyard/internal/solver"
)

func TestProgressOfSimulationsInWords(t *testing.T) {
	t.Parallel()

	for want, p := range map[string]whatif.Progress{
		"[############------------]   50 %  500 of 1,000 jobs  3 of 6 simulations  250 jobs/s  2s left": {
			Done: 500, Jobs: 1000, Cells: 3, Total: 6, Rate: 250, Remaining: 2 * time.Second},
		"[########################]  100 %  10 of 10 jobs  5 jobs/s":    {Done: 10, Jobs: 10, Cells: 1, Total: 1, Rate: 5},
		"[######------------------]   25 %  7 jobs  1 of 4 simulations": {Done: 7, Cells: 1, Total: 4},
		"1 job": {Done: 1, Total: 1},
	} {
		got := progressLine(p, true)
		if got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}

		if plain := progressLine(p, false); strings.ContainsAny(plain, "[#") || !strings.HasSuffix(want, plain) {
			t.Errorf("without a drawing: %q", plain)
		}
	}
}

func TestWhatAChangeWinsInWords(t *testing.T) {
	t.Parallel()
	at := func(h int) *time.Time {
		v := time.Date(2026, 5, 1, h, 0, 0, 0, time.UTC)
		return &v
	}

	for want, c := range map[string][2]When{
		"2h":          {{End: at(5)}, {End: at(3)}},
		"-1h":         {{End: at(2)}, {End: at(3)}},
		"same":        {{End: at(2)}, {End: at(2)}},
		"ends at all": {{}, {End: at(2)}},
		"never ends":  {{End: at(2)}, {}},
		"":            {{}, {}},
	} {
		if got := sooner(&c[0], &c[1]); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// registry has all policies; those that need a solver work where one is installed.
func registry() place.Registry {
	found, err := solver.Find("")
	if err != nil {
		return catalogue.All(nil)
	}

	return catalogue.All(func(m *lp.Model) (*lp.Solution, error) {
		return found.Solve(context.Background(), m, 2*time.Second)
	})
}

// typed runs a command as someone types it, without a terminal.
func typed(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env := cli.Env{
		Stdin:      strings.NewReader(""),
		Stdout:     &stdout,
		Stderr:     &stderr,
		Clock:      clock.Wall{},
		ConfigDir:  t.TempDir(),
		Version:    "test",
		LookupEnv:  func(string) (string, bool) { return "", false },
		IsTerminal: func(any) bool { return false },
	}

	root := cli.New(env)
	root.AddCommand(Commands(env, registry())...)
	code = cli.Execute(t.Context(), env, root, args)

	return code, stdout.String(), stderr.String()
}

func TestEveryPolicyRunsAScenario(t *testing.T) {
	t.Parallel()
	names := registry().Names()
	code, out, errs := typed(
		t,
		"simulate",
		"../../../scenarios/generated.yard",
		"--policy",
		strings.Join(names, ","),
		"-o",
		"json",
	)

	if code != 0 {
		t.Fatalf("code %d: %s", code, errs)
	}

	for _, name := range names {
		if !strings.Contains(out, `"policy": "`+name+`"`) {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestThePoliciesAreListedWithTheirRules(t *testing.T) {
	t.Parallel()
	code, out, errs := typed(t, "simulate", "--list-policies")
	if code != 0 || !strings.Contains(out, "fifo ") || !strings.Contains(out, "EASY backfill") ||
		!strings.Contains(out, "margin=") {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
}

// logScenario has no node that could run its job: it runs only if the log brings one.
const logScenario = "node own 1x T4:16GB\njob a gpu V100 gpus 1 lasts 30m\n"

func TestNodeLogsBringNodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}

		return path
	}

	world := write("world.yard", logScenario)

	for name, c := range map[string]struct{ format, text, node string }{
		"summit-nodes": {"", "t_s,node,state\n600,3,1\n90000,3,0\n", "summit0003"},
		"spot-counts":  {"", `{"metadata": {"gap_seconds": 600}, "data": [0, 1, 1, 1, 1]}`, "spot-00001"},
		"bamboo":       {"", "600000,add,node7\n", "node7"},
		"gcloud":       {"gcloud", "2021-12-10, 23:50:00, 0\n2021-12-11, 00:00:00, 2\n", "spot-00001"},
	} {
		args := []string{
			"simulate", world, "--node-log", write(name, c.text), "--log-nodes", "8xV100:16GBx1", "--log", "-", "--policy", "fifo",
		}
		if c.format != "" {
			args = append(args, "--node-log-format", c.format)
		}

		code, out, errs := typed(t, args...)
		if code != 0 {
			t.Errorf("%s: code %d: %s", name, code, errs)
			continue
		}

		if !strings.Contains(out, c.node) || !strings.Contains(out, "40m") {
			t.Errorf("%s: the job should run on %s from 10m to 40m:\n%s", name, c.node, out)
		}
	}
}

func TestNodeLogFlagsAreChecked(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log.csv")
	if err := os.WriteFile(log, []byte("600000,add,node7\nabsurd\n660000,remove,node7\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	scenario := "../../../scenarios/backfill-easy.yard"

	for want, args := range map[string][]string{
		"--node-log requires --log-nodes": {scenario, "--node-log", log},
		"go with --node-log":              {scenario, "--log-nodes", "4xT4x1"},
		"one kind of node":                {scenario, "--node-log", log, "--log-nodes", "4xT4x1,2xA100x1"},
		"invalid cluster":                 {scenario, "--node-log", log, "--log-nodes", "many"},
		"file not found":                  {scenario, "--node-log", log + ".gz", "--log-nodes", "4xT4x1"},
		"choose one of summit-nodes":      {scenario, "--node-log", scenario, "--log-nodes", "4xT4x1"},
		"nor a node log":                  {"--from-yard", "--node-log", log, "--log-nodes", "4xT4x1"},
		"1 rows could not be read and":    {scenario, "--node-log", log, "--log-nodes", "4xT4x1", "--skip-bad"},
		"line 2":                          {scenario, "--node-log", log, "--log-nodes", "4xT4x1"},
	} {
		_, out, errs := typed(t, append([]string{"simulate"}, args...)...)
		if !strings.Contains(errs, want) {
			t.Errorf("%v: got %s%s, want %q", args, out, errs, want)
		}
	}
}
