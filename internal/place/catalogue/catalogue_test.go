package catalogue_test

import (
	"strings"
	"testing"

	"trainyard/internal/place"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/place/lp"
	"trainyard/internal/queue"
)

func TestEveryPolicyCanBeMadeAndAsked(t *testing.T) {
	t.Parallel()
	all := catalogue.All(nil)
	if len(all) < 30 {
		t.Fatalf("%d policies are listed, want at least 30", len(all))
	}

	seen := map[string]bool{}

	for _, e := range all {
		make, err := all.Make(e.Name)
		if err != nil {
			t.Errorf("%s: %v", e.Name, err)
			continue
		}

		if seen[e.Name] || e.Rule == "" || strings.HasSuffix(e.Rule, ".") {
			t.Errorf("%s is listed twice, or has no rule in the usual form: %q", e.Name, e.Rule)
		}

		seen[e.Name] = true

		if p := make(); p.Name() != e.Name {
			t.Errorf("%s calls itself %s", e.Name, p.Name())
		} else if plan := p.Plan(&place.View{Queue: queue.New()}); len(plan.Starts)+len(plan.Stops) > 0 {
			t.Errorf("%s finds something to do in an empty yard: %+v", e.Name, plan)
		}

		params, err := all.Params(e.Name)
		if err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}

		for _, p := range params {
			if p.Help == "" {
				t.Errorf("parameter %s of %s is not explained", p.Name, e.Name)
			}
		}
	}
}

func TestParametersAreReadOrRefused(t *testing.T) {
	t.Parallel()
	solve := func(*lp.Model) (*lp.Solution, error) { return &lp.Solution{}, nil }
	for _, text := range []string{
		"andreas:search=relink:rounds=20:margin=2", "andreas:survival=0.9/0.5/0.1", "andreas-published:rounds=-1",
		"goodput:gap=30s", "goodput-fair:gap=2m",
		`harvest:ahead=60s:parallel=10:objective="n > 2 ? throughput : 0"`, "harvest:probe=yes", `harvest:at_most="alice,bob: 1 <= 8"`,
	} {
		if _, err := catalogue.All(solve).Make(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}

	for text, says := range map[string]string{
		"andreas:survival=0.5/0.9":        "falling shares",
		"andreas:search=magic":            "one of local",
		`harvest:objective="throughputt"`: "throughput",
		`harvest:at_most="alice 1 <= "`:   "must have the form",
		"harvest:ahead=1ms":               "at least 1s",
	} {
		if _, err := catalogue.All(solve).Make(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}

	if _, err := catalogue.All(nil).
		Make(`harvest:at_most="1 <= 8"`); err == nil ||
		!strings.Contains(err.Error(), "solver") {
		t.Errorf("a condition across jobs without a solver: %v, want it to say that one is needed", err)
	}
}
