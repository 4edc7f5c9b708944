package archive

// Budget bounds the work that reading output causes: steps, which a line costs in proportion to its length and to the
// size of the expression that it is compared with, and whatever else the one who reads runs out of.
type Budget struct {
	steps   int64
	expired func() bool
	begun   bool
	spent   bool
}

// NewBudget returns a budget of so many steps that ends early when expired returns true. The first line can always be
// afforded, so that whoever reads on with a new budget gets to the end.
func NewBudget(steps int64, expired func() bool) *Budget {
	return &Budget{steps: steps, expired: expired}
}

// Spent reports whether something was left out because the budget did not last.
func (b *Budget) Spent() bool { return b != nil && b.spent }

// pay takes the cost of a line from the budget and reports whether it was there.
func (b *Budget) pay(cost int64) bool {
	if b.begun && (b.steps < cost || b.expired()) {
		b.spent = true
		return false
	}

	b.begun = true
	b.steps -= cost

	return true
}
