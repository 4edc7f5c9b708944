package feed

import (
	"testing"

	"trainyard/internal/yardmaster"
)

func TestTheFeedKeepsTheNewest(t *testing.T) {
	t.Parallel()
	f := New(7)
	if _, _, ok := f.After(6); ok {
		t.Error("it claims to have what is in the store alone")
	}

	seq := uint64(7)

	for range 3 * keeps / 100 {
		b := &yardmaster.Batch{}
		for range 100 {
			seq++
			b.Events = append(b.Events, yardmaster.Event{Seq: seq, Job: "j1"})
		}

		woken := f.OfJob("j1")
		f.Add(b)

		select {
		case <-woken:
		default:
			t.Fatal("who follows the job was not woken")
		}
	}

	for _, from := range []uint64{seq, seq - 1, seq - keeps + 1, seq + 10, ^uint64(0)} {
		got, _, ok := f.After(from)
		if !ok || len(got) != int(max(seq, from)-from) {
			t.Errorf("after %d there are %d, %v", from, len(got), ok)
		}
	}

	if _, _, ok := f.After(8); ok {
		t.Error("it keeps all")
	}

	if len(f.recent) > 2*keeps {
		t.Errorf("it keeps %d", len(f.recent))
	}

	left := f.OfJob("j2")
	f.Leave("j2")
	f.Leave("j2")
	<-left

	if len(f.jobs) != 0 {
		t.Errorf("it remembers %v", f.jobs)
	}
}
