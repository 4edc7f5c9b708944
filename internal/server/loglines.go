package server

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs/archive"
	"trainyard/internal/server/httpapi"
)

// rankLogRoutes are those of the output of one rank.
func (s *Server) rankLogRoutes() {
	lines := s.op("read-log-lines", http.MethodGet, "/api/v1/jobs/{job}/logs/{run}/{rank}/lines",
		"Read or search the output of a rank by line numbers", "logs")
	lines.Description = "A line rewritten with carriage returns, as progress bars are, counts once, in its last state. " +
		"A request looks at a bounded amount of output: continue with the value of next."
	huma.Register(s.api, lines, s.readLogLines)

	download := s.op("download-log", http.MethodGet, "/api/v1/jobs/{job}/logs/{run}/{rank}",
		"Download the output of a rank, as far as it is there", "logs")
	download.Description = "The output is a sequence of frames: time in milliseconds, stream (o, e or y) and length, " +
		"separated by spaces and ended by a line end, then as many bytes and another line end. With the format text it " +
		"is a text file. For a few seconds after the end of a job the server waits for its last lines before it answers."
	download.Parameters = []*huma.Param{
		{Name: "offset", In: "query", Schema: &huma.Schema{Type: "integer"}},
		{Name: "format", In: "query", Schema: &huma.Schema{Type: "string", Enum: []any{"frames", "text"}}},
	}
	s.router.Plain(download, admitted, s.downloadLog)
}

// downloadLog sends the output of a rank, as it is stored or as text.
func (s *Server) downloadLog(w http.ResponseWriter, r *http.Request) error {
	ctx, stop := s.lasting(r.Context())
	defer stop()

	j, err := s.readableOutput(ctx, r.PathValue("job"))
	if err != nil {
		return err
	}

	run, log, err := s.findLog(ctx, &j, id.Run(r.PathValue("run")), r.PathValue("rank"))
	if err != nil {
		return err
	}
	if err := s.awaitOutput(ctx, &j, &run, log.Rank); err != nil {
		return err
	}

	query := r.URL.Query()
	offset := int64(0)
	if text := query.Get("offset"); text != "" {
		offset, err = strconv.ParseInt(text, 10, 64)
		if err != nil || offset < 0 {
			return fault.New(fault.Invalid, "bad_offset", "offset must be an integer of at least 0").WithField("offset")
		}
	}

	st, err := s.Logbook.State(ctx, log)
	if err != nil {
		return err
	}

	switch format := query.Get("format"); format {
	case "text":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s-%d.log"`, log.Run, log.Rank))
		err = s.Logbook.CopyText(ctx, w, log, st.Size)
	case "", "frames":
		end := max(st.Size, offset)
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.FormatInt(end-offset, 10))
		err = s.Logbook.Copy(ctx, w, log, offset, end)
	default:
		return fault.New(fault.Invalid, "bad_format", "format must be frames or text, got %q", format).WithField("format")
	}

	if err != nil {
		s.Log.WarnContext(ctx, "sending output broke off", "run", log.Run, "rank", log.Rank, "error", err)
		panic(http.ErrAbortHandler) // the answer has begun; the only way to say that it is not whole
	}

	return nil
}

// findLog returns a run of a job and the log of one of its ranks.
func (s *Server) findLog(ctx context.Context, j *job.Job, name id.Run, rank string) (job.Run, archive.Log, error) {
	missing := fault.New(fault.NotFound, "run_not_found", "rank %s of run %s of job %s not found", rank, name, j.ID)
	if of, _, ok := name.Split(); !ok || of != j.ID {
		return job.Run{}, archive.Log{}, missing
	}

	run, err := s.Store.Run(ctx, name)
	if err != nil {
		return job.Run{}, archive.Log{}, err
	}

	n, err := strconv.Atoi(rank)
	if err != nil || n < 0 || n >= len(run.Ranks) {
		return job.Run{}, archive.Log{}, missing
	}

	return run, archive.Log{Run: run.ID, UID: run.UID, Rank: n}, nil
}

// linesBytes is how much text a page of lines has at most, but for its last line.
const linesBytes = 1 << 20

