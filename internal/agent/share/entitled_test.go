package share

import (
	"testing"
	"time"
)

// A job is entitled to its share of the time in which it wants the GPU. One that rests lacks nothing meanwhile.
func TestWhoWantsNothingIsEntitledToNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("busy", Terms{Weight: 0.5}, &actor{})
	w.join("idle", Terms{Weight: 0.5}, &actor{work: 20 * time.Millisecond, rest: 2 * time.Second})
	w.run(60 * time.Second)

	busy, idle := w.a.clients["busy"].use, w.a.clients["idle"].use
	if busy.Entitled < 29*time.Second || busy.Entitled > 31*time.Second {
		t.Errorf("who always wants the GPU is entitled to %s of a minute", busy.Entitled)
	}

	if idle.Demanded > 15*time.Second || idle.Entitled > idle.Demanded/2+time.Millisecond {
		t.Errorf("who wants it for %s is entitled to %s", idle.Demanded, idle.Entitled)
	}
}
