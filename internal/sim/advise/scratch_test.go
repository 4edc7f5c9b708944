package advise_test

import (
	"testing"
	"time"
	"fmt"
	"math/rand/v2"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/sim/advise"
)

func TestScratchScale(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	h := &advise.History{Idle: 5 * time.Minute, Tariff: rent(2)}
	for i := range 16 { h.Nodes = append(h.Nodes, box(fmt.Sprintf("n%02d", i), fleet.Local, 8)) }
	o := offer("v8", 16, false, 0); o.GPUs = 8
	s := offer("v8", 5, true, 0.05); s.GPUs = 8
	h.Offers = []fleet.Offer{o, s}
	at := time.Duration(0)
	for i := range 5000 {
		at += time.Duration(r.ExpFloat64() * float64(span) / 5000)
		if at >= span { break }
		j := lasted(at, time.Duration((0.2+r.ExpFloat64()*8)*float64(hour)), []job.Objective{job.ObjectiveTime, job.ObjectiveBalanced, job.ObjectiveCost}[r.IntN(3)])
		g := []int{1, 1, 2, 4, 8}[r.IntN(5)]
		j.Spec.Resources.GPUs = job.Range{Min: g, Max: g}
		j.Ran[0].GPUs = g
		j.ID = id.NewJob(uint64(i + 1))
		h.Jobs = append(h.Jobs, j)
	}
	begin := time.Now()
	rep := ask(t, advise.Question{History: h})
	t.Logf("%d jobs, %d advice in %s; base %+v", rep.Jobs, len(rep.Advice), time.Since(begin), rep.Base)
	for _, a := range rep.Advice { t.Log(a.Verdict, a.Why) }
}
