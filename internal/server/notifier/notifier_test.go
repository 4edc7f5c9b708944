package notifier

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func TestEachEventIsDeliveredOnceToTheChannelsThatWantIt(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	all, some := newReceiver(t), newReceiver(t)
	k.happens("job.failed", "before there was a channel")
	k.clock.advance(time.Second)
	k.channel("all", all.URL)
	k.channel("some", some.URL, tenant.TopicFailed)

	for _, e := range [][2]string{
		{"job.running", "of no topic"}, {"job.succeeded", "a"}, {"job.failed", "b"}, {"job.progress_stalled", "c"},
		{"job.metric_not_number", "d"}, {"inbox.asked", "e"}, {"budget.used_up", "f"}, {"budget.free", "nothing to do"},
	} {
		k.happens(e[0], e[1])
	}

	for range 10 {
		k.settle()
	}

	wantReasons(t, all, "a", "b", "c", "d", "e", "f")
	wantReasons(t, some, "b")

	if n := k.stored(); n != 0 {
		t.Errorf("%d deliveries stayed in the store", n)
	}

	k.restart()
	k.settle()
	wantReasons(t, some, "b")
}

func TestNothingIsLostOrQueuedTwiceWhenTheServerIsKilled(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	r := newReceiver(t)
	k.channel("ci", r.URL)
	k.settle()

	// Committed, and the server is killed before the notifier has seen it.
	k.happens("job.failed", "unread")
	k.restart()
	k.settle()
	wantReasons(t, r, "unread")

	// Queued, and the receiver is down: the attempt and its time are kept.
	r.answer(http.StatusBadGateway)
	k.happens("job.failed", "queued")
	k.settle()
	k.settle()
	k.restart()
	k.settle()
	wantReasons(t, r, "unread", "queued") // the next attempt is not due
	r.answer(http.StatusOK)
	k.clock.advance(firstPause)
	k.settle()
	wantReasons(t, r, "unread", "queued", "queued")

	// Delivered, and the server is killed before that is noted: once more, under the same id.
	k.store.set(nil, errBroken)
	k.happens("job.failed", "answered")
	k.settle()
	k.settle()
	k.store.set(nil, nil)
	k.restart()
	k.settle()
	wantReasons(t, r, "unread", "queued", "queued", "answered", "answered")

	got := r.all()
	if got[1].id() != got[2].id() || got[3].id() != got[4].id() || got[0].id() == got[1].id() || got[0].id() == "" {
		t.Errorf("ids %s %s %s %s %s", got[0].id(), got[1].id(), got[2].id(), got[3].id(), got[4].id())
	}
}

// TestADeliveredMessageIsNotSentAgainWhileTheStoreFails: the notifier knows what it has sent.
func TestADeliveredMessageIsNotSentAgainWhileTheStoreFails(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	r := newReceiver(t)
	k.channel("ci", r.URL)

	k.store.set(errBroken, nil)
	k.happens("job.failed", "a")
	k.settle()
	wantReasons(t, r) // not stored, so not sent: a crash could forget it

	k.store.set(nil, errBroken)
	for range 5 {
		k.settle()
		k.clock.advance(time.Hour)
	}

	wantReasons(t, r, "a")
	k.store.set(nil, nil)
	k.settle()

	if n := k.stored(); n != 0 {
		t.Errorf("%d deliveries stayed in the store", n)
	}
}

func TestAFailedDeliveryIsRetriedWithBackOffAndGivenUp(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	r := newReceiver(t)
	r.answer(http.StatusInternalServerError)
	k.channel("ci", r.URL)
	k.happens("job.failed", "a")

	k.settle()
	k.settle() // takes in the answer; the next attempt is not due
	for _, wait := range []time.Duration{firstPause, 2 * firstPause, 4 * firstPause} {
		before := len(r.all())
		k.clock.advance(wait - time.Millisecond)
		k.settle()

		if n := len(r.all()); n != before {
			t.Fatalf("%d attempts before the pause of %s was over, want %d", n, wait, before)
		}

		k.clock.advance(time.Millisecond)
		k.settle()
		k.settle()

		if n := len(r.all()); n != before+1 {
			t.Fatalf("%d attempts after a pause of %s, want %d", n, wait, before+1)
		}
	}

	for range 30 {
		k.clock.advance(maxPause)
		k.settle()
		k.settle()
	}

	gaveUp := k.events(yardmaster.EventNotifyGaveUp)
	if len(gaveUp) != 1 || !strings.Contains(gaveUp[0], "user/ada/ci") || !strings.Contains(gaveUp[0], "answered 500") {
		t.Errorf("events about what was given up: %q", gaveUp)
	}

	attempts := len(r.all())
	k.clock.advance(GiveUpAfter)
	k.settle()

	if len(r.all()) != attempts || k.stored() != 0 {
		t.Errorf("%d attempts and %d stored after it was given up, want %d and none", len(r.all()), k.stored(), attempts)
	}
}

func TestAReceiverThatHangsHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	slow, quick := newReceiver(t), newReceiver(t)
	slow.gate = make(chan struct{})
	k.channel("a-slow", slow.URL)
	k.channel("quick", quick.URL)

	for i := range 3 {
		k.happens("job.failed", fmt.Sprint(i))
	}

	for end := time.Now().Add(5 * time.Minute); len(quick.all()) < 3 ||
		len(slow.all()) < 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d reached the quick receiver, %d the slow one", len(quick.all()), len(slow.all()))
		}

		k.n.pass(k.ctx) // returns although the receiver does not answer
	}

	if n := len(slow.all()); n != 1 {
		t.Errorf("%d messages are under way to one receiver, want 1", n)
	}

	close(slow.gate)
	k.settle()
}

func TestWhatWaitsForAChannelIsBounded(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	r := newReceiver(t)
	r.answer(http.StatusServiceUnavailable)
	k.channel("ci", r.URL)

	k.happens("job.failed", slices.Repeat([]string{"x"}, maxWaiting+50)...)
	k.settle()

	if n := k.stored(); n != maxWaiting {
		t.Errorf("%d deliveries wait, want %d", n, maxWaiting)
	}

	if e := k.events(yardmaster.EventNotifyDropped); len(e) != 1 {
		t.Errorf("events about what was dropped: %q", e)
	}
}

func TestARemovedChannelGetsNothingMore(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	r := newReceiver(t)
	r.answer(http.StatusServiceUnavailable)
	k.channel("ci", r.URL)
	k.happens("job.failed", "a")
	k.settle()
	k.settle()
	k.do(yardmaster.RemoveChannel{Subject: tenant.Subject{User: "ada"}, Name: "ci", By: "ada"})
	k.clock.advance(time.Hour)
	k.settle()
	k.settle()

	if n := len(r.all()); n != 1 || k.stored() != 0 {
		t.Errorf("%d attempts, %d stored, want 1 and none", n, k.stored())
	}
}

func TestADisabledUserIsNotNotified(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	r := newReceiver(t)
	k.channel("ci", r.URL)
	k.do(yardmaster.PutUser{User: "ada", Role: tenant.Researcher, Disabled: true, By: "test"})
	k.happens("job.failed", "a")
	k.settle()
	wantReasons(t, r)
}
