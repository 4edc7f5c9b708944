package walls_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// loots registers a dataset and has a job print it. It returns why the run could not start, and what was printed.
func (u *user) loots(t *testing.T, name string, request api.DatasetRequest) (reason, output string) {
	t.Helper()
	request.Place = job.PlaceAny
	_, err := u.PutDataset(t.Context(), id.Dataset(name), request)
	must(t, err)

	j := u.submit(t, script(`find -L "$TRAINYARD_DATA_DIR" -type f -exec cat {} +`)+
		"data: ["+name+"]\n")

	u.yard.await(t, "a run of job "+string(j)+" has ended", func() bool {
		d, err := u.Job(t.Context(), j)
		must(t, err)

		if len(d.Runs) > 0 && d.Runs[0].State == job.RunEnded {
			reason = d.Runs[0].Reason
			return true
		}

		return false
	})

	output = u.output(t, j)
	_, err = u.KillJob(t.Context(), j)
	must(t, err)

	return reason, output
}

// TestS04_DatasetsReadNothingButTheDataRoots registers datasets whose sources are what the agent alone may read.
func TestS04_DatasetsReadNothingButTheDataRoots(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	roots := filepath.Join(y.Folder, "roots")
	must(t, os.MkdirAll(roots, 0o755))

	key := filepath.Join(y.AgentData("north"), "agent", "identity", "node.pem")
	must(t, os.Symlink(key, filepath.Join(roots, "link")))
	must(t, os.Symlink(y.AgentData("north"), filepath.Join(roots, "folder")))
	y.rootAgent(t, "north", "--data-roots", roots)
	mallory := y.user(t, "mallory")

	for name, tt := range map[string]struct {
		request api.DatasetRequest
		want    string
	}{
		"copied":    {api.DatasetRequest{Source: "file://" + key}, "is not below a data root of this node"},
		"in-place":  {api.DatasetRequest{Source: key}, "is not below a data root of this node"},
		"a-copy":    {api.DatasetRequest{Copies: []api.Copy{{Node: "north", Path: key}}}, "is not below a data root"},
		"passwords": {api.DatasetRequest{Source: "file:///etc/shadow"}, "is not below a data root of this node"},
		"climbing":  {api.DatasetRequest{Source: "file://" + roots + "/../agents"}, "is not below a data root of this node"},
		"by-link":   {api.DatasetRequest{Source: "file://" + roots + "/link"}, "leads out of the data roots"},
		"below":     {api.DatasetRequest{Source: "file://" + roots + "/folder/agent/identity"}, "leads out of the data roots"},
	} {
		reason, output := mallory.loots(t, name, tt.request)
		if !strings.Contains(reason, tt.want) {
			t.Errorf("%s: the run ended because of %q, want %q", name, reason, tt.want)
		}

		if strings.Contains(output, "PRIVATE KEY") || strings.Contains(output, "root:") {
			t.Errorf("%s: the job printed %s", name, output)
		}
	}
}

// TestS04_TheAgentsOwnFilesAreNeverData has an operator who lists a root with the agent's data directory in it.
func TestS04_TheAgentsOwnFilesAreNeverData(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.rootAgent(t, "north", "--data-roots", "/")
	mallory := y.user(t, "mallory")

	for name, path := range map[string]string{
		"key": filepath.Join(y.AgentData("north"), "agent", "identity", "node.pem"), "data": y.AgentData("north"), "yard": y.Folder,
	} {
		reason, output := mallory.loots(t, name, api.DatasetRequest{Source: "file://" + path})
		if !strings.Contains(reason, "belongs to the agent of this node") || strings.Contains(output, "PRIVATE KEY") {
			t.Errorf("%s: the run ended because of %q, and the job printed %s", name, reason, output)
		}
	}
}

// TestS04_TheAgentFetchesFromNoAddressOfItsOwn uses the agent's place in the network: services that trust whoever
// reaches them.
func TestS04_TheAgentFetchesFromNoAddressOfItsOwn(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	secret := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusOK)
	}))
	t.Cleanup(secret.Close)

	evil := httptest.NewServer(http.RedirectHandler(secret.URL, http.StatusFound))
	t.Cleanup(evil.Close)

	y := newYard(t)
	y.rootAgent(t, "north", "--data-hosts", strings.TrimPrefix(evil.URL, "http://"))
	mallory := y.user(t, "mallory")

	for name, source := range map[string]string{
		"local":    secret.URL + "/latest/meta-data",
		"name":     strings.Replace(secret.URL, "127.0.0.1", "localhost", 1),
		"redirect": evil.URL + "/redirect",
		"metadata": "http://169.254.169.254/latest/meta-data/iam/security-credentials/",
	} {
		reason, _ := mallory.loots(t, name, api.DatasetRequest{Source: source})
		if !strings.Contains(reason, "is an address that datasets are not fetched from") {
			t.Errorf("%s: the run ended because of %q", name, reason)
		}
	}

	if n := asked.Load(); n > 0 {
		t.Errorf("the service of the machine was asked %d times", n)
	}
}
