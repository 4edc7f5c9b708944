package intake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/test/fuzzing"
)

// now is a clock that stands where it is put.
type now struct {
	mu sync.Mutex
	at time.Time
}

func (n *now) Now() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at
}

func (n *now) pass(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.at = n.at.Add(d)
}

// desk is an intake with one run.
type desk struct {
	t   testing.TB
	in  *Intake
	dir string
	clk *now
	env map[string]string
}

func open(t testing.TB) *desk {
	t.Helper()
	d := &desk{t: t, dir: t.TempDir(), clk: &now{at: time.Unix(1794744000, 0)}}
	d.reopen()

	return d
}

// reopen is what an agent does that starts.
func (d *desk) reopen() {
	d.t.Helper()
	in, err := Open(d.t.Context(), d.dir, d.clk, slog.New(slog.DiscardHandler))
	if err != nil {
		d.t.Fatal(err)
	}

	d.in = in
	d.t.Cleanup(func() { _ = in.Close() })

	if d.env == nil {
		d.env, err = in.Env("j1.2", 0, true)
		if err != nil {
			d.t.Fatal(err)
		}
	}
}

// send makes a request and returns the status and the answer.
func (d *desk) send(method, url, token, body string) (int, string) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}

	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}

	defer func() { _ = resp.Body.Close() }()

	text, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}

	return resp.StatusCode, strings.TrimSpace(string(text))
}

func (d *desk) post(variable, path, body string) (int, string) {
	d.t.Helper()
	return d.send(http.MethodPost, d.env[variable]+path, d.env["TRAINYARD_METRICS_TOKEN"], body)
}

// kept is what lies in the run's file.
func (d *desk) kept() string {
	d.t.Helper()
	text, err := os.ReadFile(d.in.Received("j1.2", 0))
	if err != nil && !os.IsNotExist(err) {
		d.t.Fatal(err)
	}

	return string(text)
}

