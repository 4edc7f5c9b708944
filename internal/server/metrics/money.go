package metrics

import (
	"maps"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/ledger"
)

// classes and accounts are the shares in which money and time are shown.
func classes() []fleet.Class     { return fleet.Classes() }
func accounts() []ledger.Account { return ledger.Accounts() }

const (
	classCount   = 3
	accountCount = 8
)

// payer is who had nodes of a class.
type payer struct {
	user  id.User
	class fleet.Class
}

// amounts is what was posted, for people.
type amounts struct {
	nodeSeconds, gpuSeconds, dollars, joules float64
}

// portion is what a posting says, in the units that are shown.
type portion struct {
	class, account int
	payer          payer
	amounts
}

func portionOf(p *ledger.Posting) portion {
	return portion{
		class: slices.Index(classes(), p.Class), account: slices.Index(accounts(), p.Account), payer: payer{p.Owner, p.Class},
		amounts: amounts{
			nodeSeconds: float64(p.NodeTime) / 1000, gpuSeconds: float64(p.GPUTime) / 1000,
			dollars: p.Cost().Dollars(), joules: float64(p.Energy) / 1000,
		},
	}
}

// sums is what was posted since the process began. Not exact to the last unit, as the
// books are: what is drawn as a curve need not be.
type sums struct {
	shares [classCount][accountCount]amounts
	users  map[payer]amounts // nil if they are not wanted
}

func newSums(byUser bool) sums {
	if byUser {
		return sums{users: map[payer]amounts{}}
	}

	return sums{}
}

// add adds so many times a portion.
func (s *sums) add(p *portion, times float64) {
	if p.class < 0 || p.account < 0 {
		return // of no class that there is
	}

	s.shares[p.class][p.account].add(&p.amounts, times)
	if s.users == nil || p.payer.user == "" {
		return
	}

	mine := p.amounts
	if accounts()[p.account] != ledger.Use {
		mine.gpuSeconds, mine.nodeSeconds = 0, 0 // provisioned for them, and not used: they only pay
	}

	sum := s.users[p.payer]
	sum.add(&mine, times)
	s.users[p.payer] = sum
}

// clone copies the sums.
func (s *sums) clone() sums { return sums{shares: s.shares, users: maps.Clone(s.users)} }

// run adds what has run up on a node since it was last posted.
func (s *sums) run(r *reading, now time.Time) {
	hours := now.Sub(r.since).Hours()
	if hours <= 0 {
		return
	}

	for i := range r.hourly {
		s.add(&r.hourly[i], hours)
	}
}

func (a *amounts) add(b *amounts, times float64) {
	a.nodeSeconds += b.nodeSeconds * times
	a.gpuSeconds += b.gpuSeconds * times
	a.dollars += b.dollars * times
	a.joules += b.joules * times
}

// saved is what decisions of one sort saved, and what those cost that paid more.
type saved struct{ more, less float64 }

func (s *saved) add(m ledger.Nanos) {
	if m >= 0 {
		s.more += m.Dollars()
	} else {
		s.less -= m.Dollars()
	}
}
