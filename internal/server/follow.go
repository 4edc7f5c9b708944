package server

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"trainyard/internal/api"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs/archive"
	"trainyard/internal/server/fanout"
	"trainyard/internal/server/httpapi"
)

const (
	// followBatch and followBytes are how much is sent between two looks at the caller.
	followBatch = 500
	followBytes = 1 << 20
	// batchEvery is how long the lines of a job that prints without pause are collected.
	batchEvery = 100 * time.Millisecond

	// sharedOutput is how many bytes of a job's output wait for those who follow it and do not take them, and
	// allSharedOutput bounds that for all jobs together.
	sharedOutput    = 4 << 20
	allSharedOutput = 64 << 20

	// lagPatience is how long one may fall further and further behind before lines are skipped. Whether they do is
	// looked at every lagSample.
	lagPatience = 10 * time.Second
	lagSample   = time.Second
)

// logKey names what followers share: the output of a job, through the same filter.
type logKey struct {
	job          id.Job
	run          string
	rank         int
	stream, grep string
	since, until int64
	errors       bool
	collapse     bool
	user         id.User // of a search: each user has their own turns
}

// logPlace is a place in what followers share.
type logPlace struct {
	at   archive.Cursor
	news *jobNews // what they know of the job
	end  bool     // nothing comes after it
}

// keyOf returns what the follower shares with others.
func keyOf(j id.Job, in *logInput, user id.User) logKey {
	k := logKey{
		job: j, run: in.Run, rank: in.Rank, stream: in.Stream, grep: in.Grep, errors: in.Errors, collapse: in.Collapse,
		since: in.Since.UnixNano(), until: in.Until.UnixNano(),
	}

	if in.looks() {
		k.user = user
	}

	return k
}

func (s *Server) followLogs(ctx context.Context, in *logInput) (*huma.StreamResponse, error) {
	leave, err := s.streams.Take(string(callerOf(ctx).User))
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	r, err := s.openFollowed(ctx, in)
	if err != nil {
		leave()
		return nil, s.fail(ctx, err)
	}

	filter := *in
	filter.Tail = 0 // it is over when the first lines are sent

	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer leave()

		req, w := humago.Unwrap(hc)
		out := httpapi.NewStream(w)
		ctx, stop := s.lasting(req.Context())
		defer stop()

		s.endFeed(ctx, s.sendLogs(ctx, r, &filter, out), out, "logs of "+string(r.job.ID))
	}}, nil
}

// openFollowed opens the output of a job for one who follows it.
func (s *Server) openFollowed(ctx context.Context, in *logInput) (*logReader, error) {
	end, err := s.awaitSearch(ctx, in)
	if err != nil {
		return nil, err
	}

	defer end()

	j, err := s.readableOutput(ctx, in.Job)
	if err != nil {
		return nil, err
	}

	r, err := s.openLogs(ctx, j, in)
	if err != nil {
		return nil, err
	}

	r.bytes, r.marking = followBytes, true

	return r, nil
}

// sendLogs sends lines as they come, and the job whenever its state changes.
func (s *Server) sendLogs(ctx context.Context, r *logReader, in *logInput, out *httpapi.Stream) error {
	f := &logFollower{
		s: s, out: out, who: callerOf(ctx), news: s.newJobFeed(out), key: keyOf(r.job.ID, in, callerOf(ctx).User),
		src: &logSource{logReader: r, input: in},
	}

	defer s.Feed.Leave(r.job.ID)
	defer f.leave()

	if !f.news.send(ctx, &r.job, s.Feed.Last()) || !out.Flush() {
		return nil
	}

	for {
		live, err := f.catchUp(ctx)
		if live {
			live, err = f.live(ctx)
		}

		if !live || err != nil {
			return err
		}
	}
}

// logSource reads the output of a job for those who follow it.
type logSource struct {
	*logReader

	input      *logInput
	stale      bool            // something may have happened to job or run
	feed, lost <-chan struct{} // tell of that; nil at first
	newest     uint64          // number of the newest event before the job was read
}

