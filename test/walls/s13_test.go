package walls_test

import (
	"net/http"
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/dataset"
	"trainyard/internal/job"
)

// TestS13_ADatasetIsItsOwners tries everything of the review with the dataset of another.
func TestS13_ADatasetIsItsOwners(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, mallory := y.user(t, "ada"), y.user(t, "mallory")

	const source = "https://svc:s3cr3t@nas.example/mri.tar?X-Amz-Signature=abc"

	_, err := ada.PutDataset(t.Context(), "mri", api.DatasetRequest{Place: job.PlaceLocal, Source: source})
	must(t, err)

	// Credentials.
	for _, path := range []string{"/api/v1/datasets", "/api/v1/datasets/mri"} {
		a := mallory.call(t, http.MethodGet, path, nil)
		if a.status != http.StatusOK || strings.Contains(a.text, "s3cr3t") || strings.Contains(a.text, "abc") ||
			!strings.Contains(a.text, "nas.example/mri.tar") {
			t.Errorf("GET %s: %s", path, &a)
		}
	}

	// Another name for the same data, where the rule of the first would not hold.
	_, err = mallory.PutDataset(t.Context(), "loot",
		api.DatasetRequest{Place: job.PlaceAny, Source: "https://nas.example/mri.tar"})
	must(t, err)

	a := mallory.call(t, http.MethodPost, "/api/v1/jobs", api.SubmitRequest{File: "run: ls\nplace: cloud\ndata: [loot]"})
	if a.status != http.StatusUnprocessableEntity || a.problem.Code != "place_conflict" ||
		!strings.Contains(a.problem.Detail, "by the rule of dataset mri, which has the same data") {
		t.Errorf("the same data under another name: %s", &a)
	}

	// Readers.
	_, err = ada.PutDataset(t.Context(), "mri",
		api.DatasetRequest{Place: job.PlaceLocal, Source: source, Readers: []dataset.Reader{"bob"}})
	must(t, err)

	a = mallory.call(t, http.MethodPost, "/api/v1/jobs", api.SubmitRequest{File: "run: ls\ndata: [mri]"})
	if a.status != http.StatusUnprocessableEntity || a.problem.Code != "no_dataset" {
		t.Errorf("the data of others: %s", &a)
	}

	a = mallory.call(t, http.MethodGet, "/api/v1/datasets/mri", nil)
	if a.status != http.StatusNotFound {
		t.Errorf("GET of the data of others: %s", &a)
	}

	y.audit(t, "data.changed", func(e *api.Event) bool {
		return e.Actor == "ada" && strings.Contains(e.Reason, "readers changed from everybody to bob")
	})

	// The name, after it was removed.
	must(t, ada.RemoveDataset(t.Context(), "mri"))

	a = mallory.call(t, http.MethodPut, "/api/v1/datasets/mri",
		api.DatasetRequest{Place: job.PlaceAny, Source: "https://evil.example/x"})
	if a.status != http.StatusForbidden || a.problem.Code != "not_allowed" {
		t.Errorf("the name of a removed dataset: %s", &a)
	}

	a = mallory.call(t, http.MethodGet, "/api/v1/datasets/mri/audit", nil)
	if a.status != http.StatusForbidden {
		t.Errorf("the audit of a removed dataset: %s", &a)
	}
}
