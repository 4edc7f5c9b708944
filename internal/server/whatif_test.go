package server

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/tenant"
)

// A simulation is made of what its caller may see, and one at a time for each of them.
func TestASimulationSeesWhatItsCallerMay(t *testing.T) {
	t.Parallel()

	y := newYard(t)
	y.submit(y.researcher("ada"), "run: a\nresources: {memory: 900GB}")
	y.submit(y.researcher("bob"), "run: b\nresources: {memory: 900GB}")

	begun, release := make(chan struct{}, 1), make(chan struct{})
	y.srv.WhatIf = func(ctx context.Context, r *Reader, q *api.WhatIfRequest) (*api.WhatIf, error) {
		if q.Policy == "wait" {
			begun <- struct{}{}

			<-release
		}

		if q.Policy == "fails" {
			_, err := r.Job(ctx, "j99")
			return nil, err
		}

		page, err := r.Jobs(ctx, api.JobFilter{Page: api.Page{Limit: 10}})

		return &api.WhatIf{Jobs: len(page.Jobs)}, err
	}

	ask := func(token, policy string) (int, int) {
		a := y.raw(y.http, http.MethodPost, "/api/v1/whatif", token, `{"policy":"`+policy+`"}`)

		var out api.WhatIf
		_ = json.Unmarshal(a.body, &out) // a refusal has none

		return a.status, out.Jobs
	}

	ada, root := y.token("ada", tenant.Researcher, tenant.ScopeRead), y.token("root", tenant.Admin, tenant.ScopeRead)
	if status, jobs := ask(ada, ""); status != http.StatusOK || jobs != 1 {
		t.Errorf("ada is answered %d with %d jobs, want her own", status, jobs)
	}
	if status, jobs := ask(root, ""); status != http.StatusOK || jobs != 2 {
		t.Errorf("an admin is answered %d with %d jobs, want all", status, jobs)
	}
	if status, _ := ask(root, "fails"); status != http.StatusNotFound {
		t.Errorf("a job that is not there is answered with %d", status)
	}

	done := make(chan int)
	go func() {
		status, _ := ask(ada, "wait")
		done <- status
	}()

	<-begun

	if status, _ := ask(ada, ""); status != http.StatusTooManyRequests {
		t.Errorf("a second simulation of the same user is answered with %d", status)
	}
	if status, _ := ask(root, ""); status != http.StatusOK {
		t.Errorf("a simulation of another user is answered with %d", status)
	}

	close(release)

	if status := <-done; status != http.StatusOK {
		t.Errorf("the first simulation is answered with %d", status)
	}
}

func TestPoliciesAreListedWithTheirParameters(t *testing.T) {
	t.Parallel()

	y := newYard(t)
	y.srv.Policies = catalogue.All(nil)
	a := y.raw(y.http, http.MethodGet, "/api/v1/policies", y.token("ada", tenant.Viewer, tenant.ScopeRead), "")

	var list api.PolicyList
	y.must(json.Unmarshal(a.body, &list))

	if list.Policy != "fifo" || len(list.Policies) != len(catalogue.All(nil)) {
		t.Fatalf("the policy in force is %s, and %d are listed", list.Policy, len(list.Policies))
	}

	for _, p := range list.Policies {
		if p.Name == "andreas" && (p.Rule == "" || len(p.Params) == 0 || p.Params[0].Help == "") {
			t.Errorf("andreas is listed as %+v", p)
		}
	}
}

func TestAServerWithoutASimulatorSaysSo(t *testing.T) {
	t.Parallel()

	if _, err := noSimulator(t.Context(), nil, nil); fault.KindOf(err) != fault.Conflict {
		t.Errorf("the answer is %v", err)
	}
}
