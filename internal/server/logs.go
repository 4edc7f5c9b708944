package server

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs/archive"
	"trainyard/internal/pattern"
	"trainyard/internal/retention"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/store"
)

func (s *Server) logRoutes() {
	huma.Register(
		s.api,
		huma.Operation{
			OperationID: "read-logs",
			Method:      http.MethodGet,
			Path:        "/api/v1/jobs/{job}/logs",
			Summary:     "Read or search the output of a job",
			Description: "A request looks at a bounded amount of output: a page may have fewer lines than asked for, or " +
				"none, and a cursor to continue from. For a few seconds after the end of a job the server waits for its last " +
				"lines before it answers.",
			Security: byToken,
			Tags:     []string{"logs"},
		},
		s.readLogs,
	)

	huma.Register(
		s.api,
		httpapi.Streaming(huma.Operation{
			OperationID: "follow-logs",
			Method:      http.MethodGet,
			Path:        "/api/v1/jobs/{job}/logs/follow",
			Summary:     "Follow the output of a job live",
			Description: "Items are LogLine; events of kind state carry the Job when its state changes, " +
				"and kind end carries the Job after its last line. Whoever reads more slowly than a running job prints, for " +
				"several seconds, skips lines: a LogLine of the stream yard with skipped says how many.",
			Security: byToken,
			Tags:     []string{"logs"},
		}),
		s.followLogs,
	)

	s.rankLogRoutes()
}

type logInput struct {
	Paging
	Job    string `path:"job" maxLength:"68" doc:"its id, its name, name@last or @last"`
	Run    string `query:"run" maxLength:"50" doc:"only this run; default: all runs"`
	Rank   int    `query:"rank" minimum:"-1" maximum:"4095" default:"-1" doc:"only this rank"`
	Stream string `query:"stream" enum:"stdout,stderr,yard" doc:"only this stream"`
	Grep   string `query:"grep" maxLength:"1000" doc:"only lines that match this regular expression"`
	Errors bool   `query:"errors" doc:"only lines that look like errors"`
	Tail   int    `query:"tail" minimum:"0" maximum:"100000" doc:"number of last lines of the latest run to start with"`

	Since    time.Time `query:"since" doc:"only lines that began at or after this time"`
	Until    time.Time `query:"until" doc:"only lines that began before this time"`
	Collapse bool      `query:"collapse" doc:"leave only the last state of a line that was rewritten with carriage returns, as progress bars are; it then begins with a carriage return"`
}

// looks reports whether lines are looked for, so that reading may take long.
func (in *logInput) looks() bool {
	return in.Grep != "" || in.Errors || in.Stream != "" || in.Tail != 0 || !in.Since.IsZero() || !in.Until.IsZero()
}

// logReader reads a job's output run after run, rank after rank.
type logReader struct {
	s      *Server
	job    job.Job
	run    job.Run
	only   bool // one run only
	rank   int  // -1 for all
	filter archive.Filter
	at     archive.Cursor

	bytes  int             // how many bytes of text are read at a time; 0 for no bound
	upTo   *archive.Cursor // reads as if the output ended here; nil for all of it
	beyond bool            // the cursor is after the end of the output

	marking bool     // keep marks
	marks   []string // the cursor after each line of the last call of next
}

// openLogs opens the output of a job that the caller may read.
func (s *Server) openLogs(ctx context.Context, j job.Job, in *logInput) (_ *logReader, err error) {
	r := &logReader{s: s, job: j, rank: in.Rank, at: archive.Cursor{Epoch: 1}}
	r.filter = archive.Filter{Stream: in.Stream, Since: in.Since, Until: in.Until, Collapse: in.Collapse}
	r.filter.Budget, r.filter.Errors = s.searches.budget(), in.Errors

	r.filter.Grep, err = compileGrep(in.Grep)
	if err != nil {
		return nil, err
	}

	if in.Run != "" {
		owner, epoch, ok := id.Run(in.Run).Split()
		if !ok || owner != j.ID {
			return nil, fault.New(fault.NotFound, "run_not_found", "job %s has no run %s", j.ID, in.Run).WithField("run")
		}

		r.only, r.at.Epoch = true, epoch
	} else if in.Tail > 0 {
		r.at.Epoch = max(j.Epoch, 1)
	}

	if in.Cursor != "" {
		at, err := archive.ParseCursor(in.Cursor)
		if err != nil || r.only && at.Epoch != r.at.Epoch {
			return nil, badCursor(in.Cursor)
		}

		r.at = at
	}

	if err := r.load(ctx); err != nil && (r.only || fault.KindOf(err) != fault.NotFound) {
		return nil, err
	}
	if err := r.checkRank(); err != nil {
		return nil, err
	}
	if in.Tail > 0 && in.Cursor == "" {
		return r, r.toTail(ctx, in.Tail)
	}

	return r, nil
}

