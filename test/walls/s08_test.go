package walls_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"trainyard/internal/api"
)

// TestS08_WaitingJobsDoNotFillTheMemory submits jobs with long commands that are never started.
func TestS08_WaitingJobsDoNotFillTheMemory(t *testing.T) {
	t.Parallel()
	y := newYard(t, "--max-job-text", "1MB", "--max-jobs", "20")
	mallory, alice := y.user(t, "mallory"), y.user(t, "alice")
	long := func(n int) api.SubmitRequest { // texts that jobs have in common are kept once
		return api.SubmitRequest{File: "run: echo " + strings.Repeat(strconv.Itoa(n), 250_000)}
	}

	accepted := 0
	a := mallory.call(t, http.MethodPost, "/api/v1/jobs", long(accepted))
	for ; a.status == http.StatusCreated && accepted < 9; accepted++ {
		a = mallory.call(t, http.MethodPost, "/api/v1/jobs", long(accepted+1))
	}

	if accepted == 0 || accepted > 4 || a.status != http.StatusTooManyRequests || a.problem.Code != "too_much_job_text" ||
		!strings.Contains(a.problem.Detail, "unfinished jobs of mallory") || a.problem.Remedy == "" {
		t.Errorf("after %d jobs: %s", accepted, &a)
	}

	for range 20 - accepted {
		mallory.submit(t, "run: short")
	}

	a = mallory.call(t, http.MethodPost, "/api/v1/jobs", api.SubmitRequest{File: "run: short"})
	if a.status != http.StatusTooManyRequests || a.problem.Code != "too_many_jobs" {
		t.Errorf("one job too many: %s", &a)
	}

	alice.submit(t, "run: another")
}
