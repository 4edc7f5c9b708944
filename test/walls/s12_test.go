package walls_test

import (
	"net/http"
	"strings"
	"testing"

	"trainyard/internal/api"
)

// TestS12_NobodyUsesUpTheQuotaOfAnothersProject submits jobs to a project of others, at the highest priority.
func TestS12_NobodyUsesUpTheQuotaOfAnothersProject(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.rootAgent(t, "north", "--fake-gpus", "2xA100:80GB", "--probe", "off")
	alice, mallory := y.user(t, "alice"), y.user(t, "mallory")
	y.admin.must(t, "projects", "add", "vision", "--member", "alice")
	y.admin.must(t, "quota", "set", "project/vision", "--gpus", "1", "--gpu-hours", "0.01")

	file := script("sleep 600") + "project: vision\npriority: 100\n"
	a := mallory.call(t, http.MethodPost, "/api/v1/jobs", api.SubmitRequest{File: file})
	if a.status != http.StatusForbidden || a.problem.Code != "not_a_member" ||
		!strings.Contains(a.text, "mallory is not a member of project vision") {
		t.Errorf("mallory submits to a project of others: %s", &a)
	}

	a = mallory.call(t, http.MethodPost, "/api/v1/jobs", api.SubmitRequest{File: script("true") + "priority: 100\n"})
	if a.status != http.StatusForbidden || a.problem.Code != "priority_too_high" || !strings.Contains(a.text,
		"at most 50") {
		t.Errorf("mallory jumps the queue: %s", &a)
	}

	for _, path := range []string{"/api/v1/projects/vision", "/api/v1/projects/vision/members/mallory"} {
		if a := mallory.call(t, http.MethodPut, path, struct{}{}); a.status != http.StatusForbidden {
			t.Errorf("mallory lets herself in by %s: %s", path, &a)
		}
	}

	if a := mallory.call(t, http.MethodGet, "/api/v1/projects/vision", nil); a.status != http.StatusNotFound {
		t.Errorf("mallory sees who is in the project: %s", &a)
	}

	j := alice.submit(t, "run: \"true\"\nproject: vision\nresources: {gpus: 1}\n")
	if d := alice.ended(t, j); d.State != "succeeded" {
		t.Errorf("the quota is not there for its members: %s, %s", d.State, d.Reason)
	}
}
