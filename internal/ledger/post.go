package ledger

import "time"

// Post posts what has run up until now. It is for who must know at once what was
// spent: a budget that is watched.
func (m *Meter) Post(dst []Posting, now time.Time) []Posting { return m.post(dst, wholeMillis(now)) }
