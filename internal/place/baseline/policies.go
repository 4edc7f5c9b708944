// Package baseline lists the plain policies that every scheduler is measured against: those
// of packages ordered, preemptive and elastic. Its tests hold all of them to the same
// contract: plans can be carried out, no job starves that can run, and the same view gives
// the same plan. It decides nothing itself.
package baseline

import (
	"cmp"
	"slices"

	"trainyard/internal/place"
	"trainyard/internal/place/elastic"
	"trainyard/internal/place/ordered"
	"trainyard/internal/place/preemptive"
)

// Policies lists the policies, by name.
func Policies() place.Registry {
	all := slices.Concat(ordered.Policies(), preemptive.Policies(), elastic.Policies())
	slices.SortFunc(all, func(a, b place.Entry) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