type linesInput struct {
	Job      string `path:"job" maxLength:"68" doc:"its id, its name, name@last or @last"`
	Run      string `path:"run" maxLength:"50"`
	Rank     string `path:"rank" maxLength:"4"`
	From     int64  `query:"from" doc:"number of the first line, from 1; a negative number counts from the end: -1 is the last line"`
	Backward bool   `query:"backward" doc:"the last lines before from instead; before the end if from is 0"`
	Limit    int    `query:"limit" minimum:"1" maximum:"1000" default:"200"`
	Cut      int    `query:"cut" minimum:"0" maximum:"65536" doc:"cut lines to so many bytes"`
	Stream   string `query:"stream" enum:"stdout,stderr,yard" doc:"only this stream"`
	Grep     string `query:"grep" maxLength:"1000" doc:"only lines that match this regular expression"`
	Errors   bool   `query:"errors" doc:"only lines that look like errors"`

	Wait  int   `query:"wait" minimum:"0" maximum:"20" doc:"seconds to wait for more output than after"`
	After int64 `query:"after" minimum:"0" doc:"value of size of an earlier response"`
}

// readLogLines answers with lines of a rank by their numbers.
func (s *Server) readLogLines(ctx context.Context, in *linesInput) (*httpapi.Body[api.LogLines], error) {
	page, err := s.logLines(ctx, in)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[api.LogLines]{Body: page}, nil
}

func (s *Server) logLines(ctx context.Context, in *linesInput) (api.LogLines, error) {
	j, err := s.readableOutput(ctx, in.Job)
	if err != nil {
		return api.LogLines{}, err
	}

	run, log, err := s.findLog(ctx, &j, id.Run(in.Run), in.Rank)
	if err != nil {
		return api.LogLines{}, err
	}

	r := &logReader{s: s, job: j, run: run}
	if in.Wait > 0 {
		if err := r.waitForOutput(ctx, log, in.After, time.Duration(in.Wait)*time.Second); err != nil {
			return api.LogLines{}, err
		}
	} else if in.From > 0 && !in.Backward { // whoever looks at the end of a log shows what is there, and asks again
		if err := s.awaitOutput(ctx, &j, &run, log.Rank); err != nil {
			return api.LogLines{}, err
		}
	}

	// Looked at before reading: what comes in between is told by the next answer.
	st, err := s.Logbook.State(ctx, log)
	if err != nil {
		return api.LogLines{}, err
	}

	f := archive.Filter{Stream: in.Stream, Errors: in.Errors}

	f.Grep, err = compileGrep(in.Grep)
	if err != nil {
		return api.LogLines{}, err
	}

	end, err := s.turnFor(ctx, log, &f)
	if err != nil {
		return api.LogLines{}, err
	}

	defer end()

	f.Budget = s.searches.budget() // it begins with the caller's turn

	got, err := s.Logbook.Numbered(ctx, log, archive.Range{
		From: in.From, Backward: in.Backward, Limit: in.Limit, Bytes: linesBytes, Cut: in.Cut,
	}, &f)
	if err != nil {
		return api.LogLines{}, err
	}

	page := api.LogLines{
		Lines: got.Lines, Next: got.Next, Total: got.Total, Size: got.Size, Counted: got.Counted,
		Ended: r.complete(log.Rank, st),
	}
	if page.Lines == nil {
		page.Lines = []api.LogLine{}
	}

	return page, nil
}

// turnFor waits for the caller's turn if reading lines may take long.
func (s *Server) turnFor(ctx context.Context, log archive.Log, f *archive.Filter) (end func(), err error) {
	long, err := s.Logbook.Uncounted(ctx, log)
	if err != nil {
		return nil, err
	}
	if !long && f.Grep == nil && !f.Errors && f.Stream == "" {
		return func() {}, nil
	}

	return s.searches.begin(ctx, callerOf(ctx).User)
}

// waitForOutput waits until there is more output than so many bytes, no more will come, or the time is over.
func (r *logReader) waitForOutput(ctx context.Context, log archive.Log, after int64, most time.Duration) error {
	s := r.s
	leave, err := s.streams.Take(string(callerOf(ctx).User))
	if err != nil {
		return err
	}

	defer leave()

	ctx, stop := s.lasting(ctx)
	defer stop()

	pause, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	defer s.Feed.Leave(r.job.ID)

	for {
		feed := s.Feed.OfJob(r.job.ID) // before looking, so that nothing is missed
		r.run, err = s.Store.Run(ctx, r.run.ID)
		if err != nil {
			return err
		}

		st, err := s.Logbook.State(ctx, log)
		if err != nil || st.Size > after || r.complete(log.Rank, st) {
			return err
		}

		if !httpapi.WaitAny(pause, nil, []<-chan struct{}{st.Changed, feed}) {
			return context.Cause(ctx) // nil if it is only the time that is over
		}
	}
}
