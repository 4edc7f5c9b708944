package ledger

import "time"

// Post posts everything up to now. It is for budgets, which need the cost up to the minute.
func (m *Meter) Post(dst []Posting, now time.Time) []Posting { return m.post(dst, wholeMillis(now)) }
