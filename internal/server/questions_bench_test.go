package server

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"trainyard/internal/auth"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// fullYard starts a server with nodes of eight GPUs that all run jobs, and so many jobs that wait.
func fullYard(b *testing.B, nodes, waiting int) (y *yard, token string) {
	b.Helper()
	y = newYard(b, withConfig(func(c *Config) { c.Rate = 0 }))
	token = y.token("root", tenant.Admin, tenant.ScopeAdmin)

	join, err := auth.Mint(tenant.JoinToken, rand.Reader, y.ca.Hash())
	y.must(err)
	y.do(yardmaster.AddToken{By: "test", Token: tenant.Token{
		ID: join.ID, Hash: join.Hash, Kind: tenant.JoinToken, Owner: "root", Class: string(fleet.Local), UsesLeft: nodes,
		Expires: y.clock.Now().Add(time.Hour),
	}})

	inventory := fleet.Inventory{Address: "10.0.0.1", CPUs: 64_000, Memory: 512 << 30, Disk: 1 << 40, MixUsers: true}
	for i := range 8 {
		inventory.GPUs = append(inventory.GPUs, fleet.GPU{Index: i, Model: "NVIDIA A100-SXM4-80GB", Memory: 80 << 30})
	}

	for i := range nodes {
		name := fmt.Sprintf("node%04d", i)
		y.do(yardmaster.Join{Token: join.ID, Name: name, Key: name, Inventory: inventory})
	}

	for i := range 100 {
		y.do(yardmaster.PutUser{User: id.User(fmt.Sprintf("user%02d", i)), Role: tenant.Researcher, By: "test"})
	}

	const atOnce = 100
	for from := 0; from < 8*nodes+waiting; from += atOnce {
		m := yardmaster.Submit{Owner: id.User(fmt.Sprintf("user%02d", from/atOnce%100))}
		for i := from; i < from+atOnce; i++ {
			gpus := 1
			if i >= 8*nodes {
				gpus = []int{1, 2, 4, 8}[i%4]
			}

			m.Jobs = append(m.Jobs, yardmaster.NewJob{Spec: &job.Spec{
				Name: fmt.Sprintf("train-%d", i), Run: fmt.Sprintf("python train.py --seed %d", i), Place: job.PlaceAny,
				Expect: job.Duration(time.Duration(1+i%40) * time.Hour),
				Resources: job.Resources{
					Nodes: job.Range{Min: 1, Max: 1}, GPUs: job.Range{Min: gpus, Max: gpus}, CPUs: 4000, Memory: 32 << 30,
				},
			}})
		}

		y.do(m)
	}

	return y, token
}

// BenchmarkQuestions is what questions about jobs cost the server, without TLS, while the yard has nothing else to do:
// a page of 50 queued jobs, and one queued job.
func BenchmarkQuestions(b *testing.B) {
	for _, size := range []struct{ nodes, waiting int }{{100, 2_000}, {1_000, 17_500}} {
		y, token := fullYard(b, size.nodes, size.waiting)
		handler := y.srv.Handler()
		name := fmt.Sprintf("%dnodes/%dwaiting", size.nodes, size.waiting)

		for _, question := range []struct {
			name, path string
			round      bool // each is asked after another round
		}{
			{"page", "/api/v1/jobs?limit=50", false},
			{"page of another round", "/api/v1/jobs?limit=50", true},
			{"job", fmt.Sprintf("/api/v1/jobs/j%d", 8*size.nodes+size.waiting/2), false},
		} {
			b.Run(question.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()

				for b.Loop() {
					if snap := y.loop.newest.Load(); question.round {
						snap.explained.Store(newExplanations(snap.Snapshot, y.clock.Now()))
					}

					r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, question.path, nil)
					r.Header.Set("Authorization", "Bearer "+token)
					w := httptest.NewRecorder()
					handler.ServeHTTP(w, r)

					if w.Code != http.StatusOK {
						b.Fatalf("%d: %s", w.Code, w.Body)
					}
				}
			})
		}
	}
}
