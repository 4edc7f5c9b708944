package crash_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// watch follows the feed of a yard over all restarts, as a client does: it
// goes on from the last entry it got.
type watch struct {
	starting chan struct{} // a job was ordered to start; holds at most one

	mu      sync.Mutex
	events  []api.Event
	state   map[id.Job]job.State
	changed chan struct{}
}

func newWatch() *watch {
	return &watch{starting: make(chan struct{}, 1), state: map[id.Job]job.State{}, changed: make(chan struct{})}
}

// follow follows until ctx ends.
func (w *watch) follow(ctx context.Context, client *api.Client) {
	cursor := "0"
	for ctx.Err() == nil {
		// Whatever breaks the feed off, it is opened again where it was.
		_ = client.FollowEvents(ctx, api.EventFilter{Page: api.Page{Cursor: cursor}}, func(ev api.Event, next string) error {
			cursor = next
			w.take(ev)
			return nil
		})

		sleep(ctx, 20*time.Millisecond)
	}
}

func (w *watch) take(ev api.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.events = append(w.events, ev)

	if to, ok := jobState(ev); ok {
		w.state[ev.Job] = to
		if to == job.Starting {
			poke(w.starting)
		}

		close(w.changed)
		w.changed = make(chan struct{})
	}
}

// jobState returns the state that a job reached by an event, if it did.
func jobState(ev api.Event) (job.State, bool) {
	to := job.State(ev.To)
	return to, strings.HasPrefix(ev.Kind, "job.") && slices.Contains(job.States(), to)
}

// await waits until the feed says that the job is in a state that is wanted.
func (w *watch) await(ctx context.Context, j id.Job, want func(job.State) bool) error {
	for {
		w.mu.Lock()
		state, changed := w.state[j], w.changed
		w.mu.Unlock()

		if state != "" && want(state) {
			return nil
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("job %s is still %s: %w", j, state, ctx.Err())
		}
	}
}

// last returns the number of the newest entry that was seen.
func (w *watch) last() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()

	if len(w.events) == 0 {
		return 0
	}

	return w.events[len(w.events)-1].Seq
}

// output is what a run's rank printed.
type output map[string][]string

func rankOf(run id.Run, rank int) string { return string(run) + "/" + strconv.Itoa(rank) }

func (o output) add(line *api.LogLine) {
	if line.Stream == "stdout" {
		k := rankOf(line.Run, line.Rank)
		o[k] = append(o[k], line.Text)
	}
}

// followOutput follows the output of a job over all restarts to its end.
func followOutput(ctx context.Context, client *api.Client, j id.Job) (output, error) {
	got, cursor, ended := output{}, "", false
	for !ended {
		err := client.FollowLogs(ctx, j, api.LogFilter{Page: api.Page{Cursor: cursor}}, func(item api.LogItem) error {
			if item.Cursor != "" {
				cursor = item.Cursor
			}

			if item.Line != nil {
				got.add(item.Line)
			}

			ended = ended || item.End

			return nil
		})

		if ctx.Err() != nil {
			return nil, fmt.Errorf("follow the output of %s: %w", j, ctx.Err())
		}
		if err != nil && !passing(err) {
			return nil, fmt.Errorf("follow the output of %s: %w", j, err)
		}

		if !ended {
			sleep(ctx, 20*time.Millisecond)
		}
	}

	return got, nil
}

// readOutput reads all output of a job page by page. What the agents have not
// delivered yet is waited for.
func readOutput(t *testing.T, client *api.Client, j id.Job) output {
	t.Helper()
	got, cursor := output{}, ""
	for end := time.Now().Add(drainTime); ; {
		page, err := client.Logs(t.Context(), j, api.LogFilter{Page: api.Page{Cursor: cursor, Limit: 500}})
		if err != nil {
			t.Fatalf("read the output of %s: %v", j, err)
		}

		for i := range page.Lines {
			got.add(&page.Lines[i])
		}

		if page.Next == "" {
			return got
		}

		if page.Next == cursor {
			if time.Now().After(end) {
				t.Errorf("the output of %s has no end: the page after %q has no lines and is not the last", j, cursor)
				return got
			}

			time.Sleep(20 * time.Millisecond)
		}

		cursor = page.Next
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
