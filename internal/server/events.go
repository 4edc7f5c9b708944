package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (s *Server) eventRoutes() {
	huma.Register(
		s.api,
		huma.Operation{
			OperationID: "list-events",
			Method:      http.MethodGet,
			Path:        "/api/v1/events",
			Summary:     "List events, oldest first",
			Security:    byToken,
			Tags:        []string{"events"},
		},
		s.listEvents,
	)

	huma.Register(
		s.api,
		httpapi.Streaming(huma.Operation{
			OperationID: "follow-events",
			Method:      http.MethodGet,
			Path:        "/api/v1/events/follow",
			Summary:     "Follow events live",
			Description: "Each item is an Event whose id is its sequence number. " +
				"With a cursor the feed resumes after it without gaps.",
			Security: byToken,
			Tags:     []string{"events"},
		}),
		s.followEvents,
	)
}

type eventInput struct {
	Paging
	Kind   string `query:"kind" maxLength:"60" doc:"only events of this kind, or of all kinds that begin so: job includes job.running, job.progress includes job.progress_stalled"`
	Job    string `query:"job" maxLength:"68" doc:"id of a job, its name, name@last or @last"`
	Node   string `query:"node" maxLength:"63"`
	Actor  string `query:"actor" maxLength:"80" doc:"only events that this user, node (node/NAME) or token (token/ID) caused"`
	Audit  bool   `query:"audit" doc:"only what callers of the API caused, with their tokens and addresses"`
	Tail   int    `query:"tail" minimum:"0" maximum:"10000" doc:"without a cursor: number of most recent events to start with"`
	Before uint64 `query:"before" doc:"with tail: only events before the one with this number, for pages of older events"`
	// Specs is for who wants to simulate what happened.
	Specs bool `query:"specs" doc:"include job specs in submission events"`
}

// eventFilter says what of the feed the caller may see: an admin or operator all of it,
// others what concerns their own things, and jobs that they may read.
func (s *Server) eventFilter(ctx context.Context, in *eventInput) (store.EventFilter, error) {
	who := callerOf(ctx)
	f := store.EventFilter{Kind: in.Kind, Node: id.Node(in.Node), Actor: in.Actor, Audit: in.Audit, Limit: in.Limit}

	about, err := s.jobFilter(ctx, in.Job)
	if err != nil {
		return f, err
	}

	f.Job = about

	whole, err := s.wholeStory(ctx, f.Job)
	if err != nil {
		return f, err
	}

	if !whole && !who.May(tenant.ReadEvents, "") {
		f.Owner = who.User
		if err := allow(ctx, tenant.ReadEvents, f.Owner); err != nil {
			return f, err
		}
	}

	after, err := parseSeq(in.Cursor)
	f.After = after

	return f, err
}

// wholeStory reports whether the events of one job are asked for, by who may read it whosever it is.
func (s *Server) wholeStory(ctx context.Context, name id.Job) (bool, error) {
	if name == "" || len(callerOf(ctx).Sees(tenant.ReadJob)) == 0 {
		return false, nil
	}

	_, err := s.readJob(ctx, string(name))
	if fault.KindOf(err) == fault.NotFound {
		return false, nil
	}

	return err == nil, err
}

// eventTail returns the last events that are asked for, and moves the filter behind them; none with a cursor.
func (s *Server) eventTail(ctx context.Context, in *eventInput, f *store.EventFilter) ([]yardmaster.Event, error) {
	if in.Cursor != "" || in.Tail == 0 {
		return nil, nil
	}

	last, newest := s.Feed.Last(), *f
	newest.Newest, newest.Limit, newest.Before = true, in.Tail, in.Before

	events, err := s.Store.Events(ctx, newest)
	if err != nil {
		return nil, err
	}

	f.After = last // nothing up to here is missing from them
	if len(events) > 0 {
		f.After = max(last, events[len(events)-1].Seq)
	}

	return events, nil
}

