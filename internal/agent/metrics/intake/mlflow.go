package intake

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"

	"trainyard/internal/agent/metrics/reading"
	"trainyard/internal/fault"
)

// The limits on what is remembered for MLflow's client, which asks for some of it again.
const (
	maxMLRuns = 100
	maxPairs  = 500
)

// mlflowRuns are the runs that a program has made with its MLflow client. They are
// remembered while the agent runs; metrics alone are kept.
type mlflowRuns struct {
	all   map[string]*mlflowRun
	zeros map[string]bool // metrics that were logged at step 0: the client's way of saying none
}

// mlflowRun is one of them, as the client is told it.
type mlflowRun struct {
	Info mlflowInfo `json:"info"`
	Data struct {
		Params []mlflowPair `json:"params,omitempty"`
		Tags   []mlflowPair `json:"tags,omitempty"`
	} `json:"data"`
}

type mlflowInfo struct {
	RunID        string `json:"run_id"`
	RunUUID      string `json:"run_uuid"`
	RunName      string `json:"run_name"`
	ExperimentID string `json:"experiment_id"`
	UserID       string `json:"user_id"`
	Status       string `json:"status"`
	StartTime    int64  `json:"start_time"`
	EndTime      int64  `json:"end_time,omitempty"`
	ArtifactURI  string `json:"artifact_uri"`
	Lifecycle    string `json:"lifecycle_stage"`
}

type mlflowPair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type mlflowMetric struct {
	Key       string         `json:"key"`
	Value     *reading.Float `json:"value"`
	Timestamp float64        `json:"timestamp"`
	Step      *reading.Float `json:"step"`
}

// mlflowRequest is what any of the calls may bring.
type mlflowRequest struct {
	mlflowMetric
	Value     json.RawMessage `json:"value"` // of a metric a number, of a tag a text
	RunID     string          `json:"run_id"`
	RunName   string          `json:"run_name"`
	UserID    string          `json:"user_id"`
	Status    string          `json:"status"`
	StartTime int64           `json:"start_time"`
	EndTime   int64           `json:"end_time"`
	Metrics   []mlflowMetric  `json:"metrics"`
	Params    []mlflowPair    `json:"params"`
	Tags      []mlflowPair    `json:"tags"`
	Name      string          `json:"name"`
}

// mlflow answers MLflow's client.
func (i *Intake) mlflow(w http.ResponseWriter, r *http.Request) {
	run, body, err := i.enter(w, r)
	if err != nil {
		mlflowRefuse(w, err)
		return
	}

	var in mlflowRequest
	if len(body) > 0 {
		if err := reading.Unmarshal(body, &in); err != nil {
			mlflowRefuse(w, fault.New(fault.Invalid, "INVALID_PARAMETER_VALUE", "the request is not valid JSON: %v", err))
			return
		}
	}

	if r.Method == http.MethodGet {
		in.RunID, in.Name = r.URL.Query().Get("run_id"), r.URL.Query().Get("experiment_name")
	}

	_, call, _ := strings.Cut(r.URL.Path, "/api/2.0/mlflow/")
	reply, err := run.mlflowCall(call, &in)
	if err != nil {
		mlflowRefuse(w, err)
		return
	}

	answer(w, http.StatusOK, reply)
}

// mlflowRefuse says what is wrong in the client's words.
func mlflowRefuse(w http.ResponseWriter, err error) {
	code := "INTERNAL_ERROR"

	switch fault.KindOf(err) {
	case fault.Invalid:
		code = "INVALID_PARAMETER_VALUE"
	case fault.Unknown, fault.Denied:
		code = "UNAUTHENTICATED"
	case fault.NotFound:
		code = "RESOURCE_DOES_NOT_EXIST"
	case fault.OverLimit:
		code = "REQUEST_LIMIT_EXCEEDED"
	case fault.Conflict, fault.Unavailable, fault.Internal:
	}

	answer(w, statusOf(err), map[string]string{"error_code": code, "message": err.Error()})
}

// mlflowCall carries out one call. There is one experiment, whatever the program calls it.
func (r *run) mlflowCall(call string, in *mlflowRequest) (any, error) {
	type object = map[string]any

	switch call {
	case "experiments/get-by-name", "experiments/get":
		name := in.Name
		if name == "" {
			name = "Default"
		}

		return object{
			"experiment": object{
				"experiment_id":     "0",
				"name":              name,
				"artifact_location": "mlartifacts",
				"lifecycle_stage":   "active",
			},
		}, nil
	case "experiments/create":
		return object{"experiment_id": "0"}, nil
	case "runs/create":
		made, err := r.mlflowCreate(in)
		return object{"run": made}, err
	case "runs/get":
		return object{"run": r.mlflowGet(in.RunID)}, nil
	case "runs/update":
		return object{"run_info": r.mlflowUpdate(in)}, nil
	case "runs/log-metric":
		m := in.mlflowMetric
		if err := json.Unmarshal(in.Value, &m.Value); err != nil {
			return nil, badMetric(in.Key)
		}

		return object{}, r.mlflowKeep([]mlflowMetric{m})
	case "runs/log-batch":
		r.mlflowNote(in.RunID, in.Params, in.Tags)
		return object{}, r.mlflowKeep(in.Metrics)
	case "runs/log-parameter", "runs/set-tag":
		var text string
		if err := json.Unmarshal(in.Value, &text); err != nil {
			return nil, fault.New(fault.Invalid, "bad_value", "the value of %q must be a string", in.Key)
		}

		pair := []mlflowPair{{in.Key, text}}
		if call == "runs/set-tag" {
			r.mlflowNote(in.RunID, nil, pair)
		} else {
			r.mlflowNote(in.RunID, pair, nil)
		}

		return object{}, nil
	case "runs/delete-tag", "runs/log-inputs", "runs/outputs", "runs/log-model", "experiments/set-experiment-tag":
		return object{}, nil // said of models and data, not of how the training goes
	case "runs/search", "experiments/search", "metrics/get-history":
		return object{}, nil // none are found
	}

	return nil, fault.New(fault.NotFound, "ENDPOINT_NOT_FOUND",
		"unsupported MLflow call %q: the agent accepts metrics only", call).
		WithRemedy("use an MLflow server for anything else")
}