// read returns the next lines. The job and its run are read from the store only if something may have happened to them.
func (l *logSource) read(ctx context.Context) (logPage, error) {
	if l.stale || l.feed == nil || closed(l.feed) || closed(l.lost) {
		if err := l.refresh(ctx); err != nil {
			return logPage{}, err
		}
	}

	end, err := l.s.awaitSearch(ctx, l.input)
	if err != nil {
		return logPage{}, err
	}

	defer end()

	l.filter.Budget = l.s.searches.budget()

	return l.next(ctx, followBatch)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// refresh reads the job and its run again.
func (l *logSource) refresh(ctx context.Context) error {
	l.feed, l.lost = l.s.Feed.OfJob(l.job.ID), l.s.agents.WaitLost() // before looking, so that nothing is missed
	l.newest = l.s.Feed.Last()

	j, err := l.s.Store.Job(ctx, l.job.ID)
	if err != nil {
		return err
	}

	l.job, l.stale = j, false
	if l.run.ID == "" {
		return nil
	}

	run, err := l.s.Store.Run(ctx, l.run.ID)
	if err == nil {
		l.run = run
	}

	return err
}

// wait waits until there may be more to send: because of one of the channels, because something has happened to the
// job, or because it is time to look at what is not stored. It reports false if nobody listens any more.
func (l *logSource) wait(ctx context.Context, out *httpapi.Stream, news *jobFeed, channels []<-chan struct{}) bool {
	pause, stop := context.WithTimeout(ctx, lookEvery)
	defer stop()

	ok := httpapi.WaitAny(ctx, out, append(slices.Clone(channels), l.feed, l.lost, pause.Done()))
	if pause.Err() != nil {
		news.look, l.stale = true, true
	}

	return ok
}

// moveTo goes on reading from a place.
func (l *logSource) moveTo(at archive.Cursor) {
	l.at = at.Clone()
	l.run = job.Run{} // it is loaded with the next lines
}

// joint names the place up to which everything was read, as far as this filter is concerned. It is "" in the middle of
// a frame, and for a cursor that is none of ours.
func (l *logSource) joint() string {
	if l.beyond || l.at.Epoch > max(l.job.Epoch, 1) {
		return ""
	}

	at := archive.Cursor{Epoch: l.at.Epoch}
	for rank, mark := range l.at.Ranks {
		if l.rank >= 0 && l.rank != rank {
			continue
		}
		if mark.Skip != 0 {
			return ""
		}

		at.Ranks = append(at.Ranks, mark)
	}

	return at.String()
}

// logFollower is one who follows the output of a job: by reading it until they have what there is, then
// from what is read once for all who follow it, and by reading it again if they cannot keep up with that.
type logFollower struct {
	s    *Server
	src  *logSource
	out  *httpapi.Stream
	who  caller
	news *jobFeed
	key  logKey

	member *fanout.Follower[logKey, logPlace] // nil until they share
	lag    lag                                // of a member that cannot keep up
}

func (f *logFollower) leave() {
	if f.member != nil {
		f.member.Leave()
		f.member = nil
	}
}

// catchUp sends what there is, and reports whether the rest can be shared with others.
func (f *logFollower) catchUp(ctx context.Context) (live bool, err error) {
	for {
		// As far as the others are: there the two meet, however much the job prints meanwhile.
		newest, changed, shared := f.s.shared.Newest(f.key)
		f.src.upTo = nil
		if shared && newest.at.Epoch >= f.src.at.Epoch {
			f.src.upTo = &newest.at
		}

		if f.tooSlow() {
			if live, err := f.skip(ctx); live || err != nil {
				return live, err
			}
		}

		page, err := f.src.read(ctx)
		if err != nil {
			return false, err
		}
		if _, err := f.s.stillMay(f.who); err != nil { // after reading: nothing of what came since is sent
			return false, err
		}
		if !f.send(ctx, &page) || page.done {
			return false, nil
		}

		if page.more {
			continue
		}
		if f.join(ctx) {
			return true, f.look(ctx)
		}

		if shared {
			page.wait = append(page.wait, changed)
		}

		if !f.src.wait(ctx, f.out, f.news, page.wait) {
			return false, nil
		}
	}
}

// send sends a page that the follower has read for itself.
func (f *logFollower) send(ctx context.Context, page *logPage) bool {
	for i := range page.lines {
		if !f.out.Add(f.src.marks[i], "", &page.lines[i]) {
			return false
		}
	}

	if f.member != nil {
		f.member.Sent(len(page.lines))
	}

	ok := f.news.send(ctx, &f.src.job, f.src.newest)
	if ok && page.done {
		ok = f.out.Add("", "end", toJob(&f.src.job))
	}

	return ok && f.out.Flush()
}

// join lets the follower share what is read for others from here on, and is false if that is not possible yet.
func (f *logFollower) join(ctx context.Context) bool {
	joint := f.src.joint()
	if joint == "" {
		return false
	}

	if f.member != nil {
		if f.member.Rejoin(joint) || !f.member.Over() {
			return !f.member.Behind()
		}

		f.leave()
	}

	src, news := f.src.fork(), f.news.jobNews
	member, ok := f.s.shared.Join(ctx, f.key, joint, logPlace{at: src.at.Clone(), news: &news},
		func(ctx context.Context, feed *fanout.Feed[logKey, logPlace]) error {
			return f.s.shareLogs(ctx, src, news, feed)
		})
	if ok {
		f.member = member
	}

	return ok
}

// look sends what has happened to the job since the follower looked: those with whom it shares from now on may know it
// already.
func (f *logFollower) look(ctx context.Context) error {
	if err := f.src.refresh(ctx); err != nil {
		return err
	}

	if f.news.send(ctx, &f.src.job, f.src.newest) {
		f.out.Flush()
	}

	return nil
}

// live sends what is read for all who follow, and reports whether the follower has to catch up again.
func (f *logFollower) live(ctx context.Context) (behind bool, err error) {
	at, took := f.src.at, f.s.Clock.Now()

	for {
		items, changed, err := f.member.Next()
		switch {
		case errors.Is(err, fanout.ErrBehind):
			f.src.moveTo(at)
			f.lag = lag{since: took, looked: f.s.Clock.Now(), lines: f.member.Lag()}

			return true, nil
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil:
			return false, err
		}

		took = f.s.Clock.Now()
		if _, err := f.s.stillMay(f.who); err != nil { // after taking it: nothing of what came since is sent
			return false, err
		}

		for i := range items {
			if !f.pass(&items[i]) {
				return false, nil
			}

			at = items[i].After.at
		}

		if len(items) > 0 {
			if !f.out.Flush() {
				return false, nil
			}

			continue // more may have come while that was sent
		}

		if !httpapi.WaitAny(ctx, f.out, []<-chan struct{}{changed}) {
			return false, nil
		}
	}
}

// pass sends what is shared, unless it tells of a job of which the follower knows more. That the job has ended may be
// known, but not that this was all of its output.
func (f *logFollower) pass(item *fanout.Item[logPlace]) bool {
	if item.After.news.seq < f.news.seq {
		if item.Lines == 0 && !item.After.end {
			return true
		}
	} else {
		f.news.jobNews = *item.After.news
	}

	return f.out.AddItems(item.Data)
}

// lag says how a follower does that is behind.
type lag struct {
	since  time.Time // when they were seen to gain ground last
	looked time.Time
	lines  int64 // at that time
}

// tooSlow reports whether the follower has fallen behind those with whom it shares, and falls further behind.
func (f *logFollower) tooSlow() bool {
	if f.member == nil || !f.member.Behind() {
		return false
	}

	now, lines := f.s.Clock.Now(), f.member.Lag()
	if now.Sub(f.lag.looked) >= lagSample {
		if lines < f.lag.lines {
			f.lag.since = now
		}

		f.lag.looked, f.lag.lines = now, lines
	}

	return now.Sub(f.lag.since) >= f.s.lagPatience
}

// skip leaves out what the follower could not take in time, and says so. It is false if the job has ended
// meanwhile: then all of it is read, however long that takes.
func (f *logFollower) skip(ctx context.Context) (live bool, err error) {
	lines, place, ok := f.member.Skip()
	if !ok {
		f.leave()
		return false, nil
	}

	f.src.moveTo(place.at)

	if lines > 0 {
		note := api.LogLine{
			At: f.s.Clock.Now(), Run: id.NewRun(f.src.job.ID, place.at.Epoch), Rank: max(f.src.rank, 0), Stream: "yard",
			Skipped: lines,
			Text: "… " + humanize.Count(int(lines), "line") + " skipped: read them with trainyard logs " +
				string(f.src.job.ID),
		}
		f.s.Log.InfoContext(ctx, "a follower of output skips lines", "job", f.src.job.ID, "user", f.who.User, "lines", lines)

		f.out.Add(place.at.String(), "", &note)
	}

	return true, f.look(ctx)
}