// compileGrep compiles the expression of a search; nil if there is none.
func compileGrep(text string) (*pattern.Pattern, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no expression is no error
	}

	p, err := pattern.Compile(text)
	if err != nil {
		return nil, fault.New(fault.Invalid, "bad_pattern", "invalid regular expression %q: %v", text, err).WithField("grep")
	}

	return p, nil
}

// readableOutput returns a job whose output the caller may read, and is there.
func (s *Server) readableOutput(ctx context.Context, name string) (job.Job, error) {
	j, err := s.readJob(ctx, name)
	if err != nil {
		return j, err
	}

	if !s.Limits.KeepsOutput(s.Clock.Now(), &j) {
		return j, fault.New(fault.NotFound, "output_removed", "the output of job %s was removed: it ended more than %s ago",
			j.ID, humanize.Duration(s.Limits.Output))
	}

	if err := s.checkOutput(ctx, &j); err != nil {
		return j, err
	}

	if j.Owner != callerOf(ctx).User {
		s.noteRead(ctx, j.Owner, j.ID, "the output of job "+string(j.ID))
	}

	return j, nil
}

// checkRank refuses a rank that the job does not have: its output would be empty for ever. Another run of a job may
// have another number of ranks, so that only beyond the most it asks for it is certain.
func (r *logReader) checkRank() error {
	most := max(r.job.Spec.Resources.Nodes.Max, len(r.run.Ranks))
	if r.only {
		most = len(r.run.Ranks)
	}

	if r.rank < 0 || r.rank < most || r.job.Spec.Resources.Nodes.Max == 0 {
		return nil
	}

	return fault.New(fault.NotFound, "rank_not_found", "job %s has no rank %d", r.job.ID, r.rank).WithField("rank").
		WithRemedy("it has %s, numbered from 0", humanize.Count(most, "rank"))
}

// checkOutput says so if the output of a job was removed because there was too much.
func (s *Server) checkOutput(ctx context.Context, j *job.Job) error {
	if !j.State.Final() || s.Limits.UserOutput == 0 && s.Limits.AllOutput == 0 {
		return nil
	}

	removed, err := s.Store.Documents(ctx, store.DocumentFilter{Kind: store.RemovedDocument, ID: string(j.ID), Limit: 1})
	if err != nil || len(removed) == 0 {
		return err
	}

	return fault.New(fault.NotFound, "output_removed", "the output of job %s was removed: %s", j.ID, removed[0].Text)
}

// log names the output of a rank of the run that the cursor is in.
func (r *logReader) log(rank int) archive.Log {
	return archive.Log{Run: r.run.ID, UID: r.run.UID, Rank: rank}
}

// load reads the run that the cursor is in. A job without runs has none. A job of a yard that was
// restored may lack epochs: those that only the lost history had are passed over.
func (r *logReader) load(ctx context.Context) error {
	run, err := r.s.Store.Run(ctx, id.NewRun(r.job.ID, r.at.Epoch))
	for fault.KindOf(err) == fault.NotFound && !r.only && r.at.Epoch < r.job.Epoch {
		r.at = archive.Cursor{Epoch: r.at.Epoch + 1}
		run, err = r.s.Store.Run(ctx, id.NewRun(r.job.ID, r.at.Epoch))
	}

	if err != nil {
		return err
	}

	r.run = run
	for len(r.at.Ranks) < len(run.Ranks) {
		r.at.Ranks = append(r.at.Ranks, archive.Mark{})
	}

	r.at.Ranks = r.at.Ranks[:len(run.Ranks)]

	return nil
}

// toTail moves the cursor so that about the last n lines of each rank follow.
func (r *logReader) toTail(ctx context.Context, n int) error {
	for rank := range r.run.Ranks {
		if r.rank >= 0 && r.rank != rank {
			continue
		}

		at, err := r.s.Logbook.Tail(ctx, r.log(rank), &r.filter, n)
		if err != nil {
			return err
		}

		r.at.Ranks[rank] = at
	}

	return nil
}

// logPage is what reading on in a job's output has given.
type logPage struct {
	lines []api.LogLine
	wait  []<-chan struct{} // tell when there may be more
	more  bool              // there is more now
	done  bool              // the job has ended and all of its output has been read
}