func badMetric(key string) error {
	return fault.New(fault.Invalid, "bad_metric", "the value of %q must be a number", key)
}

// mlflowKeep keeps metrics. A program that gives no step has 0 for each: then they are counted.
func (r *run) mlflowKeep(all []mlflowMetric) error {
	if len(all) > maxLines {
		return fault.New(fault.Invalid, "too_large", "a request must not hold more than %d metrics", maxLines)
	}

	out := make([]reading.Line, 0, len(all))
	r.mu.Lock()

	if r.mlflow.zeros == nil {
		r.mlflow.zeros = map[string]bool{}
	}

	for _, m := range all {
		if m.Key == "" || m.Value == nil {
			r.mu.Unlock()
			return badMetric(m.Key)
		}

		line := reading.Line{
			Source:  reading.ViaMLflow,
			At:      m.Timestamp / 1000,
			Step:    m.Step,
			Metrics: map[string]reading.Float{m.Key: *m.Value},
		}

		if m.Step == nil || *m.Step == 0 {
			if r.mlflow.zeros[m.Key] {
				line.Step = nil
			} else if len(r.mlflow.zeros) < maxPairs {
				r.mlflow.zeros[m.Key] = true
			}
		}

		out = append(out, line)
	}

	r.mu.Unlock()

	if len(out) == 0 {
		return nil
	}

	return r.keep(out)
}

// mlflowCreate makes a run.
func (r *run) mlflowCreate(in *mlflowRequest) (mlflowRun, error) {
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		return mlflowRun{}, err
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	if len(r.mlflow.all) >= maxMLRuns {
		return mlflowRun{}, fault.New(fault.OverLimit, "too_many", "a program may create at most %d MLflow runs", maxMLRuns)
	}

	made := r.mlflowFind(hex.EncodeToString(random[:]))
	made.Info.RunName, made.Info.UserID, made.Info.StartTime = clip(in.RunName), clip(in.UserID), in.StartTime
	made.Data.Tags = in.Tags[:min(len(in.Tags), maxPairs)]

	return *made, nil
}

// mlflowFind returns a run. One that is not known is of a time before the agent was started anew. The caller holds
// the lock.
func (r *run) mlflowFind(id string) *mlflowRun {
	if r.mlflow.all == nil {
		r.mlflow.all = map[string]*mlflowRun{}
	}

	id = clip(id)
	known := r.mlflow.all[id]
	if known == nil {
		known = &mlflowRun{Info: mlflowInfo{
			RunID:        id,
			RunUUID:      id,
			RunName:      id,
			ExperimentID: "0",
			Status:       "RUNNING",
			ArtifactURI:  "mlartifacts/" + id,
			Lifecycle:    "active",
		}}

		if len(r.mlflow.all) < maxMLRuns {
			r.mlflow.all[id] = known
		}
	}

	return known
}

func (r *run) mlflowGet(id string) mlflowRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *r.mlflowFind(id)
}

func (r *run) mlflowUpdate(in *mlflowRequest) mlflowInfo {
	r.mu.Lock()
	defer r.mu.Unlock()

	known := r.mlflowFind(in.RunID)
	if in.Status != "" {
		known.Info.Status, known.Info.EndTime = clip(in.Status), in.EndTime
	}

	if in.RunName != "" {
		known.Info.RunName = clip(in.RunName)
	}

	return known.Info
}

// mlflowNote remembers what was said about a run.
func (r *run) mlflowNote(id string, params, tags []mlflowPair) {
	r.mu.Lock()
	defer r.mu.Unlock()

	known := r.mlflowFind(id)
	for _, p := range params {
		if len(known.Data.Params) < maxPairs {
			known.Data.Params = append(known.Data.Params, mlflowPair{clip(p.Key), clip(p.Value)})
		}
	}

	for _, t := range tags {
		if len(known.Data.Tags) < maxPairs {
			known.Data.Tags = append(known.Data.Tags, mlflowPair{clip(t.Key), clip(t.Value)})
		}
	}
}

// clip bounds a text that is remembered.
func clip(text string) string {
	const most = 500
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
