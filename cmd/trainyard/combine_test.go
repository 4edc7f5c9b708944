package main

import (
	"strings"
	"testing"

	"trainyard/cmd/trainyard/clouds"
	"trainyard/internal/place"
	"trainyard/internal/place/harvest"
	"trainyard/internal/place/lp"
	"trainyard/internal/place/ondemand"
)

// TestTheServerRefusesAPolicyThatCannotProvision: before anything is opened, with a sentence.
func TestTheServerRefusesAPolicyThatCannotProvision(t *testing.T) {
	t.Parallel()

	make := func(conditions ...harvest.Constraint) func() place.Policy {
		p, err := harvest.New(harvest.Params{
			LookAhead: 2 * 60e9, MaxParallel: 30, Objective: "speedup", Constraints: conditions,
			Solve: func(*lp.Model) (*lp.Solution, error) { return &lp.Solution{}, nil },
		})
		if err != nil {
			t.Fatal(err)
		}

		return func() place.Policy { return ondemand.Wrap(p, ondemand.Standard()) }
	}

	own := ondemand.Standard()
	own.Guess++
	terms := func() place.Policy { return ondemand.Wrap(make()(), own) }

	condition := harvest.Constraint{Name: "bob", PerGPU: "1", AtMost: 3}
	for name, tc := range map[string]struct {
		in   inputs
		says string
	}{
		"no clouds":         {inputs{newPolicy: make(condition)}, ""},
		"terms":             {inputs{newPolicy: terms, clouds: &clouds.Clouds{}}, ""},
		"terms, no clouds":  {inputs{newPolicy: terms}, "provision_… of a policy have no effect without clouds"},
		"no conditions":     {inputs{newPolicy: make(), clouds: &clouds.Clouds{}}, ""},
		"clouds conditions": {inputs{newPolicy: make(condition), clouds: &clouds.Clouds{}}, "policy harvest cannot be combined with clouds: at_most"},
	} {
		err := tc.in.check()
		if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
	}
}
