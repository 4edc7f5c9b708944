package simcli

import (
	"bytes"
	"context"
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
