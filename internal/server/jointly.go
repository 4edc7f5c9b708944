package server

import (
	"context"
	"sync"
)

// jointly answers callers who ask the same question at the same time with one answer. Its making begins after each of
// them has asked, so that everyone sees what they have changed before. While it is made, those who ask wait for the
// next one.
type jointly[V any] struct {
	mu      sync.Mutex
	answers map[string]*jointAnswer[V] // by question: the one that is being made
}

type jointAnswer[V any] struct {
	done  chan struct{} // closed when it is there
	value V
	err   error
	next  *jointAnswer[V] // for those who asked since its making began; nil if nobody did
}

// ask returns the answer to a question, which read makes for all who wait for it. It is not cancelled with the caller
// for whom it was begun, but has no more time than that.
func (j *jointly[V]) ask(ctx context.Context, question string, read func(context.Context) (V, error)) (V, error) {
	before, answer, mine := j.enter(question)
	if before != nil && mine {
		<-before.done
	}

	if mine {
		j.make(ctx, question, answer, read)
	}

	select {
	case <-answer.done:
		return answer.value, answer.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// enter returns the answer that the caller waits for and the one that is made before it, nil if there is none. Who is
// the first to wait for an answer makes it.
func (j *jointly[V]) enter(question string) (before, answer *jointAnswer[V], mine bool) {
	j.mu.Lock()
	defer j.mu.Unlock()

	before = j.answers[question]
	if before != nil && before.next != nil {
		return before, before.next, false
	}

	answer = &jointAnswer[V]{done: make(chan struct{})}
	if before != nil {
		before.next = answer
		return before, answer, true
	}

	if j.answers == nil {
		j.answers = map[string]*jointAnswer[V]{}
	}

	j.answers[question] = answer

	return nil, answer, true
}

func (j *jointly[V]) make(
	ctx context.Context, question string, answer *jointAnswer[V], read func(context.Context) (V, error),
) {
	answer.err = errInternal() // of those who wait, if making it panics

	defer func() {
		j.mu.Lock()
		defer j.mu.Unlock()

		if answer.next != nil {
			j.answers[question] = answer.next
		} else {
			delete(j.answers, question)
		}

		close(answer.done)
	}()

	own := context.WithoutCancel(ctx)
	if end, limited := ctx.Deadline(); limited {
		var stop context.CancelFunc

		own, stop = context.WithDeadline(own, end)
		defer stop()
	}

	answer.value, answer.err = read(own)
}
