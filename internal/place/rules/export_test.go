package rules

import "fmt"

// Twin returns a policy that remembers the same of the jobs it has met, which is part of
// what it decides by, and has seen no view.
func (p *Policy) Twin() *Policy { return p.Rehearsal().(*Policy) }

// Known says what it remembers of the jobs it has met.
func (p *Policy) Known() string {
	return fmt.Sprint(p.patiences)
}

// Shapes returns of how many shapes something is kept.
func (p *Policy) Shapes() int { return len(p.backlog.shapes) }