func TestThePlainForm(t *testing.T) {
	t.Parallel()

	for _, test := range []struct{ name, body, want string }{
		{"short", `{"step": 10, "loss": 0.5}`, `{"step":10,"at":1794744000,"metrics":{"loss":0.5},"source":"url"}`},
		{"long", `{"step": 10, "at": 1794744001.5, "metrics": {"loss": 0.5, "a": "NaN"}, "total": 100}`, `{"step":10,"at":1794744001.5,"metrics":{"a":"NaN","loss":0.5},"total":100,"source":"url"}`},
		{"done and total", `{"done": 5, "total": 10}`, `{"at":1794744000,"done":5,"total":10,"source":"url"}`},
		{"a note", `{"note": "checkpoint_saved", "text": "x"}`, `{"at":1794744000,"note":"checkpoint_saved","text":"x","source":"url"}`},
		{"an epoch is a step if there is no other", `{"epoch": 3, "loss": 1}`, `{"step":3,"at":1794744000,"metrics":{"loss":1},"source":"url"}`},
		{"a source of its own is not taken", `{"step": 1, "metrics": {"loss": 1}, "source": "status"}`, `{"step":1,"at":1794744000,"metrics":{"loss":1},"source":"url"}`},
		{"a list", `[{"step": 1, "loss": 2}, {"step": 2, "loss": 1}]`, `{"step":1,"at":1794744000,"metrics":{"loss":2},"source":"url"}` + "\n" + `{"step":2,"at":1794744000,"metrics":{"loss":1},"source":"url"}`},
		{"lines", `{"step": 1, "loss": 2}` + "\n" + `{"step": 2, "loss": 1}` + "\n", `{"step":1,"at":1794744000,"metrics":{"loss":2},"source":"url"}` + "\n" + `{"step":2,"at":1794744000,"metrics":{"loss":1},"source":"url"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			if status, text := d.post("TRAINYARD_METRICS_URL", "", test.body); status != http.StatusOK {
				t.Fatalf("answered with %d %s", status, text)
			}

			if diff := cmp.Diff(test.want+"\n", d.kept()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A run may leave its requests open: others are heard all the same, and so is it when it has closed them.
func TestARunThatSendsSlowlyHindersNobodyElse(t *testing.T) {
	t.Parallel()
	d := open(t)
	other, err := d.in.Env("j2.1", 0, false)
	if err != nil {
		t.Fatal(err)
	}

	address, path, _ := strings.Cut(strings.TrimPrefix(d.env["TRAINYARD_METRICS_URL"], "http://"), "/")

	var open []net.Conn
	for range 5 * maxBusy {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}

		open = append(open, conn)

		if _, err := fmt.Fprintf(
			conn,
			"POST /%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n{",
			path,
			d.env["TRAINYARD_METRICS_TOKEN"],
		); err != nil {
			t.Fatal(err)
		}
	}

	if status, answer := d.send(
		http.MethodPost,
		other["TRAINYARD_METRICS_URL"],
		other["TRAINYARD_METRICS_TOKEN"],
		`{"step": 1, "loss": 1}`,
	); status != http.StatusOK {
		t.Errorf("another run is answered with %d, %s", status, answer)
	}

	for _, conn := range open {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}

	if status, answer := d.post("TRAINYARD_METRICS_URL", "", `{"step": 1, "loss": 1}`); status != http.StatusOK {
		t.Errorf("afterwards it is answered with %d, %s", status, answer)
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	d := open(t)

	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			if status, answer := d.post(
				"TRAINYARD_METRICS_URL",
				"",
				fmt.Sprintf(`{"step": %d, "loss": 1}`, i),
			); status != http.StatusOK {
				t.Errorf("answered with %d, %s", status, answer)
			}
		})
	}

	wg.Wait()

	if n := strings.Count(d.kept(), "\n"); n != 200 {
		t.Errorf("%d are kept", n)
	}
}

// Python writes NaN, and others null, for what is no number. What is missing is no zero.
func TestValuesThatAreNoNumbers(t *testing.T) {
	t.Parallel()
	d := open(t)
	for _, body := range []string{`{"step": 1, "metrics": {"loss": NaN}}`, `{"step": 1, "loss": NaN}`, `[{"step": 1, "metrics": {"loss": null}}]`} {
		before := len(d.kept())
		if status, answer := d.post("TRAINYARD_METRICS_URL", "", body); status != http.StatusOK ||
			!strings.Contains(d.kept()[before:], `"metrics":{"loss":"NaN"}`) {
			t.Errorf("%s: %d, %s, kept %s", body, status, answer, d.kept()[before:])
		}
	}

	before := d.kept()
	for _, body := range []string{`{"metrics": [{"key": "loss", "step": 1}]}`, `{"metrics": [{"key": "loss", "value": null}]}`, `{"metrics": [null]}`, `{"metrics": [{"value": 1}]}`} {
		if status, answer := d.post("MLFLOW_TRACKING_URI", "/api/2.0/mlflow/runs/log-batch", body); status != http.StatusBadRequest ||
			d.kept() != before {
			t.Errorf("%s: %d, %s", body, status, answer)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	d := open(t)
	url, token := d.env["TRAINYARD_METRICS_URL"], d.env["TRAINYARD_METRICS_TOKEN"]
	point := `{"step": 1, "loss": 2}`

	other, err := d.in.Env("j2.1", 0, false)
	if err != nil {
		t.Fatal(err)
	}

	if _, ok := other["MLFLOW_TRACKING_URI"]; ok {
		t.Error("a run that did not ask for it is pointed at us as at MLflow")
	}

	for _, test := range []struct {
		name, url, token, body, code string
		status                       int
	}{
		{"no token", url, "", point, "bad_token", 401},
		{"another run's token", url, other["TRAINYARD_METRICS_TOKEN"], point, "bad_token", 401},
		{"a token of nothing", url, strings.Repeat("0", 64), point, "bad_token", 401},
		{"no JSON", url, token, "loss=1", "bad_point", 400},
		{"no number", url, token, `{"step": 1}`, "bad_point", 400},
		{"nothing", url, token, "", "bad_point", 400},
		{"a step that is none", url, token, `{"step": "x", "metrics": {"loss": 1}}`, "bad_point", 400},
		{"too much", url, token, `{"step": 1, "x": "` + strings.Repeat("y", maxBody) + `"}`, "bad_body", 400},
		{"too many", url, token, strings.Repeat(point, maxLines+1), "bad_point", 400},
		{"a status that is none", d.env["KUBEFLOW_TRAINER_SERVER_URL"], token, "[]", "bad_status", 400},
	} {
		status, text := d.send(http.MethodPost, test.url, test.token, test.body)
		if status != test.status || !strings.Contains(text, test.code) {
			t.Errorf("%s: answered with %d %s", test.name, status, text)
		}
	}

	if d.kept() != "" {
		t.Errorf("something was kept: %s", d.kept())
	}

	if err := d.in.Forget("j1.2", 0); err != nil {
		t.Fatal(err)
	}

	if left, err := filepath.Glob(filepath.Join(d.dir, "j1.2.0*")); err != nil || len(left) > 0 {
		t.Errorf("of a run that is gone there is %v, %v", left, err)
	}

	if status, text := d.send(http.MethodPost, url, token, point); status != http.StatusNotFound {
		t.Errorf("a run that is gone: %d %s", status, text)
	}
}

func TestARunThatSendsTooFastIsTold(t *testing.T) {
	t.Parallel()
	d := open(t)

	body := strings.Repeat(`{"step": 1, "loss": 2}`, maxLines)
	for range int(burst) / maxLines {
		if status, text := d.post("TRAINYARD_METRICS_URL", "", body); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
	}

	if status, text := d.post("TRAINYARD_METRICS_URL", "", body); status != http.StatusTooManyRequests ||
		!strings.Contains(text, "too_fast") {
		t.Errorf("%d %s", status, text)
	}

	d.clk.pass(maxLines / perSecond * time.Second)

	if status, text := d.post("TRAINYARD_METRICS_URL", "", body); status != http.StatusOK {
		t.Errorf("after a while: %d %s", status, text)
	}

	if err := os.Truncate(d.in.Received("j1.2", 0), maxReceived); err != nil {
		t.Fatal(err)
	}

	d.clk.pass(time.Hour)

	if status, text := d.post(
		"TRAINYARD_METRICS_URL",
		"",
		`{"step": 1, "loss": 2}`,
	); status != http.StatusTooManyRequests ||
		!strings.Contains(text, "too_much") {
		t.Errorf("too much in all: %d %s", status, text)
	}
}

// The messages are those of transformers 5.22, recorded.
func TestStatusMessagesOfHuggingFace(t *testing.T) {
	t.Parallel()
	d := open(t)
	for _, body := range []string{
		`{"trainerStatus": {"lastUpdatedTime": "2026-11-15T12:30:49.490000+00:00", "progressPercentage": 0, "metrics": [{"name": "total_steps", "value": "60"}]}}`,
		`{"trainerStatus": {"lastUpdatedTime": "2026-11-15T12:30:54.512000+00:00", "progressPercentage": 41, "estimatedRemainingSeconds": 7, "metrics": [{"name": "loss", "value": "2.370958"}, {"name": "eval_runtime", "value": "0.0395"}, {"name": "current_step", "value": "25"}, {"name": "total_steps", "value": "60"}, {"name": "current_epoch", "value": "1.25"}]}}`,
		`{"trainerStatus": {"lastUpdatedTime": "2026-11-15T12:31:02.054000+00:00", "progressPercentage": 100, "estimatedRemainingSeconds": 0, "metrics": [{"name": "loss", "value": "nan"}, {"name": "train_loss", "value": "2.5"}, {"name": "odd", "value": "text"}]}}`,
	} {
		if status, text := d.post("KUBEFLOW_TRAINER_SERVER_URL", "", body); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
	}

	want := `{"at":1794744000,"done":0,"total":60,"source":"status"}
{"step":25,"at":1794744000,"metrics":{"loss":2.370958},"done":25,"total":60,"remaining":7,"source":"status"}
{"step":60,"at":1794744000,"metrics":{"loss":"NaN","train_loss":2.5},"done":60,"remaining":0,"source":"status"}
`

	if diff := cmp.Diff(want, d.kept()); diff != "" {
		t.Error(diff)
	}

	token, err := os.ReadFile(d.env["KUBEFLOW_TRAINER_SERVER_TOKEN"])
	if err != nil || string(token) != d.env["TRAINYARD_METRICS_TOKEN"] {
		t.Errorf("the token's file holds %q, %v", token, err)
	}
}

func TestAStatusOfNothingButProgress(t *testing.T) {
	t.Parallel()
	d := open(t)
	if status, text := d.post(
		"KUBEFLOW_TRAINER_SERVER_URL",
		"",
		`{"trainerStatus": {"progressPercentage": 41}}`,
	); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}

	if got := d.kept(); got != `{"step":41,"at":1794744000,"done":41,"total":100,"source":"status"}`+"\n" {
		t.Error(got)
	}
}

// The calls are those of MLflow's client 3.17, recorded.
func TestCallsOfMLflowsClient(t *testing.T) {
	t.Parallel()
	d := open(t)
	url, token := d.env["MLFLOW_TRACKING_URI"]+"/api/2.0/mlflow/", d.env["MLFLOW_TRACKING_TOKEN"]
	call := func(method, path, body string) string {
		t.Helper()
		status, text := d.send(method, url+path, token, body)
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, status, text)
		}

		return text
	}

	if text := call("GET", "experiments/get-by-name?experiment_name=e1", ""); !strings.Contains(text, `"name":"e1"`) ||
		!strings.Contains(text, `"experiment_id":"0"`) {
		t.Errorf("experiment: %s", text)
	}

	var made struct{ Run mlflowRun }
	if err := json.Unmarshal(
		[]byte(
			call(
				"POST",
				"runs/create",
				`{"experiment_id": "0", "user_id": "root", "run_name": "x", "start_time": 1794744557427, "tags": [{"key": "mlflow.user", "value": "root"}]}`,
			),
		),
		&made,
	); err != nil {
		t.Fatal(err)
	}

	id := made.Run.Info.RunID
	if len(id) != 32 || made.Run.Info.Status != "RUNNING" || made.Run.Info.RunName != "x" {
		t.Errorf("run: %+v", made)
	}

	call("POST", "runs/log-parameter", `{"run_uuid": "`+id+`", "key": "lr", "value": "0.1", "run_id": "`+id+`"}`)
	call("POST", "runs/set-tag", `{"run_uuid": "`+id+`", "key": "a", "value": "b", "run_id": "`+id+`"}`)

	call(
		"POST",
		"runs/log-metric",
		`{"run_uuid": "`+id+`", "key": "loss", "value": 1.0, "timestamp": 1794744557462, "step": 0, "run_id": "`+id+`"}`,
	)

	call(
		"POST",
		"runs/log-metric",
		`{"run_uuid": "`+id+`", "key": "loss", "value": 0.5, "timestamp": 1794744557468, "step": 0, "run_id": "`+id+`"}`,
	)

	call(
		"POST",
		"runs/log-batch",
		`{"run_id": "`+id+`", "metrics": [{"key": "acc", "value": 0.5, "timestamp": 1794744557490, "step": 3, "run_id": "r1"}, {"key": "nan", "value": "NaN", "timestamp": 1794744557490, "step": 3}]}`,
	)

	if text := call("GET", "runs/get?run_uuid="+id+"&run_id="+id, ""); !strings.Contains(text, `"params":[{"key":"lr","value":"0.1"}]`) ||
		!strings.Contains(text, `{"key":"a","value":"b"}`) {
		t.Errorf("run: %s", text)
	}

	if text := call(
		"POST",
		"runs/update",
		`{"run_uuid": "`+id+`", "status": "FINISHED", "end_time": 1794744557505, "run_id": "`+id+`"}`,
	); !strings.Contains(
		text,
		`"status":"FINISHED"`,
	) {
		t.Errorf("update: %s", text)
	}

	want := `{"step":0,"at":1794744557.462,"metrics":{"loss":1},"source":"mlflow"}
{"at":1794744557.468,"metrics":{"loss":0.5},"source":"mlflow"}
{"step":3,"at":1794744557.49,"metrics":{"acc":0.5},"source":"mlflow"}
{"step":3,"at":1794744557.49,"metrics":{"nan":"NaN"},"source":"mlflow"}
`

	if diff := cmp.Diff(want, d.kept()); diff != "" {
		t.Error(diff)
	}

	for _, test := range []struct {
		path, body, code string
		status           int
	}{
		{"registered-models/create", "{}", "RESOURCE_DOES_NOT_EXIST", 404},
		{"runs/log-metric", `{"key": "loss", "value": "high"}`, "INVALID_PARAMETER_VALUE", 400},
		{"runs/log-metric", `no`, "INVALID_PARAMETER_VALUE", 400},
		{"runs/set-tag", `{"key": "a", "value": 3}`, "INVALID_PARAMETER_VALUE", 400},
	} {
		if status, text := d.send("POST", url+test.path, token, test.body); status != test.status ||
			!strings.Contains(text, test.code) {
			t.Errorf("%s %s: %d %s", test.path, test.body, status, text)
		}
	}

	if status, text := d.send(
		"POST",
		url+"runs/create",
		"",
		"{}",
	); status != 401 ||
		!strings.Contains(text, "UNAUTHENTICATED") {
		t.Errorf("without a token: %d %s", status, text)
	}
}

func TestTheNextAgentIsAtTheSameAddress(t *testing.T) {
	t.Parallel()
	d := open(t)
	if err := d.in.Close(); err != nil {
		t.Fatal(err)
	}

	d.reopen()

	if status, text := d.post("TRAINYARD_METRICS_URL", "", `{"step": 1, "loss": 2}`); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}

	// Another one that finds the port taken listens elsewhere.
	port, err := os.ReadFile(filepath.Join(d.dir, portFile))
	if err != nil {
		t.Fatal(err)
	}

	second := &desk{t: t, dir: t.TempDir(), clk: d.clk}
	if err := os.WriteFile(filepath.Join(second.dir, portFile), port, 0o600); err != nil {
		t.Fatal(err)
	}

	second.reopen()

	if second.in.addr == d.in.addr {
		t.Errorf("both listen at %s", second.in.addr)
	}
}

func TestWhatNobodyRunsAnyMoreIsDropped(t *testing.T) {
	t.Parallel()
	d := open(t)
	if _, err := d.in.Env("j9.1", 0, false); err != nil {
		t.Fatal(err)
	}

	if err := d.in.Prune(func(name string) bool { return name == "j1.2.0" }); err != nil {
		t.Fatal(err)
	}

	if left, err := filepath.Glob(filepath.Join(d.dir, "j9.1.0*")); err != nil || len(left) > 0 {
		t.Errorf("it is still there: %v, %v", left, err)
	}

	if status, text := d.post("TRAINYARD_METRICS_URL", "", `{"step": 1, "loss": 2}`); status != http.StatusOK {
		t.Errorf("the other one: %d %s", status, text)
	}
}

// A folder costs more than the rest of a short run.
func TestARunThatSendsNothingHasNoFolder(t *testing.T) {
	t.Parallel()
	d := open(t)
	folder := filepath.Join(d.dir, "j1.2.0")

	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("it has a folder: %v", err)
	}

	if status, text := d.post("TRAINYARD_METRICS_URL", "", `{"step": 1, "loss": 2}`); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}

	if _, err := os.Stat(folder); err != nil {
		t.Errorf("one that sends has none: %v", err)
	}
}

// An agent of an earlier version has put the token of a run into its folder.
func TestARunOfAnEarlierAgentIsStillHeard(t *testing.T) {
	t.Parallel()
	d := open(t)

	err := os.Remove(filepath.Join(d.dir, "j1.2.0.token"))
	if err == nil {
		err = os.Mkdir(filepath.Join(d.dir, "j1.2.0"), 0o700)
	}

	if err != nil {
		t.Fatal(err)
	}

	d.reopen()

	if status, text := d.post("TRAINYARD_METRICS_URL", "", `{"step": 1, "loss": 2}`); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
}

func FuzzRequest(f *testing.F) {
	f.Add("metrics", `{"step": 10, "metrics": {"loss": "NaN"}, "total": 5}`)
	f.Add("metrics", `[{"step": 1, "loss": 2}]`)
	f.Add("status", `{"trainerStatus": {"progressPercentage": 41, "metrics": [{"name": "loss", "value": "2.37"}]}}`)

	f.Add(
		"mlflow/api/2.0/mlflow/runs/log-batch",
		`{"run_id": "x", "metrics": [{"key": "acc", "value": 0.5, "timestamp": 1794744557490, "step": 3}]}`,
	)

	f.Add("mlflow/api/2.0/mlflow/runs/create", `{"tags": [{"key": "a", "value": "b"}]}`)
	f.Add("metrics", fuzzing.Long(`{"step": 1, "loss": `))
	f.Add("metrics", "["+fuzzing.Long(`{"step": 1, "loss": 2},`)+`{"step": 2}]`)
	d := open(f)
	handler := d.in.handler()
	f.Fuzz(func(t *testing.T, path, body string) {
		defer fuzzing.Bounded(t)()

		if strings.ContainsAny(path, " ?#%\\") ||
			strings.ContainsFunc(path, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Skip("no path")
		}

		d := *d
		d.t = t
		d.clk.pass(time.Minute)

		req, err := http.NewRequestWithContext(
			t.Context(),
			http.MethodPost,
			"http://x/v1/j1.2.0/"+path,
			strings.NewReader(body),
		)
		if err != nil {
			t.Skip("no request")
		}

		req.Header.Set("Authorization", "Bearer "+d.env["TRAINYARD_METRICS_TOKEN"])
		before := d.kept()
		w := &answered{header: http.Header{}}
		handler.ServeHTTP(w, req)
		after := d.kept()

		if w.status >= 500 {
			t.Errorf("answered with %d %s", w.status, w.body.String())
		}

		if w.status != http.StatusOK && before != after {
			t.Error("something was kept of what was refused")
		}

		for line := range strings.Lines(strings.TrimPrefix(after, before)) {
			if !json.Valid([]byte(line)) {
				t.Errorf("what is kept is no JSON: %q", line)
			}
		}

		if err := os.Remove(d.in.Received("j1.2", 0)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	})
}

// answered keeps an answer.
type answered struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answered) Header() http.Header  { return a.header }
func (a *answered) WriteHeader(code int) { a.status = code }
func (a *answered) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}

	return a.body.Write(p)
}
