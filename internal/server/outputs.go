package server

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/glob"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/server/outputs"
)

func (s *Server) outputRoutes() {
	const tag, of = "outputs", "/api/v1/jobs/{job}/outputs"
	huma.Register(s.api, s.op("list-outputs", http.MethodGet, of, "List the output files of a job by rank", tag),
		s.listOutputs)
	huma.Register(s.api, s.op("get-outputs", http.MethodGet, of+"/{run}/{rank}",
		"List the output files of a rank with their chunks", tag), s.getOutputs)

	huma.Register(s.api, s.op("ask-outputs", http.MethodPost, of,
		"Ask the nodes of a run for files from its folder", tag), s.askOutputs)

	s.router.Plain(s.op("get-output-chunk", http.MethodGet, of+"/{run}/{rank}/chunks/{digest}",
		"Download a chunk of the output files of a rank", tag), admitted, s.getOutputChunk)

	file := s.op("get-output-file", http.MethodGet, of+"/{run}/{rank}/file", "Download an output file of a rank", tag)
	file.Parameters = []*huma.Param{{
		Name: "path", In: "query", Required: true, Description: "path of the file", Schema: &huma.Schema{Type: "string"},
	}}
	s.router.Plain(file, admitted, s.getOutputFile)
}

func (s *Server) listOutputs(ctx context.Context, in *jobInput) (*httpapi.Body[api.OutputList], error) {
	j, err := s.readJob(ctx, in.Job)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	list, err := s.outputsOf(ctx, j.ID)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[api.OutputList]{Body: api.OutputList{Outputs: list}}, nil
}

// outputsOf lists the output files of a job by rank, those of the newest run first.
func (s *Server) outputsOf(ctx context.Context, j id.Job) ([]api.OutputSet, error) {
	entries, err := s.outputs.Of(ctx, j)
	if err != nil {
		return nil, err
	}

	list := make([]api.OutputSet, len(entries))
	for i := range entries {
		e := &entries[i]
		list[i] = api.OutputSet{
			Run: e.Run, Rank: e.Rank, Node: e.Node, Kept: e.Kept, Files: e.Files, Bytes: e.Bytes, Notes: e.Notes,
			Removed: e.Removed,
		}
	}

	return list, nil
}

type outputsInput struct {
	Job  string `path:"job" maxLength:"68" doc:"its id, its name, name@last or @last"`
	Run  string `path:"run" maxLength:"60"`
	Rank int    `path:"rank" minimum:"0"`
}

func (s *Server) getOutputs(ctx context.Context, in *outputsInput) (*httpapi.Body[api.OutputManifest], error) {
	j, entry, err := s.findOutputs(ctx, in.Job, in.Run, in.Rank)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	files, err := s.outputs.Files(ctx, &entry)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	s.noteRead(ctx, j.Owner, j.ID, "the output files of run "+string(entry.Run))

	return &httpapi.Body[api.OutputManifest]{Body: api.OutputManifest{Files: files}}, nil
}

// findOutputs returns the output files of a rank of a job that the caller may see.
func (s *Server) findOutputs(ctx context.Context, name, run string, rank int) (job.Job, outputs.Entry, error) {
	j, err := s.readJob(ctx, name)
	if err != nil {
		return j, outputs.Entry{}, err
	}

	if of, _, ok := id.Run(run).Split(); !ok || of != j.ID {
		return j, outputs.Entry{}, fault.New(fault.NotFound, "run_not_found", "run %s of job %s not found", run, j.ID)
	}

	entry, err := s.outputs.Find(ctx, id.Run(run), rank)

	return j, entry, err
}

// plainOutputs returns the output files of the rank that the path of a request names.
func (s *Server) plainOutputs(r *http.Request) (job.Job, outputs.Entry, error) {
	rank, err := strconv.Atoi(r.PathValue("rank"))
	if err != nil || rank < 0 {
		return job.Job{}, outputs.Entry{}, fault.New(fault.Invalid, "bad_rank", "rank must be an integer of at least 0").
			WithField("rank")
	}

	return s.findOutputs(r.Context(), r.PathValue("job"), r.PathValue("run"), rank)
}

func (s *Server) getOutputChunk(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()

	digest := r.PathValue("digest")
	if err := httpapi.CheckDigest(digest, "digest"); err != nil {
		return err
	}

	j, entry, err := s.plainOutputs(r)
	if err != nil {
		return err
	}

	f, err := s.outputs.Open(ctx, &entry, digest)
	if err != nil {
		return err
	}

	defer func() { _ = f.Close() }()

	s.noteRead(ctx, j.Owner, j.ID, "the output files of run "+string(entry.Run))

	w.Header().Set("Content-Type", "application/octet-stream")

	if _, err := io.Copy(w, f); err != nil {
		s.Log.WarnContext(ctx, "sending a chunk broke off", "digest", digest, "error", err)
		panic(http.ErrAbortHandler) // the answer has begun; the only way to say that it is not whole
	}

	return nil
}

