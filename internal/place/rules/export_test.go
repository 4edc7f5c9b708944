package rules

// Twin returns a policy that remembers the same of the jobs it has met, which is part of
// what it decides by, and has seen no view.
func (p *Policy) Twin() *Policy {
	t := New(p.cfg)
	t.patiences = p.patiences.Clone()

	return t
}

// Shapes returns of how many shapes something is kept.
func (p *Policy) Shapes() int { return len(p.backlog.shapes) }
