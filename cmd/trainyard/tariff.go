package main

import (
	"fmt"
	"math"
	"os"
	"slices"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/yamlfile"
)

// readTariff reads what nodes cost from a file, if one is named.
func readTariff(path string) (*fleet.Tariff, error) {
	if path == "" {
		return nil, nil
	}

	text, err := os.ReadFile(path)
	if err != nil {
		return nil, badTariff(path, err)
	}

	return parseTariff(path, text)
}

func parseTariff(path string, text []byte) (*fleet.Tariff, error) {
	var t fleet.Tariff
	f := yamlfile.Decode(text, &t)
	if err := f.Err(); err != nil {
		return nil, badTariff(path, err)
	}

	if len(t.Nodes) == 0 {
		f.Fail("nodes", "must have at least one entry, got none", "add one, as in nodes: [{class: local, hourly: [1.50]}]")
	}

	checkAmounts(f, "energy", t.Energy)
	checkAmounts(f, "pue", t.PUE)

	for i, n := range t.Nodes {
		at := fmt.Sprintf("nodes[%d].", i)
		checkAmounts(f, at+"watts", n.Watts...)
		checkAmounts(f, at+"hourly", n.Hourly...)

		if n.Boot > 0 && !n.Off {
			f.Fail(at+"boot", "applies only to nodes that are switched off when idle", "add off: true or remove it")
		}

		if j := slices.IndexFunc(t.Nodes[:i], func(o fleet.NodePrice) bool { return covers(&o, &t.Nodes[i]) }); j >= 0 {
			f.Fail(
				at[:len(at)-1],
				fmt.Sprintf("never applies: nodes[%d] matches the same nodes, and the first match counts", j),
				"write it above, or remove it",
			)
		}

		var kind job.GPUKind
		if err := kind.UnmarshalText([]byte(n.GPU)); err != nil {
			f.Fail(at+"gpu", err.Error(), "write it as in A100 or A100:80GB")
		}

		switch n.Class {
		case "", fleet.Local, fleet.Reserved, fleet.OnDemand:
		default:
			f.Fail(
				at+"class",
				fmt.Sprintf("must be one of local, reserved, ondemand, got %q", n.Class),
				"write it as in class: local",
			)
		}
	}

	if err := f.Err(); err != nil {
		return nil, badTariff(path, err)
	}

	return &t, nil
}

// covers reports whether a row of a tariff matches every node that another one matches.
func covers(row, other *fleet.NodePrice) bool {
	if row.Class != "" && row.Class != other.Class {
		return false
	}

	var mine, theirs job.GPUKind
	if mine.UnmarshalText([]byte(row.GPU)) != nil || theirs.UnmarshalText([]byte(other.GPU)) != nil {
		return false // reported as a mistake of its own
	}

	return row.GPU == "" || row.GPU == other.GPU || mine.Memory == 0 && theirs.Model != "" && mine.Model == theirs.Model
}

// checkAmounts reports amounts of money or power that cannot be one.
func checkAmounts[T ~float64](f *yamlfile.File, path string, amounts ...T) {
	for _, a := range amounts {
		if a < 0 || math.IsNaN(float64(a)) || math.IsInf(float64(a), 0) {
			f.Fail(path, fmt.Sprintf("must be a number of at least 0, got %g", a), "write a price or a power of 0 or more")
			return
		}
	}
}

func badTariff(path string, err error) error {
	return fault.New(fault.Invalid, "bad_tariff", "the tariff %s cannot be used: %v", path, err).WithField("tariff")
}
