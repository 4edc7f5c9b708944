package harvest

import (
	"math"
	"testing"

	"trainyard/internal/sim"
)

// Shares are of one thing: a policy that does twice the samples has twice the share, whatever it would do on nodes of
// its own, under whatever objective and costs.
func TestAllPoliciesHaveOneDenominator(t *testing.T) {
	t.Parallel()

	all := loads()
	mix, speedup := all[1], all[2]
	p := &plan{fixed: map[division]assignment{{"mix", 10, 0}: {samples: 100}, {"mix", 30, 0}: {samples: 400}}}

	for work, r := range map[float64]run{
		20: {load: mix, parallel: 10, costs: product},
		40: {load: mix, parallel: 10, costs: travel},
		60: {load: mix, parallel: 10, costs: travel, equal: true},
		80: {load: speedup, parallel: 10, costs: product},
	} {
		r.result = &sim.Result{Work: work}
		p.add(r)

		if got := p.share(r); math.Abs(got-work/100) > 1e-9 {
			t.Errorf("%g of 100 samples are a share of %g", work, got)
		}
	}

	r := run{load: mix, parallel: 30, costs: product, result: &sim.Result{Work: 100}}
	p.add(r)

	if got := p.share(r); math.Abs(got-0.25) > 1e-9 {
		t.Errorf("100 of 400 samples are a share of %g", got)
	}
}
