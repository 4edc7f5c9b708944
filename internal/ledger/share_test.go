package ledger_test

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
)

// TestAHolderPaysItsPart holds the price of whole GPUs, of a share of one and of CPUs alone against
// fractions: its part of what the node costs unused, and all of what it costs more.
func TestAHolderPaysItsPart(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		gpus := rapid.IntRange(0, 8).Draw(t, "GPUs of the node")
		cents := rapid.SliceOfN(rapid.Int64Range(0, 9000), 1, 9).Draw(t, "cents")
		watts := rapid.SliceOfN(rapid.Int64Range(0, 9000), 1, 9).Draw(t, "watts")
		energy, off := rapid.Int64Range(0, 900).Draw(t, "energy"), rapid.Bool().Draw(t, "off")

		row := fleet.NodePrice{Off: off}
		for _, c := range cents {
			row.Hourly = append(row.Hourly, money.PerHour(c)/100)
		}

		for _, w := range watts {
			row.Watts = append(row.Watts, float64(w))
		}

		n := &fleet.Node{ID: "n", Class: fleet.Local, State: fleet.Ready}
		n.Inventory.CPUs = 64_000
		for i := range gpus {
			n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: i, Model: "L4", Memory: 24 << 30})
		}

		hold := fleet.Hold{CPUs: job.CPUs(rapid.IntRange(1, 64).Draw(t, "CPUs")) * 1000}
		used, part := 0, big.NewRat(int64(hold.CPUs), 64_000) // of a run without GPUs
		if thousandths := int64(1000 * gpus); gpus > 0 {      // counted in whole thousandths of GPUs
			part = big.NewRat(thousandths*int64(hold.CPUs)/64_000, thousandths)
		}

		switch kind := rapid.IntRange(0, 2).Draw(t, "kind"); {
		case gpus > 0 && kind == 0:
			used = rapid.IntRange(1, gpus).Draw(t, "GPUs")
			hold.GPUs, part = 1<<used-1, big.NewRat(int64(used), int64(gpus))
		case gpus > 0 && kind == 1:
			thousandths := rapid.Int64Range(1, 1000).Draw(t, "share")
			used = 1
			hold.GPUs, hold.Share, part = 1, float64(thousandths)/1000, big.NewRat(thousandths, int64(1000*gpus))
		case gpus == 0:
			used = 1
		}

		pays := func(list []int64) *big.Rat {
			all, idle := list[min(used, len(list)-1)], list[0]
			idle = min(idle, all)
			if off {
				idle = 0
			}

			sum := new(big.Rat).Mul(big.NewRat(idle, 1), part)

			return sum.Add(sum, big.NewRat(all-idle, 1))
		}

		want := new(big.Rat).Mul(pays(cents), big.NewRat(1, 100))
		want.Add(want, new(big.Rat).Mul(pays(watts), big.NewRat(energy, 1000*1000)))
		exact, _ := want.Float64()

		tariff := &fleet.Tariff{Energy: money.PerKWh(energy) / 1000, Nodes: []fleet.NodePrice{row}}
		got := ledger.Hourly(n, tariff, nil, ledger.HolderOf(&hold, ""))

		if math.Abs(float64(got)-exact) > 1e-7 {
			t.Fatalf("it costs %g an hour, want %g", got, exact)
		}
	})
}
