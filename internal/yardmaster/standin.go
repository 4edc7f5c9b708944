package yardmaster

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

type market struct{ offers []fleet.Offer }

func (m *market) Granted(string, time.Time)         {}
func (m *market) Refused(string, string, time.Time) {}
func (m *market) Taken(string, time.Time)           {}
func (m *market) Exposed(string, time.Duration)     {}
func (m *market) Open(time.Time) []fleet.Offer      { return m.offers }
func (m *market) Offer(name string) (fleet.Offer, bool) {
	for _, o := range m.offers {
		if o.Name == name {
			return o, true
		}
	}
	return fleet.Offer{}, false
}

type books struct{}

func (b *books) Nodes(time.Time, id.User, id.Project, int) {}
func (b *books) Allow(time.Time, id.User, id.Project, id.Job, job.Money) tenant.Allowance {
	return tenant.Unlimited()
}

type keepConfig struct{ Idle time.Duration }
type kept struct {
	Return bool
	Why    string
	Again  time.Time
}

func keep(c keepConfig, l *fleet.Lease, idle, now time.Time, warm int) kept {
	if at := idle.Add(c.Idle); now.Before(at) {
		return kept{Again: at}
	}
	return kept{Return: true, Why: "nothing has run there for a while"}
}
