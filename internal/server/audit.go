package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/yardmaster"
)

// What changes something is in the feed with the change. Calls that were refused, and reading what belongs to others,
// change nothing and can be made as often as anybody likes: they are counted, and the feed gets the counts.

// accessLog counts calls until the feed has them. It is safe for concurrent use.
type accessLog struct {
	clock clock.Clock

	mu      sync.Mutex
	pending map[accessKey]*accessCount
	noted   map[accessKey]time.Time // when the feed last got an entry of them
	budget  float64                 // entries that the feed may get now
	filled  time.Time               // when the budget was last looked at
}

// accessKey is what calls have in common that share an entry.
type accessKey struct {
	yardmaster.Origin
	kind  string
	code  string // of the refusal, or what was read
	owner id.User
	job   id.Job
}

// accessCount is how many there were, and the last of them.
type accessCount struct {
	calls int
	last  string
}

const (
	accessEvery  = time.Second // how often the feed gets what there is
	accessQuiet  = time.Minute // how long an entry of the same calls waits after another
	accessBudget = 60          // entries in a minute, of all callers together
	accessKeys   = 1000        // how many callers are told apart; the others are counted together
)

func newAccessLog(clk clock.Clock) *accessLog {
	return &accessLog{
		clock: clk, pending: map[accessKey]*accessCount{}, noted: map[accessKey]time.Time{},
		budget: accessBudget, filled: clk.Now(),
	}
}

// add counts a call.
func (l *accessLog) add(key accessKey, calls int, last string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if _, known := l.pending[key]; !known && len(l.pending) >= accessKeys {
		key = accessKey{Origin: yardmaster.Origin{Actor: "others", Address: "several"}, kind: key.kind, code: "several"}
	}

	count, ok := l.pending[key]
	if !ok {
		count = &accessCount{}
		l.pending[key] = count
	}

	count.calls += calls
	count.last = last
}

// take returns what the feed may get now, and forgets it.
func (l *accessLog) take() map[accessKey]*accessCount {
	now := l.clock.Now()

	l.mu.Lock()
	defer l.mu.Unlock()

	l.budget = min(accessBudget, l.budget+accessBudget*now.Sub(l.filled).Minutes())
	l.filled = now

	for key, at := range l.noted {
		if now.Sub(at) >= accessQuiet {
			delete(l.noted, key)
		}
	}

	taken := map[accessKey]*accessCount{}

	for key, count := range l.pending {
		if _, quiet := l.noted[key]; quiet || l.budget < 1 {
			continue
		}

		l.budget--
		l.noted[key] = now
		taken[key] = count
		delete(l.pending, key)
	}

	return taken
}

// run gives the counts to the feed until ctx ends.
func (l *accessLog) run(ctx context.Context, do func(context.Context, yardmaster.Message) (any, error)) {
	clock.Every(ctx, l.clock, accessEvery, func(time.Time) {
		taken := l.take()
		if len(taken) == 0 {
			return
		}

		note := yardmaster.NoteAccess{}
		for key, count := range taken {
			note.Calls = append(note.Calls, yardmaster.Access{
				Origin: key.Origin, Kind: key.kind, Owner: key.owner, Job: key.job, Count: count.calls,
				Reason: key.sentence(count),
			})
		}

		if _, err := do(ctx, note); err != nil { // nothing can be stored now: later
			for key, count := range taken {
				l.add(key, count.calls, count.last)
			}
		}
	})
}

func (k *accessKey) sentence(count *accessCount) string {
	if k.kind == yardmaster.EventRead {
		return fmt.Sprintf("read %s", k.code)
	}
	if k.kind == yardmaster.EventTunnel {
		return fmt.Sprintf("opened %s, %s", k.code, humanize.Count(count.calls, "time"))
	}

	return fmt.Sprintf("%s refused (%s), the last one: %s", humanize.Count(count.calls, "call"), k.code, count.last)
}

// originOf says who sends a request, with which token and from where.
func originOf(ctx context.Context) yardmaster.Origin {
	r := httpapi.RecordOf(ctx)

	return yardmaster.Origin{Actor: r.Actor, Token: r.Token, Address: r.Address}
}

// noteRead puts into the audit record that the caller reads something of an owner.
func (s *Server) noteRead(ctx context.Context, owner id.User, j id.Job, what string) {
	s.access.add(accessKey{Origin: originOf(ctx), kind: yardmaster.EventRead, code: what, owner: owner, job: j}, 1, "")
}

// hide notes that the caller is told that something does not exist because it is not for them.
func hide(ctx context.Context) { httpapi.RecordOf(ctx).Hidden = true }

// audited keeps a record of each request, and counts those that are refused.
func (s *Server) audited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, record := httpapi.WithRecord(r, r.TLS != nil && s.CA.IsPeer(r.TLS, s.Clock.Now()))
		seen := &observed{ResponseWriter: w}
		next.ServeHTTP(seen, r)

		if !seen.refused() && !record.Hidden {
			return
		}

		origin := yardmaster.Origin{Actor: record.Actor, Token: record.Token, Address: record.Address}
		if origin.Actor == "" {
			origin.Actor = "unknown"
		}

		operation := r.Pattern // of the route, so that nothing that a caller makes up gets into the feed
		if operation == "" {
			operation = "an unknown path"
		}

		s.access.add(accessKey{Origin: origin, kind: yardmaster.EventRefused, code: seen.code()}, 1, operation)
	})
}

// observed is an answer whose status is noted, and of a refusal its text.
type observed struct {
	http.ResponseWriter
	status int
	text   []byte
}

// maxObserved bounds how much of a refusal is kept to find its code in it.
const maxObserved = 4096

func (o *observed) WriteHeader(status int) {
	if o.status == 0 {
		o.status = status
	}

	o.ResponseWriter.WriteHeader(status)
}

func (o *observed) Write(text []byte) (int, error) {
	if o.status >= http.StatusBadRequest && len(o.text) < maxObserved {
		o.text = append(o.text, text[:min(len(text), maxObserved-len(o.text))]...)
	}

	return o.ResponseWriter.Write(text)
}

// Unwrap is for http.ResponseController.
func (o *observed) Unwrap() http.ResponseWriter { return o.ResponseWriter }

func (o *observed) refused() bool {
	return o.status == http.StatusUnauthorized || o.status == http.StatusForbidden ||
		o.status == http.StatusTooManyRequests
}

// code is the code of the refusal.
func (o *observed) code() string {
	var p api.Problem
	if json.Unmarshal(o.text, &p) == nil && p.Code != "" {
		return p.Code
	}

	return http.StatusText(o.status)
}
