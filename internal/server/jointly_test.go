package server

import (
	"context"
	"errors"
	"sync"
	"testing"

	"trainyard/internal/clock"
)

// waiters waits until an answer is made and the next one is waited for.
func (j *jointly[V]) waiters(t *testing.T, question string) {
	t.Helper()

	for waits := false; !waits; clock.Sleep(t.Context(), 0) {
		j.mu.Lock()
		waits = j.answers[question] != nil && j.answers[question].next != nil
		j.mu.Unlock()
	}
}

func TestWhoAsksSeesWhatWasChangedBefore(t *testing.T) {
	t.Parallel()

	var j jointly[int]
	var changes int
	var once sync.Once

	begun, release := make(chan struct{}), make(chan struct{})
	read := func(context.Context) (int, error) {
		seen := changes

		once.Do(func() {
			close(begun)
			<-release
		})

		return seen, nil
	}

	var all sync.WaitGroup
	all.Go(func() {
		if got, err := j.ask(t.Context(), "q", read); got != 0 || err != nil {
			t.Errorf("the first: %d, %v", got, err)
		}
	})
	<-begun

	changes = 7 // after the first one was begun, before the others ask

	for range 20 {
		all.Go(func() {
			if got, err := j.ask(t.Context(), "q", read); got != 7 || err != nil {
				t.Errorf("after the change: %d, %v", got, err)
			}
		})
	}

	j.waiters(t, "q")

	if got, err := j.ask(t.Context(), "other", func(context.Context) (int, error) { return 3, nil }); got != 3 || err != nil {
		t.Errorf("another question: %d, %v", got, err)
	}

	close(release)
	all.Wait()

	if len(j.answers) > 0 {
		t.Errorf("%d answers are left", len(j.answers))
	}
}

func TestOneOfThoseWhoWaitMakesTheAnswer(t *testing.T) {
	t.Parallel()

	var j jointly[int]
	_, first, _ := j.enter("q")
	before, next, mine := j.enter("q")
	_, shared, second := j.enter("q")

	if before != first || !mine || shared != next || second {
		t.Fatalf("the second makes its answer: %v, after the first: %v; the third shares it: %v, and makes it: %v",
			mine, before == first, shared == next, second)
	}

	read := func(context.Context) (int, error) { return 5, nil }
	j.make(t.Context(), "q", first, read)
	j.make(t.Context(), "q", next, read)
	<-shared.done

	if shared.value != 5 || len(j.answers) > 0 {
		t.Errorf("%d; %d answers are left", shared.value, len(j.answers))
	}
}

func TestAnAnswerDoesNotEndWithWhoAskedFirst(t *testing.T) {
	t.Parallel()

	var j jointly[int]
	begun, release := make(chan struct{}), make(chan struct{})
	slow := func(context.Context) (int, error) {
		close(begun)
		<-release

		return 1, nil
	}

	var all sync.WaitGroup
	all.Go(func() { _, _ = j.ask(t.Context(), "q", slow) })
	<-begun

	gone, leave := context.WithCancel(t.Context())
	all.Go(func() { // waits first, and makes the next answer
		_, err := j.ask(gone, "q", func(ctx context.Context) (int, error) { return 2, ctx.Err() })
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	j.waiters(t, "q")
	all.Go(func() {
		if got, err := j.ask(t.Context(), "q", func(context.Context) (int, error) { return 2, nil }); got != 2 || err != nil {
			t.Errorf("%d, %v", got, err)
		}
	})

	leave()
	close(release)
	all.Wait()
}

func TestAPanicIsAnErrorForTheOthers(t *testing.T) {
	t.Parallel()

	var j jointly[int]
	begun, release := make(chan struct{}), make(chan struct{})

	var all sync.WaitGroup
	all.Go(func() {
		_, _ = j.ask(t.Context(), "q", func(context.Context) (int, error) {
			close(begun)
			<-release

			return 1, nil
		})
	})
	<-begun

	all.Go(func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was lost")
			}
		}()

		_, _ = j.ask(t.Context(), "q", func(context.Context) (int, error) { panic("lost") })
	})
	j.waiters(t, "q")

	_, answer, mine := j.enter("q")
	close(release)
	<-answer.done
	all.Wait()

	if mine || answer.err == nil {
		t.Errorf("mine: %v, error %v", mine, answer.err)
	}

	if got, err := j.ask(t.Context(), "q", func(context.Context) (int, error) { return 4, nil }); got != 4 || err != nil {
		t.Errorf("asked again: %d, %v", got, err)
	}
}
