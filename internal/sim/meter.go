package sim

import (
	"math/bits"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/place"
)

// meter reads what a node costs. What it costs with so many GPUs in use is paid
// by those who use them, each for its GPUs; what it costs unused is waste.
type meter struct {
	tariff *fleet.Tariff
	price  *fleet.NodePrice
	open   bool
	used   int
	since  time.Duration
	// Paid for one GPU in use since the beginning: money and kWh.
	money, energy float64
	// Of the unused node.
	idleMoney, idleEnergy float64
	// Of the node in use, whoever paid.
	usedMoney, usedEnergy float64
}

func newMeter(t *fleet.Tariff, n *fleet.Node, now time.Duration) meter {
	return meter{tariff: t, price: t.Of(n), open: true, since: now}
}

// read brings the meter up to date.
func (m *meter) read(now time.Duration) {
	hours := (now - m.since).Hours()
	m.since = now
	if m.price == nil || hours <= 0 {
		return
	}
	money, energy := m.tariff.Rate(m.price, m.used)*hours, m.tariff.Power(m.price, m.used)/1000*hours
	switch {
	case m.used > 0:
		m.money += money / float64(m.used)
		m.energy += energy / float64(m.used)
		m.usedMoney += money
		m.usedEnergy += energy
	case m.open:
		m.idleMoney += money
		m.idleEnergy += energy
	}
}

// boot returns how long the node needs until it can be used.
func (m *meter) boot() time.Duration {
	if m.price == nil || !m.price.Off || m.used > 0 {
		return 0
	}
	return time.Duration(m.price.Boot)
}

// join lets someone use so many GPUs, and returns how the meter stands.
func (m *meter) join(now time.Duration, gpus int) (money, energy float64) {
	m.read(now)
	m.used += gpus
	return m.money, m.energy
}

// leave ends that, and returns what is to be paid since.
func (m *meter) leave(now time.Duration, gpus int, money, energy float64) (cost, kwh float64) {
	m.read(now)
	m.used -= gpus
	return (m.money - money) * float64(gpus), (m.energy - energy) * float64(gpus)
}

func bitsOf(s place.Seat) int { return bits.OnesCount64(s.GPUs) }
