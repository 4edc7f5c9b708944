package sim

import (
	"math/bits"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/money"
	"trainyard/internal/place"
)

// meter reads what a node costs. What it costs with so many GPUs in use is paid
// by those who use them, each for its GPUs; what it costs unused is waste.
type meter struct {
	tariff     *fleet.Tariff
	price      *fleet.NodePrice
	open       bool
	opened     time.Duration // when it came, or came back
	minBilling time.Duration // shortest time that is billed
	used       int           // GPUs
	users      [64]uint8     // of each GPU
	since      time.Duration
	// Paid for one GPU in use since the beginning: money and kWh.
	money  money.Amount
	energy float64
	// Of the unused node.
	idleMoney  money.Amount
	idleEnergy float64
	// Of the node in use, whoever paid.
	usedMoney  money.Amount
	usedEnergy float64
}

func newMeter(t *fleet.Tariff, n *fleet.Node, now time.Duration) meter {
	return meter{tariff: t, price: t.Of(n), open: true, since: now, opened: now}
}

// read brings the meter up to date.
func (m *meter) read(now time.Duration) {
	passed := now - m.since
	m.since = now
	if m.price == nil || passed <= 0 {
		return
	}

	cost, energy := m.tariff.Rate(m.price, m.used).For(passed), m.tariff.Power(m.price, m.used)/1000*passed.Hours()
	switch {
	case m.used > 0:
		m.money += cost.Times(1 / float64(m.used))
		m.energy += energy / float64(m.used)
		m.usedMoney += cost
		m.usedEnergy += energy
	case m.open:
		m.idleMoney += cost
		m.idleEnergy += energy
	}
}

// reopen lets the node come back.
func (m *meter) reopen(now time.Duration) {
	m.read(now)
	m.open, m.opened = true, now
}

// close lets the node go. The stretch that was begun is paid to its end.
func (m *meter) close(now time.Duration) {
	m.read(now)
	m.open = false
	if m.price == nil {
		return
	}

	kept := now - m.opened
	rest := max(m.minBilling-kept, 0)
	if bills := time.Duration(m.price.BillingIncrement); bills > 0 && (kept+rest)%bills > 0 {
		rest += bills - (kept+rest)%bills
	}

	m.idleMoney += m.tariff.HourlyPrice(m.price, 0).For(rest)
}

// boot returns how long the node needs until it can be used.
func (m *meter) boot() time.Duration {
	if m.price == nil || !m.price.Off || m.used > 0 {
		return 0
	}

	return time.Duration(m.price.Boot)
}

// join adds an allocation to the users of the node, and returns the reading of the meter
// and how many GPUs were not in use before.
func (m *meter) join(now time.Duration, seat place.Allocation) (paid money.Amount, energy float64, more int) {
	m.read(now)

	for set := seat.GPUs; set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(set)
		m.users[i]++
		if m.users[i] == 1 {
			more++
		}
	}

	m.used += more

	return m.money, m.energy, more
}

// leave ends that, and returns what is to be paid since, and how many GPUs are no
// longer in use. Who shares a GPU pays for a share of it.
func (m *meter) leave(
	now time.Duration, seat place.Allocation, paid money.Amount, energy float64,
) (cost money.Amount, kwh float64, fewer int) {
	m.read(now)

	for set := seat.GPUs; set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(set)
		m.users[i]--
		if m.users[i] == 0 {
			fewer++
		}
	}

	m.used -= fewer

	share := float64(bitsOf(seat))
	if seat.Share > 0 {
		share = seat.Share
	}

	return (m.money - paid).Times(share), (m.energy - energy) * share, fewer
}

func bitsOf(s place.Allocation) int { return bits.OnesCount64(s.GPUs) }
