package place

import "trainyard/internal/fault"

// Feature is a part of the yard that a policy may be unable to work with.
type Feature string

// Clouds is provisioning on-demand nodes.
const Clouds Feature = "clouds"

// AlikeKeeper is a policy that runs jobs with same_gpu on nodes with one GPU model. The others refuse such jobs.
type AlikeKeeper interface {
	Policy
	KeepsAlike() bool
}

// KeepsAlike reports whether a policy runs jobs with same_gpu as they ask for.
func KeepsAlike(p Policy) bool {
	k, ok := p.(AlikeKeeper)

	return ok && k.KeepsAlike()
}

// Sharer is a policy that gives jobs that ask for a part of a GPU no more than that. The others give them a whole one.
type Sharer interface {
	Policy
	Shares() bool
}

// Shares reports whether a policy lets jobs share GPUs.
func Shares(p Policy) bool {
	s, ok := p.(Sharer)

	return ok && s.Shares()
}

// Refuser is a policy that cannot work with some feature. Server and simulator refuse to start
// with the combination.
type Refuser interface {
	Policy
	// Refuses says why the policy cannot work with a feature, "" if it can.
	Refuses(f Feature) string
}

// Refusal returns the error for a policy that cannot work with a feature, nil if it can.
func Refusal(p Policy, f Feature) error {
	r, ok := p.(Refuser)
	if !ok {
		return nil
	}

	why := r.Refuses(f)
	if why == "" {
		return nil
	}

	return fault.New(fault.Invalid, "refused_combination", "policy %s cannot be combined with %s: %s", p.Name(), f, why).
		WithField("policy").WithRemedy("use another policy or other parameters, or leave out %s", f)
}
