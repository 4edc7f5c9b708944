package ordered_test

import (
	"testing"

	"trainyard/internal/place/ordered"
)

// TestOfALongQueueTheFirstAreForeseen: so many as are asked for, and none if there is no time.
func TestOfALongQueueTheFirstAreForeseen(t *testing.T) {
	t.Parallel()
	v := fourBusy().View()
	if v.Queue.Len() < 2 {
		t.Fatalf("%d jobs are queued", v.Queue.Len())
	}

	all := ordered.ExpectStarts(v, v.Queue.Len(), neverStop)
	first := ordered.ExpectStarts(v, 1, neverStop)
	none := ordered.ExpectStarts(v, v.Queue.Len(), func() bool { return true })

	if len(first) != 1 || len(all) <= len(first) || len(none) != 0 {
		t.Errorf("%d of all, %d of one and %d without time", len(all), len(first), len(none))
	}

	for j, at := range first {
		if !all[j].Equal(at) {
			t.Errorf("%s at %s, and at %s if only it is asked for", j, all[j], at)
		}
	}
}
