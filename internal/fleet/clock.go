package fleet

import "time"

// MaxSkew is how far the clock of a node may be from that of the server before there is a warning. Clocks that are
// kept by NTP differ by milliseconds.
const MaxSkew = 2 * time.Second

// ClockOffset is how far the clock of a node is from that of the server, as the round trip of a report shows: the
// server read its clock at some moment of it.
type ClockOffset struct {
	Ahead  int64 `json:"ahead_ms" doc:"milliseconds by which the clock of the node is ahead of that of the server, negative if it is behind"`
	Within int64 `json:"within_ms" minimum:"0" doc:"milliseconds by which that may be wrong: half of the round trip"`
}

// MeasureClock returns the offset by an answer of the server that has its time. The report was sent at this time of the
// node, and the answer came after the round trip.
func MeasureClock(sent time.Time, roundTrip time.Duration, server time.Time) ClockOffset {
	return ClockOffset{
		Ahead:  sent.Add(roundTrip / 2).Sub(server).Milliseconds(),
		Within: (roundTrip/2 + time.Millisecond).Milliseconds(),
	}
}

// Proven returns by how much the clock is ahead at least, negative if it is behind, and 0 if it may be right.
func (o *ClockOffset) Proven() time.Duration {
	const most = int64(100 * 365 * 24 * time.Hour / time.Millisecond) // more cannot be added to a time

	ahead, within := min(max(o.Ahead, -most), most), min(max(o.Within, 0), most)

	switch {
	case ahead > within:
		return time.Duration(ahead-within) * time.Millisecond
	case -ahead > within:
		return time.Duration(ahead+within) * time.Millisecond
	}

	return 0
}