func (s *Server) listEvents(ctx context.Context, in *eventInput) (*httpapi.Body[api.EventPage], error) {
	f, err := s.eventFilter(ctx, in)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	events, err := s.eventTail(ctx, in, &f)
	if err == nil && len(events) == 0 && in.Before == 0 {
		events, err = s.Store.Events(ctx, f)
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	events = events[:min(len(events), in.Limit)]

	page := api.EventPage{Events: []api.Event{}, Next: strconv.FormatUint(f.After, 10)}
	for i := range events {
		e := eventFor(callerOf(ctx), &events[i])
		if in.Specs && e.Kind == "job.submitted" {
			spec, err := s.specOf(ctx, e.Job)
			if err != nil {
				return nil, s.fail(ctx, err)
			}

			e.Spec = spec
		}

		page.Events = append(page.Events, e)
		page.Next = strconv.FormatUint(events[i].Seq, 10)
	}

	return &httpapi.Body[api.EventPage]{Body: page}, nil
}

// specOf returns the spec of a job; none if the job was removed.
func (s *Server) specOf(ctx context.Context, name id.Job) (json.RawMessage, error) {
	j, err := s.Store.Job(ctx, name)
	if fault.KindOf(err) == fault.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	return json.Marshal(maskEnv(j.Spec))
}

func (s *Server) followEvents(ctx context.Context, in *eventInput) (*huma.StreamResponse, error) {
	f, err := s.eventFilter(ctx, in)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	if in.Cursor == "" && in.Tail == 0 {
		f.After = s.Feed.Last()
	}

	f.Limit = followBatch

	tail, err := s.eventTail(ctx, in, &f)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	leave, err := s.streams.Take(string(callerOf(ctx).User))
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer leave()

		req, w := humago.Unwrap(hc)
		out := httpapi.NewStream(w)
		ctx, stop := s.lasting(req.Context())
		defer stop()

		for i := range tail {
			if !out.Send(strconv.FormatUint(tail[i].Seq, 10), "", eventFor(callerOf(ctx), &tail[i])) {
				return
			}
		}

		s.endFeed(ctx, s.sendEvents(ctx, f, out), out, "events")
	}}, nil
}

// sendEvents sends the feed from memory, and from the store what is older.
func (s *Server) sendEvents(ctx context.Context, f store.EventFilter, out *httpapi.Stream) error {
	who := callerOf(ctx)

	for {
		last := s.Feed.Last()
		events, changed, ok := s.Feed.After(f.After)
		upTo := uint64(0) // all events up to this one have been looked at

		if !ok {
			var err error
			events, err = s.Store.Events(ctx, f)
			if err != nil {
				return err
			}

			ok = len(events) < f.Limit
			if ok {
				upTo = last
			}
		}

		// After reading: the directory hears of a revocation before the feed has what happened since.
		if _, err := s.stillMay(who); err != nil {
			return err
		}

		for i := range events {
			e := &events[i]
			f.After = e.Seq
			if lets(&f, e) && !out.Add(strconv.FormatUint(e.Seq, 10), "", eventFor(who, e)) {
				return nil
			}
		}

		if !out.Flush() {
			return nil
		}

		f.After = max(f.After, upTo)

		if ok && !httpapi.WaitAny(ctx, out, []<-chan struct{}{changed}) {
			return nil
		}
	}
}

// eventFor is an event as the caller may see it: from where and with which token others did something is for those who
// may see all of the feed.
func eventFor(who caller, e *yardmaster.Event) api.Event {
	out := toEvent(e)
	if out.Actor != string(who.User) && !who.May(tenant.ReadEvents, "") {
		out.Token, out.Address = "", ""
	}

	return out
}

// lets reports whether a filter lets an event through, as the store does.
func lets(f *store.EventFilter, e *yardmaster.Event) bool {
	return (f.Kind == "" || e.Kind == f.Kind || strings.HasPrefix(e.Kind, f.KindPrefix())) && (f.Owner == "" ||
		e.Owner == f.Owner) && (f.Job == "" || e.Job == f.Job) &&
		(f.Node == "" || e.Node == f.Node) && (f.Actor == "" || e.Actor == f.Actor) && (!f.Audit || e.Address != "")
}
