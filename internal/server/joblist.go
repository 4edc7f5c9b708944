package server

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// jobPage is a page of a list of jobs before it is written.
type jobPage struct {
	jobs   []listedJob
	next   string
	counts []api.JobCount
}

// listedJob is all that a list shows of a job.
type listedJob struct {
	stored   *job.Job
	brief    *yardmaster.Brief // nil if only what is stored is known
	forecast *job.Forecast     // nil if there is none
}

// shown returns the page as clients read it.
func (p *jobPage) shown() api.JobPage {
	page := api.JobPage{Jobs: make([]api.Job, len(p.jobs)), Next: p.next, Counts: p.counts}
	for i := range p.jobs {
		page.Jobs[i] = p.jobs[i].shown()
	}

	return page
}

func (l *listedJob) shown() api.Job {
	out := toJob(l.stored)
	if l.brief != nil {
		addBrief(&out, l.brief)
	}

	addForecast(&out, l.forecast)

	return out
}

// sameBrief reports whether addBrief adds the same.
func sameBrief(a, b *yardmaster.Brief) bool {
	if a == nil || b == nil {
		return a == b
	}

	return a.WaitReason == b.WaitReason && a.Blocker == b.Blocker && a.Doing == b.Doing && a.FakeGPUs == b.FakeGPUs &&
		a.Cost == b.Cost && a.Ran == b.Ran && slices.Equal(a.Remarks, b.Remarks) && slices.Equal(a.Nodes, b.Nodes) &&
		sameProgress(a.Progress, b.Progress)
}

func sameProgress(a, b *job.Progress) bool {
	if a == nil || b == nil {
		return a == b
	}

	return a.Done == b.Done && a.Work == b.Work && a.At.IsZero() == b.At.IsZero()
}

// encodedJobs keeps jobs as lists send them. Encoding is most of what a page costs, and the same jobs are listed again
// and again while nothing about them changes. An encoded job is sent only if all that it was made of is the same.
type encodedJobs struct {
	mu         sync.Mutex
	young, old map[id.Job]encodedJob // those in old have not been listed since there were many younger ones
}

// encodedJob is the JSON of a job, and all that it was made of.
type encodedJob struct {
	seq      uint64 // of what was stored
	brief    *yardmaster.Brief
	forecast *job.Forecast
	text     []byte
}

func (e *encodedJob) isOf(l *listedJob) bool {
	return e.seq == l.stored.Seq && e.forecast == l.forecast && sameBrief(e.brief, l.brief)
}

const (
	maxEncoded     = 1024    // young ones, and as many old ones
	maxEncodedText = 4 << 10 // bytes of one that is kept
)

// page writes a page of jobs.
func (e *encodedJobs) page(p *jobPage) ([]byte, error) {
	texts := make([][]byte, len(p.jobs))
	size := 0

	for i := range p.jobs {
		text, err := e.job(&p.jobs[i])
		if err != nil {
			return nil, err
		}

		texts[i] = text
		size += len(text) + 1
	}

	// What comes after the jobs, with the braces of its own.
	rest, err := encode(struct {
		Next   string         `json:"next,omitempty"`
		Counts []api.JobCount `json:"counts,omitempty"`
	}{p.next, p.counts})
	if err != nil {
		return nil, err
	}

	out := make([]byte, 0, size+len(rest)+16)
	out = append(out, `{"jobs":[`...)

	for i, text := range texts {
		if i > 0 {
			out = append(out, ',')
		}

		out = append(out, text...)
	}

	out = append(out, ']')
	if len(rest) > len("{}") {
		out = append(out, ',')
	}

	return append(append(out, rest[1:]...), '\n'), nil
}

// job returns the JSON of a job.
func (e *encodedJobs) job(l *listedJob) ([]byte, error) {
	if text, known := e.get(l); known {
		return text, nil
	}

	text, err := encode(l.shown())
	if err == nil && len(text) <= maxEncodedText {
		e.put(l, text)
	}

	return text, err
}

func (e *encodedJobs) get(l *listedJob) ([]byte, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()

	name := l.stored.ID

	found, young := e.young[name]
	if !young {
		found = e.old[name]
	}

	if found.text == nil || !found.isOf(l) {
		return nil, false
	}

	if !young {
		e.keep(name, found)
	}

	return found.text, true
}

func (e *encodedJobs) put(l *listedJob, text []byte) {
	made := encodedJob{seq: l.stored.Seq, forecast: l.forecast, text: text}
	if l.brief != nil {
		brief := *l.brief // a copy: those of a page are kept together
		made.brief = &brief
	}

	e.mu.Lock()
	defer e.mu.Unlock()

	e.keep(l.stored.ID, made)
}

// keep makes a job one of the young ones.
func (e *encodedJobs) keep(name id.Job, j encodedJob) {
	if e.young == nil || len(e.young) >= maxEncoded {
		e.young, e.old = make(map[id.Job]encodedJob, maxEncoded), e.young
	}

	e.young[name] = j
}

// encode returns JSON as the framework writes it, without the line end.
func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	if err := huma.DefaultJSONFormat.Marshal(&text, v); err != nil {
		return nil, fmt.Errorf("encode an answer: %w", err)
	}

	return bytes.TrimSuffix(text.Bytes(), []byte{'\n'}), nil
}

// answers describes the answer of an operation that writes its JSON itself.
func (s *Server) answers(t reflect.Type) map[string]*huma.Response {
	return map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{
		"application/json": {Schema: s.api.OpenAPI().Components.Schemas.Schema(t, true, t.Name())},
	}}}
}
