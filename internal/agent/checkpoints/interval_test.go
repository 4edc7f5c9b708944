package checkpoints

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// handClock is a clock that the test moves.
type handClock struct{ at time.Time }

func (c *handClock) Now() time.Time          { return c.at }
func (c *handClock) advance(d time.Duration) { c.at = c.at.Add(d) }

// looks is a saver whose directory is looked at when the test says so.
type looks struct {
	*Saver
	t    *testing.T
	root *os.Root
	find *finder
	now  *handClock
}

func newLooks(t *testing.T, y *fakeYard, every time.Duration) *looks {
	t.Helper()
	c, rank := newCheckpoints(t, y), newRank(t)
	now := &handClock{time.Now()}
	c.opt.Clock, c.opt.Interval, rank.Every = now, time.Minute, every
	write(t, rank.Dir, map[string]string{"model.pt": "0"})

	root, err := os.OpenRoot(rank.Dir)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = root.Close() })

	return &looks{
		Saver: newSaver(c, rank),
		t:     t, root: root, now: now, find: &finder{ranks: 1, renamed: map[string]bool{"model.pt": true}},
	}
}

// replace replaces the file as programs do that never leave half of one, and reports whether the saver stores it.
func (l *looks) replace(text string, end *ending) bool {
	l.t.Helper()
	name := filepath.Join(l.rank.Dir, "model.pt")

	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Chtimes(name+".new", time.Time{}, l.now.Now()); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		l.t.Fatal(err)
	}

	return l.look(end)
}

func (l *looks) look(end *ending) bool {
	l.t.Helper()

	saved, err := l.round(l.t.Context(), l.root, l.find, end)
	if err != nil {
		l.t.Fatal(err)
	}

	return saved
}

func TestAFileThatIsReplacedAllTheTimeIsStoredAtIntervals(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct{ every, interval time.Duration }{
		"by default":               {0, time.Minute},
		"as often as the job says": {10 * time.Minute, 5 * time.Minute},
		"more often if it says so": {10 * time.Second, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			l := newLooks(t, y, c.every)

			if !l.look(nil) {
				t.Fatal("the first one is not stored")
			}

			l.now.advance(c.interval - 1)

			if l.replace("too soon", nil) {
				t.Error("stored again before the interval has passed")
			}

			l.now.advance(1)

			if !l.look(nil) {
				t.Error("not stored again after the interval")
			}

			if !l.replace("the last", &ending{at: l.now.Now(), clean: true}) {
				t.Error("the last one is not stored at the end of the program")
			}
		})
	}
}

func TestACheckpointThatWasAskedForIsStoredAtOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	l := newLooks(t, y, 0)

	if !l.look(nil) || l.replace("too soon", nil) {
		t.Fatal("the interval is not kept")
	}

	l.now.advance(time.Second)
	l.Request(1)

	if !l.look(nil) {
		t.Error("what was there when it was asked for is not stored")
	}

	if !l.replace("asked for", nil) {
		t.Error("the one that was written after the request is not stored")
	}

	l.Request(1) // the same again

	if l.replace("too soon", nil) {
		t.Error("one request has lifted the interval for good")
	}
}

func TestCheckpointsWithStepsAreStoredHoweverSoonTheyFollow(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	l := newLooks(t, y, 0)
	l.find.renamed = nil

	for _, step := range []string{"5", "6"} {
		write(t, l.rank.Dir, huggingFace(step, "adam", []byte(step)))
		l.look(nil) // seen for the first time
		l.now.advance(time.Second)

		if !l.look(nil) {
			t.Errorf("checkpoint-%s is not stored", step)
		}
	}
}
