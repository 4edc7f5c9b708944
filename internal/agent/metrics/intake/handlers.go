package intake

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"trainyard/internal/agent/metrics/lines"
	"trainyard/internal/agent/metrics/reading"
	"trainyard/internal/api"
	"trainyard/internal/fault"
)

// maxBusy is how many requests of one run are worked on at a time. Others of it wait, and only those: a run that
// sends slowly keeps nobody else from sending.
const maxBusy = 8

// handler routes requests.
func (i *Intake) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(
		"POST /v1/{run}/metrics",
		i.form(func(_ *run, body []byte) ([]reading.Line, error) { return fromForm(body) }),
	)

	mux.HandleFunc("POST /v1/{run}/status", i.form((*run).fromStatus))
	mux.HandleFunc("/v1/{run}/mlflow/", i.mlflow)

	return mux
}

// enter checks who sends, and reads what.
func (i *Intake) enter(w http.ResponseWriter, r *http.Request) (*run, []byte, error) {
	name := r.PathValue("run")
	if !i.knows(r, name) {
		return nil, nil, fault.New(fault.Unknown, "bad_token", "invalid or missing token for run %q", name).
			WithRemedy("send the header Authorization: Bearer $TRAINYARD_METRICS_TOKEN")
	}

	run := i.run(name)
	if run == nil {
		return nil, nil, fault.New(fault.NotFound, "run_not_found", "run %q is no longer on this node", name)
	}

	select {
	case run.busy <- struct{}{}:
	case <-r.Context().Done():
		return nil, nil, fault.New(fault.OverLimit, "too_busy", "too many concurrent requests from run %q", name).
			WithCause(r.Context().Err())
	}

	defer func() { <-run.busy }()

	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, nil, fault.New(fault.Invalid, "bad_body", "cannot read the request: %v", err).WithCause(err)
	}

	return run, body, nil
}

// form takes requests whose body becomes lines.
func (i *Intake) form(read func(from *run, body []byte) ([]reading.Line, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		run, body, err := i.enter(w, r)
		var got []reading.Line
		if err == nil {
			got, err = read(run, body)
		}

		if err == nil {
			err = run.keep(got)
		}

		if err != nil {
			i.refuse(w, err)
			return
		}

		answer(w, http.StatusOK, map[string]int{"taken": len(got)})
	}
}

// refuse says what is wrong.
func (i *Intake) refuse(w http.ResponseWriter, err error) {
	status := statusOf(err)
	p := api.Problem{Status: status, Kind: "internal", Code: "internal", Detail: "the agent could not store the metrics"}

	var f *fault.Error
	if errors.As(err, &f) {
		p.Kind, p.Code, p.Detail, p.Remedy = string(f.Kind), f.Code, f.Message, f.Remedy
	} else {
		i.log.Warn("cannot store metrics sent by a program", "error", err)
	}

	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", strconv.Itoa(10))
	}

	answer(w, status, p)
}

// statusOf is the HTTP status for an error.
func statusOf(err error) int {
	switch fault.KindOf(err) {
	case fault.Invalid:
		return http.StatusBadRequest
	case fault.Unknown:
		return http.StatusUnauthorized
	case fault.NotFound:
		return http.StatusNotFound
	case fault.OverLimit:
		return http.StatusTooManyRequests
	case fault.Conflict, fault.Denied, fault.Unavailable, fault.Internal: // not said here
	}

	return http.StatusInternalServerError
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // who has gone needs no answer
}

// fromForm reads the plain form: a JSON object, a list of them, or one on each line. An object is
// {"step": 10, "metrics": {"loss": 0.5}}, with "total", "done", "at" and "note" if they are known, or shorter
// {"step": 10, "loss": 0.5}.
func fromForm(body []byte) ([]reading.Line, error) {
	body = bytes.TrimSpace(body)
	var objects []map[string]json.RawMessage
	if bytes.HasPrefix(body, []byte("[")) {
		if err := reading.Unmarshal(body, &objects); err != nil {
			return nil, badForm("the body is not valid JSON: %v", err)
		}
	} else {
		d := json.NewDecoder(bytes.NewReader(reading.Quoted(body)))
		for len(objects) <= maxLines {
			var o map[string]json.RawMessage
			if err := d.Decode(&o); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, badForm("object %d of the body is not valid JSON: %v", len(objects)+1, err)
			}

			objects = append(objects, o)
		}
	}

	if len(objects) > maxLines {
		return nil, badForm("a request must not hold more than %d points", maxLines)
	}

	var out []reading.Line
	for k, o := range objects {
		line, err := fromObject(o)
		if err != nil {
			return nil, badForm("object %d of the body: %v", k+1, err)
		}

		out = append(out, line)
	}

	if len(out) == 0 {
		return nil, badForm("the body holds no point")
	}

	return out, nil
}