// next returns up to limit lines that are here and have not been read. When the budget is spent it returns what it has
// found.
func (r *logReader) next(ctx context.Context, limit int) (logPage, error) {
	r.marks, r.beyond = r.marks[:0], false
	var page logPage
	size := 0

	for {
		if r.run.ID == "" {
			if err := r.load(ctx); err != nil {
				if fault.KindOf(err) == fault.NotFound {
					page.done = r.job.State.Final()
					return page, nil
				}

				return logPage{}, err
			}
		}

		if r.upTo != nil && r.upTo.Epoch < r.at.Epoch {
			return page, nil
		}

		allEnded := true
		page.wait = page.wait[:0]

		for rank := range r.run.Ranks {
			if r.rank >= 0 && r.rank != rank {
				continue
			}

			// Looked at before reading: what comes in between closes the channel.
			st, err := r.s.Logbook.State(ctx, r.log(rank))
			if err != nil {
				return logPage{}, err
			}

			r.beyond = r.beyond || r.at.Ranks[rank].Offset > st.Size
			if err := r.readRank(ctx, rank, limit, &page, &size); err != nil {
				return logPage{}, err
			}
			if page.more {
				return page, nil
			}

			allEnded = allEnded && r.complete(rank, st)
			page.wait = append(page.wait, st.Changed)
		}

		if !allEnded || r.upTo != nil && r.upTo.Epoch == r.at.Epoch {
			return page, nil
		}
		if r.only || r.at.Epoch >= r.job.Epoch {
			page.done = r.only || r.job.State.Final()
			return page, nil
		}

		r.at = archive.Cursor{Epoch: r.at.Epoch + 1}
		r.run = job.Run{}
	}
}

// readRank adds the lines of a rank to a page, and says so if the page is full before all of them were read. size
// is how many bytes of text the page has.
func (r *logReader) readRank(ctx context.Context, rank, limit int, page *logPage, size *int) error {
	r.filter.Before = 0
	if r.upTo != nil && r.upTo.Epoch == r.at.Epoch {
		if rank >= len(r.upTo.Ranks) || r.upTo.Ranks[rank].Offset <= r.at.Ranks[rank].Offset {
			return nil
		}

		r.filter.Before = r.upTo.Ranks[rank].Offset
	}

	full := func() bool {
		return len(page.lines) >= limit || r.filter.Budget.Spent() || r.bytes > 0 && *size >= r.bytes
	}

	for more := true; more && !full(); {
		var got []api.LogLine
		var after []archive.Mark
		var next archive.Mark
		var err error

		got, after, next, more, err = r.s.Logbook.ReadLines(
			ctx,
			r.log(rank),
			r.at.Ranks[rank],
			&r.filter,
			limit-len(page.lines),
		)
		if err != nil {
			return err
		}

		for i := range got {
			*size += len(got[i].Text) + len(got[i].Raw)
		}

		page.lines = append(page.lines, got...)
		r.mark(rank, after)
		r.at.Ranks[rank] = next
	}

	page.more = full()

	return nil
}

// mark keeps the cursor after each line that was just read, so that a follower
// whose feed breaks off goes on after the last line it got.
func (r *logReader) mark(rank int, after []archive.Mark) {
	if !r.marking {
		return
	}

	for _, c := range after {
		r.at.Ranks[rank] = c
		r.marks = append(r.marks, r.at.String())
	}
}

// complete reports whether all that a rank will ever print is here, as far as
// can be known: the log of a node that is lost stays open, because its agent
// may come back with the rest, but nobody waits for that.
func (r *logReader) complete(rank int, st archive.State) bool {
	k := &r.run.Ranks[rank]
	if st.Ended || k.State != job.RunEnded {
		return st.Ended
	}

	// One that never began has no log, unless its set-up was what failed, and neither has one that printed nothing. A log
	// that was removed left no trace.
	never := k.Started.IsZero() && k.Cause != job.CauseSetupFailed
	none := k.Silent || st.Size == 0 && (never || r.s.Clock.Now().Sub(k.Ended) > retention.Straggling)

	return none || k.Cause == job.CauseNodeLost || r.s.agents.Gone(k.Node)
}

// search waits for the caller's turn if reading this output may take long.
func (s *Server) search(ctx context.Context, in *logInput) (end func(), err error) {
	if !in.looks() {
		return func() {}, nil
	}

	return s.searches.begin(ctx, callerOf(ctx).User)
}

// awaitSearch is search for a live feed, which waits as long as it takes.
func (s *Server) awaitSearch(ctx context.Context, in *logInput) (end func(), err error) {
	if !in.looks() {
		return func() {}, nil
	}

	return s.searches.await(ctx, callerOf(ctx).User)
}

func (s *Server) readLogs(ctx context.Context, in *logInput) (*httpapi.Body[api.LogPage], error) {
	j, err := s.readableOutput(ctx, in.Job)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	if err := s.awaitOutput(ctx, &j, nil, in.Rank); err != nil {
		return nil, s.fail(ctx, err)
	}

	end, err := s.search(ctx, in) // after waiting, so that no turn is held meanwhile
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	defer end()

	r, err := s.openLogs(ctx, j, in)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	read, err := r.next(ctx, in.Limit)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	page := api.LogPage{Lines: read.lines, Ended: read.done}
	if page.Lines == nil {
		page.Lines = []api.LogLine{}
	}

	if !read.done {
		page.Next = r.at.String()
	}

	return &httpapi.Body[api.LogPage]{Body: page}, nil
}
