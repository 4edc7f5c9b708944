package elastic

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"trainyard/test/bench/information"
)

// Every row of ours and of others is a side of a comparison, and every side is a row: nothing is quoted of which it is
// not said what it knows.
func TestEveryRowSaysWhatItKnows(t *testing.T) {
	t.Parallel()

	var o Options // no file is opened before a row is simulated

	rows, sides := map[string]map[string]bool{}, map[string]bool{}

	for _, s := range []*section{gavelMean(o), gavelMakespan(o), pollux(o), polluxAll(o), sia(o), generated(o)} {
		for i := range s.knowledge {
			name := s.knowledge[i].Name
			if rows[name] == nil {
				rows[name] = map[string]bool{}
			}
		}

		for _, r := range s.rows {
			at := slices.IndexFunc(s.knowledge, func(c information.Comparison) bool {
				return slices.ContainsFunc(c.Sides, func(side information.Side) bool { return side.Name == r.side() })
			})

			if at < 0 {
				t.Errorf("%q: it is not said what %q knows", s.title, r.side())
				continue
			}

			rows[s.knowledge[at].Name][r.side()] = true
		}
	}

	for _, c := range Comparisons() {
		if strings.Contains(c.Name, "Philly") {
			continue // sides stand for the best of several rows
		}

		sides[c.Name] = true

		for _, side := range c.Sides {
			if !rows[c.Name][side.Name] {
				t.Errorf("%s: no row is called %q", c.Name, side.Name)
			}
		}
	}

	for name := range rows {
		if !sides[name] {
			t.Errorf("%s is not among the comparisons of the page", name)
		}
	}
}

// Gavel's rules for fairness do not know the steps; one of them knows the speeds. With the same objective and the same
// information the mean completion is no longer than what Gavel's simulator comes to on the same trace.
func TestGavelsRulesWithTheirObjectiveAndInformation(t *testing.T) {
	t.Parallel()

	data := os.Getenv("TRAINYARD_DATA")
	if data == "" {
		data = "../../../../shared/data"
	}

	if _, err := os.Stat(filepath.Join(data, gavelJCT)); err != nil {
		t.Skipf("the public traces are not here: %v", err)
	}

	s := gavelMean(Options{Data: data})

	for i := range s.knowledge {
		c := &s.knowledge[i]
		means := map[information.Role]float64{}

		for _, side := range c.Sides {
			at := slices.IndexFunc(s.rows, func(r *row) bool { return r.side() == side.Name })

			switch {
			case side.Role == information.Reference:
				continue
			case side.Objective != maxMin:
				t.Errorf("%s: the objective of %s is %s", c.Name, side.Name, side.Objective)
			case side.Role == information.Headline:
				if err := s.rows[at].run(); err != nil {
					t.Fatal(err)
				}
			}

			means[side.Role] = s.rows[at].mean
		}

		if ours, theirs := means[information.Headline], means[information.Opponent]; ours <= 0 || ours > theirs {
			t.Errorf("%s: mean completion of %.0f s, Gavel has %.0f s", c.Name, ours, theirs)
		}
	}
}