func badForm(format string, args ...any) error {
	return fault.New(fault.Invalid, "bad_point", format, args...).
		WithRemedy(`send objects such as {"step": 10, "metrics": {"loss": 0.5}, "total": 1000}`)
}

// fromObject reads one object of the plain form.
func fromObject(o map[string]json.RawMessage) (reading.Line, error) {
	var line reading.Line
	_, has := o["metrics"]

	_, note := o["note"]
	if has || note {
		text, err := json.Marshal(o)
		if err == nil {
			err = json.Unmarshal(text, &line)
		}

		if err != nil {
			return line, err
		}

		line.Source = reading.ViaURL

		return line, nil
	}

	done := o["done"]
	delete(o, "done")
	flat, _ := lines.FromMap(o)
	line = fromReading(flat)
	if done != nil {
		line.Done = new(reading.Float)
		if err := json.Unmarshal(done, line.Done); err != nil {
			return line, err
		}
	}

	if len(line.Metrics) == 0 && line.Done == nil && line.Total == nil {
		return line, errors.New("no numeric value in it")
	}

	return line, nil
}

// fromReading is what an object says as a line.
func fromReading(o lines.Object) reading.Line {
	line := reading.Line{At: o.At, Metrics: map[string]reading.Float{}, Source: reading.ViaURL}
	line.Step, line.Done, line.Total = number(o.Step), number(o.Done), number(o.Total)
	if line.Step == nil {
		line.Step = number(o.Epoch)
	}

	for _, v := range o.Values {
		line.Metrics[v.Name] = reading.Float(v.Value)
	}

	return line
}

func number(n reading.Number) *reading.Float {
	if !n.Known {
		return nil
	}

	v := reading.Float(n.Value)

	return &v
}

// fromStatus reads a status message as Hugging Face's Trainer sends it: the share that is done, and as texts the
// newest value of each metric, among them the step and how many there will be. It may hold the sender's own estimate
// of the remaining time.
// The first message has no step, when none is done, nor has the last, when all are.
func (r *run) fromStatus(body []byte) ([]reading.Line, error) {
	var in struct {
		Status struct {
			Progress  *reading.Float `json:"progressPercentage"`
			Remaining *reading.Float `json:"estimatedRemainingSeconds"`
			Metrics   []struct {
				Name  string `json:"name"`
				Value string `json:"value"`
			} `json:"metrics"`
		} `json:"trainerStatus"`
	}

	if err := reading.Unmarshal(body, &in); err != nil {
		return nil, fault.New(fault.Invalid, "bad_status", "the status is not valid JSON: %v", err).WithCause(err)
	}

	line := reading.Line{Source: reading.ViaStatus, Metrics: map[string]reading.Float{}, Remaining: in.Status.Remaining}
	for _, m := range in.Status.Metrics {
		v, ok := reading.Parse(m.Value)
		if !ok || len(line.Metrics) > 500 {
			continue
		}

		n := reading.Float(v)

		switch m.Name {
		case "current_step":
			line.Step, line.Done = &n, &n
		case "total_steps":
			line.Total = &n
		case "current_epoch", "epoch":
		default:
			if !lines.IsCount(m.Name) {
				line.Metrics[m.Name] = n
			}
		}
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	progress := in.Status.Progress
	switch {
	case line.Total != nil:
		r.total = *line.Total

		if line.Step == nil && progress != nil && *progress == 0 {
			line.Done = progress
		}
	case progress == nil || line.Step != nil:
	case r.total == 0: // of a program that counts nothing else: its metrics are by percent too
		hundred := reading.Float(100)
		line.Step, line.Done, line.Total = progress, progress, &hundred
	case *progress >= 100:
		line.Step, line.Done = &r.total, &r.total
	}

	return []reading.Line{line}, nil
}