// getOutputFile sends one file as a whole, for browsers. It is an attachment whatever is in it: shown as a page it
// would act with the rights of whoever is signed in.
func (s *Server) getOutputFile(w http.ResponseWriter, r *http.Request) error {
	ctx, stop := s.lasting(r.Context())
	defer stop()

	j, entry, err := s.plainOutputs(r)
	if err != nil {
		return err
	}

	files, err := s.outputs.Files(ctx, &entry)
	if err != nil {
		return err
	}

	name := r.URL.Query().Get("path")

	at := slices.IndexFunc(files, func(f api.CheckpointFile) bool { return f.Path == name && f.Link == "" })
	if at < 0 {
		return fault.New(fault.NotFound, "file_not_found", "file %q of run %s not found", name, entry.Run).WithField("path")
	}

	s.noteRead(ctx, j.Owner, j.ID, "the output files of run "+string(entry.Run))

	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(files[at].Size, 10))
	w.Header().Set("Content-Disposition",
		mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(name)}))

	for _, chunk := range files[at].Chunks {
		if err := s.writeChunk(ctx, w, chunk.Digest); err != nil {
			s.Log.WarnContext(ctx, "sending an output file broke off", "run", entry.Run, "path", name, "error", err)
			panic(http.ErrAbortHandler)
		}
	}

	return nil
}

type askOutputsInput struct {
	Job  string `path:"job" maxLength:"68" doc:"its id, its name, name@last or @last"`
	Body api.AskOutputs
}

// askOutputs asks the nodes of a run for files from its folder. They become output files of the run, for which the
// owner has room or not; so whoever asks must be allowed to change the job.
func (s *Server) askOutputs(ctx context.Context, in *askOutputsInput) (*httpapi.Body[api.AskedOutputs], error) {
	j, err := s.readJob(ctx, in.Job)
	if err == nil {
		err = allowJob(ctx, "fetch files of jobs", &j)
	}

	for _, p := range in.Body.Patterns {
		if constraint, remedy := glob.Check(p); err == nil && constraint != "" {
			err = fault.New(fault.Invalid, "bad_pattern", "the pattern %s, got %q", constraint, p).WithField("patterns").
				WithRemedy("%s", remedy)
		}
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	run, err := s.runOf(ctx, &j, in.Body.Run)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	if in.Body.Rank != nil && *in.Body.Rank >= len(run.Ranks) {
		return nil, s.fail(ctx, fault.New(fault.NotFound, "rank_not_found", "run %s has no rank %d", run.ID, *in.Body.Rank))
	}

	s.noteRead(ctx, j.Owner, j.ID, "the folder of run "+string(run.ID))

	return &httpapi.Body[api.AskedOutputs]{Body: s.askRanks(ctx, &run, &in.Body)}, nil
}

// runOf returns a run of a job, the newest if it is not named.
func (s *Server) runOf(ctx context.Context, j *job.Job, name id.Run) (job.Run, error) {
	if name == "" {
		if j.Epoch == 0 {
			return job.Run{}, fault.New(fault.Conflict, "job_state", "job %s has not run yet", j.ID)
		}

		name = id.NewRun(j.ID, j.Epoch)
	}

	if of, _, ok := name.Split(); !ok || of != j.ID {
		return job.Run{}, fault.New(fault.NotFound, "run_not_found", "run %s of job %s not found", name, j.ID)
	}

	return s.Store.Run(ctx, name)
}

// askRanks asks the nodes of a run, all at the same time.
func (s *Server) askRanks(ctx context.Context, run *job.Run, in *api.AskOutputs) api.AskedOutputs {
	out := api.AskedOutputs{Done: true}
	var mu sync.Mutex
	var all sync.WaitGroup

	for rank := range run.Ranks {
		if in.Rank != nil && *in.Rank != rank {
			continue
		}

		all.Go(func() {
			node := run.Ranks[rank].Node
			answer, done, err := s.agents.AskOutputs(ctx, node, api.OutputsRequest{
				Run: run.ID, Rank: rank, Patterns: in.Patterns, List: in.List,
			})

			mu.Lock()
			defer mu.Unlock()

			switch {
			case err != nil:
				out.Problems = append(out.Problems, fmt.Sprintf("rank %d: %v", rank, err))
			case !done:
				out.Done = false
			case answer.Problem != "":
				out.Problems = append(out.Problems, fmt.Sprintf("rank %d on node %s: %s", rank, node, answer.Problem))
			}

			for _, f := range answer.Found {
				out.Found = append(out.Found, api.FoundFile{Run: run.ID, Rank: rank, OutputFile: f})
			}

			for _, note := range answer.Notes {
				out.Problems = append(out.Problems, fmt.Sprintf("rank %d on node %s: %s", rank, node, note))
			}
		})
	}

	all.Wait()

	slices.SortFunc(out.Found, func(a, b api.FoundFile) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Rank, b.Rank))
	})
	slices.Sort(out.Problems)

	return out
}
