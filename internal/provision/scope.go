package provision

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
)

// scopeOf returns the offers that a refusal applies to.
//
// Without capacity, that is the type in that zone, or in the whole region if no zone
// was asked for. At a quota, it is all nodes of the provider in the region with
// GPUs of the same family and no fewer of them: a smaller node may still fit in. An
// account that may not do this at all closes the provider. Spot and on demand are
// told apart everywhere: providers keep them in pools and quotas of their own.
func scopeOf(o *fleet.Offer, code string) scope {
	s := scope{code: code, provider: o.Provider, spot: o.Spot}

	switch code {
	case fleet.RefusedCapacity:
		s.region, s.zone, s.kind = o.Region, o.Zone, o.Type
	case fleet.RefusedQuota:
		s.region, s.kind, s.gpus = o.Region, family(o.GPU), o.GPUs
	case fleet.RefusedDenied:
	default: // the price of this offer, a type that is unknown there, or nobody knows
		s.kind = o.Name
	}

	return s
}

// family is the first word of a GPU's name that has a digit: H100 of "H100 80GB".
func family(gpu string) string {
	for w := range strings.FieldsFuncSeq(gpu, func(c rune) bool { return c == ' ' || c == '-' || c == '_' }) {
		if strings.ContainsAny(w, "0123456789") {
			return strings.ToUpper(w)
		}
	}

	return strings.ToUpper(gpu)
}

// covers reports whether an offer is within the scope.
func (s *scope) covers(o *fleet.Offer) bool {
	if s.provider != o.Provider || s.spot != o.Spot {
		return false
	}

	switch s.code {
	case fleet.RefusedCapacity:
		return s.kind == o.Type && s.region == o.Region && (s.zone == "" || s.zone == o.Zone)
	case fleet.RefusedQuota:
		return s.region == o.Region && s.kind == family(o.GPU) && o.GPUs >= s.gpus
	case fleet.RefusedDenied:
		return true
	}

	return s.kind == o.Name
}

// wait returns for how long the scope is closed when it was refused so many times in a row.
func (s *scope) wait(times int) time.Duration {
	first, most := firstQuota, maxQuota
	if s.code == fleet.RefusedCapacity || s.code == fleet.RefusedPrice {
		first, most = firstWait, maxWait
	}

	if times > 16 { // where doubling would not fit any more
		return most
	}

	return min(first<<max(times-1, 0), most)
}

func compareScopes(a, b scope) int {
	spot := func(s scope) int {
		if s.spot {
			return 1
		}

		return 0
	}

	return cmp.Or(
		strings.Compare(a.provider, b.provider),
		strings.Compare(a.region, b.region),
		strings.Compare(a.zone, b.zone),
		strings.Compare(a.kind, b.kind),
		cmp.Compare(a.gpus, b.gpus),
		cmp.Compare(spot(a), spot(b)),
		strings.Compare(a.code, b.code),
	)
}

// what names the scope for people.
func (s *scope) what() string {
	how := "on-demand"
	if s.spot {
		how = "spot"
	}

	where := ""
	if s.region != "" {
		where = " in " + s.region
	}

	if s.zone != "" {
		where += ", zone " + s.zone
	}

	switch s.code {
	case fleet.RefusedCapacity:
		return fmt.Sprintf("%s %s %s%s", s.provider, how, s.kind, where)
	case fleet.RefusedQuota:
		what := "nodes without a GPU"
		if s.gpus > 0 {
			what = fmt.Sprintf("nodes with at least %s", humanize.Times(s.gpus, s.kind))
		}

		return fmt.Sprintf("%s %s %s%s", s.provider, how, what, where)
	case fleet.RefusedDenied:
		return fmt.Sprintf("all %s offers of %s", how, s.provider)
	}

	return s.kind
}

// why says in words what a code means.
func (s *scope) why() string {
	switch s.code {
	case fleet.RefusedCapacity:
		return "no capacity"
	case fleet.RefusedQuota:
		return "quota of the account used up"
	case fleet.RefusedPrice:
		return "spot price above the limit"
	case fleet.RefusedInvalid:
		return "unknown instance type or image"
	case fleet.RefusedDenied:
		return "permission denied"
	}

	return "refused by the provider"
}

// decay returns the fraction that remains after a number of half-lives.
func decay(times float64) float64 { return math.Exp2(-times) }
