package place_test

import (
	"testing"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// TestTooSlow: a run is too slow if it takes a quarter longer than expected, or than is left until its deadline, by the
// lower bound of its forecast.
func TestTooSlow(t *testing.T) {
	t.Parallel()

	const hour = time.Hour
	began := time.Unix(0, 0)

	for name, tc := range map[string]struct {
		expect   time.Duration // of the whole run; 0 if its owner expects nothing
		deadline time.Duration // after it began; 0 for none
		ran, low time.Duration
		basis    job.Basis
		want     bool
	}{
		"it takes a quarter longer than expected":     {expect: 4 * hour, ran: hour, low: 4*hour + time.Second, want: true},
		"it may take less than that":                  {expect: 4 * hour, ran: hour, low: 4 * hour},
		"it has been running for longer than that":    {expect: 4 * hour, ran: 6 * hour, want: true},
		"nothing is expected of it":                   {ran: 100 * hour, low: 100 * hour},
		"it takes a quarter more than is left for it": {deadline: 5 * hour, ran: hour, low: 5*hour + time.Second, want: true},
		"it may meet its deadline, or nearly":         {deadline: 5 * hour, ran: hour, low: 5 * hour},
		"its deadline has passed":                     {deadline: 5 * hour, ran: 6 * hour, low: hour, want: true},
		"as expected, but beyond its deadline": {
			expect: 9 * hour, deadline: 5 * hour, ran: hour, low: 8 * hour, want: true,
		},
		"nobody knows more than its owner expects": {
			expect: 4 * hour, ran: 6 * hour, low: hour, basis: job.BasisExpect,
		},
		"the forecast is of the time before it began": {expect: 4 * hour, low: 9 * hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			r := &place.Running{Item: &queue.Item{Spec: &job.Spec{}, Outlook: &job.Outlook{}}, Began: began}
			r.Spec.Expect, r.Takes = job.Duration(tc.expect), tc.expect

			if tc.deadline > 0 {
				r.Outlook.Deadline = began.Add(tc.deadline)
			}

			f := &job.Forecast{At: began.Add(tc.ran), Basis: job.BasisSteps}
			if tc.basis != "" {
				f.Basis = tc.basis
			}

			f.Remaining = job.Band{Low: tc.low.Seconds(), Mid: 2 * tc.low.Seconds(), High: 3 * tc.low.Seconds()}

			if got := r.TooSlow(f); got != tc.want {
				t.Errorf("too slow: %v", got)
			}
		})
	}
}
