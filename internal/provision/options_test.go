package provision_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/provision"
)

// need is a need for so many GPUs of one node.
func need(gpus int) fleet.Need {
	return fleet.Need{Nodes: 1, MaxNodes: 1, GPUs: gpus, MaxGPUs: gpus, CPUs: 1000, Place: job.PlaceAny}
}

// fleetOf makes offers of one GPU each: name, TFLOPS, price an hour.
func fleetOf(gpus ...fleet.Offer) []fleet.Offer {
	for i := range gpus {
		o := &gpus[i]
		o.Provider, o.Type, o.GPUs = "x", o.GPU, max(o.GPUs, 1)
		o.CPUs, o.Memory, o.GPUMemory = 8000, 64*gib, cmp.Or(o.GPUMemory, 24*gib)
		if o.Spot && o.LossRate == 0 {
			o.LossRate = 1e-9
		}

		o.Name = o.NameOf()
	}

	return gpus
}

func optionNames(options []provision.Option) []string {
	all := []string{}
	for i := range options {
		all = append(all, options[i].Offer.Name)
	}

	return all
}

func TestTheObjectiveDecides(t *testing.T) {
	t.Parallel()
	offers := fleetOf(
		fleet.Offer{GPU: "slow", TFLOPS: 50, Hourly: 1e6},   // 10 h for $10
		fleet.Offer{GPU: "fast", TFLOPS: 500, Hourly: 15e6}, // 1 h for $15
		fleet.Offer{GPU: "mid", TFLOPS: 100, Hourly: 2.2e6}, // 5 h for $11
	)

	for name, c := range map[string]struct {
		objective job.Objective
		value     money.PerHour
		want      []string
	}{
		"time":                           {job.ObjectiveTime, 0, []string{"x/fast", "x/mid", "x/slow"}},
		"cost":                           {job.ObjectiveCost, 0, []string{"x/slow", "x/mid", "x/fast"}},
		"balanced, time is worth little": {job.ObjectiveBalanced, 0.01, []string{"x/slow", "x/mid", "x/fast"}},
		"balanced, time is worth a bit":  {job.ObjectiveBalanced, 0.5, []string{"x/mid", "x/slow", "x/fast"}},
		"balanced, time is worth much":   {job.ObjectiveBalanced, 10, []string{"x/fast", "x/mid", "x/slow"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := provision.Options(
				offers,
				need(1),
				provision.Query{Now: noon, Objective: c.objective, HourValue: c.value, Run: 10 * time.Hour, Reference: ref(50)},
			)

			if !slices.Equal(optionNames(got), c.want) {
				t.Errorf("got %v, want %v", optionNames(got), c.want)
			}
		})
	}
}

func TestOnlyWhatFitsIsOffered(t *testing.T) {
	t.Parallel()
	offers := fleetOf(
		fleet.Offer{
			GPU:       "A100 80GB",
			GPUMemory: 80 * gib,
			Hourly:    3e6,
		},
		fleet.Offer{GPU: "A100 40GB", GPUMemory: 40 * gib, Hourly: 2e6},
		fleet.Offer{
			GPU:       "T4",
			GPUMemory: 16 * gib,
			Hourly:    1e6,
		},
		fleet.Offer{GPU: "V100", GPUs: 4, GPUMemory: 16 * gib, Hourly: 4e6},
	)

	for name, c := range map[string]struct {
		need fleet.Need
		want []string
	}{
		"a kind":                            {fleet.Need{Nodes: 1, GPUs: 1, MaxGPUs: 1, Kinds: "A100", Place: job.PlaceCloud}, []string{"x/A100 40GB", "x/A100 80GB"}},
		"a kind and a size":                 {fleet.Need{Nodes: 1, GPUs: 1, MaxGPUs: 1, Kinds: "A100:80GB", Place: job.PlaceAny}, []string{"x/A100 80GB"}},
		"memory":                            {fleet.Need{Nodes: 1, GPUs: 1, MaxGPUs: 1, GPUMin: 30 * gib, Place: job.PlaceAny}, []string{"x/A100 40GB", "x/A100 80GB"}},
		"more memory than where it ran out": {fleet.Need{Nodes: 1, GPUs: 1, MaxGPUs: 1, GPUOver: 40 * gib, Place: job.PlaceAny}, []string{"x/A100 80GB"}},
		"a count":                           {fleet.Need{Nodes: 1, GPUs: 2, MaxGPUs: 2, Place: job.PlaceAny}, []string{"x/V100"}},
		"no GPU":                            {fleet.Need{Nodes: 1, CPUs: 8000, Place: job.PlaceAny}, []string{"x/T4", "x/A100 40GB", "x/A100 80GB", "x/V100"}},
		"own nodes":                         {fleet.Need{Nodes: 1, GPUs: 1, MaxGPUs: 1, Place: job.PlaceLocal}, []string{}},
		"many CPUs":                         {fleet.Need{Nodes: 1, CPUs: 9000, Place: job.PlaceAny}, []string{}},
		"much memory":                       {fleet.Need{Nodes: 1, Memory: 65 * gib, Place: job.PlaceAny}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := provision.Options(offers, c.need, provision.Query{Now: noon, Objective: job.ObjectiveCost, Run: time.Hour})
			if !slices.Equal(optionNames(got), c.want) {
				t.Errorf("got %v, want %v", optionNames(got), c.want)
			}
		})
	}
}

// ref is a GPU of another model than any offer's.
func ref(tflops float64) job.Reference { return job.Reference{GPU: "base", TFLOPS: tflops} }

func TestMoneyAndTimesOfAnOption(t *testing.T) {
	t.Parallel()
	const h, m = time.Hour, time.Minute
	stage := func(*fleet.Offer) (time.Duration, money.Amount) { return 6 * m, 0.5 }
	for name, c := range map[string]struct {
		offer  fleet.Offer
		query  provision.Query
		nodes  int
		start  time.Duration
		finish time.Duration
		cost   money.Amount
	}{
		"by the second":              {fleet.Offer{Hourly: 6e6}, provision.Query{Run: 90 * m}, 1, 0, 90 * m, 9},
		"boot and set-up are paid":   {fleet.Offer{Hourly: 6e6, Boot: job.Duration(4 * m)}, provision.Query{Run: h, Setup: 6 * m}, 1, 10 * m, 70 * m, 7},
		"by the hour":                {fleet.Offer{Hourly: 6e6, BillingIncrement: job.Duration(h)}, provision.Query{Run: 61 * m}, 1, 0, 61 * m, 12},
		"at least":                   {fleet.Offer{Hourly: 6e6, MinBilling: job.Duration(2 * h)}, provision.Query{Run: m}, 1, 0, m, 12},
		"staging":                    {fleet.Offer{Hourly: 6e6}, provision.Query{Run: h, Stage: stage}, 1, 6 * m, 66 * m, 7.1},
		"several nodes":              {fleet.Offer{Hourly: 6e6}, provision.Query{Run: h, Reference: ref(100), Stage: stage}, 2, 6 * m, 66 * m, 14.2},
		"half the speed":             {fleet.Offer{Hourly: 6e6}, provision.Query{Run: h, Reference: ref(200)}, 1, 0, 2 * h, 12},
		"a speed that is looked up":  {fleet.Offer{GPU: "known", Hourly: 6e6, TFLOPS: -1}, provision.Query{Run: h, Reference: ref(200)}, 1, 0, 4 * h, 24},
		"a speed that nobody knows":  {fleet.Offer{Hourly: 6e6, TFLOPS: -1}, provision.Query{Run: h, Reference: ref(200)}, 1, 0, h, 6},
		"what the caller knows":      {fleet.Offer{Hourly: 6e6}, provision.Query{RunTime: func(_ *fleet.Offer, n, g int) (time.Duration, bool) { return time.Duration(10*n+g) * m, true }}, 2, 0, 21 * m, 4.2},
		"spot that is never lost":    {fleet.Offer{Hourly: 6e6, Spot: true}, provision.Query{Run: h}, 1, 0, h, 6},
		"no work at all":             {fleet.Offer{Hourly: 6e6, Spot: true, LossRate: 1}, provision.Query{RunTime: func(*fleet.Offer, int, int) (time.Duration, bool) { return 0, true }}, 1, 0, 0, 0},
		"spot by the hour, 1 loss":   {fleet.Offer{Hourly: 6e6, Spot: true, LossRate: math.Ln2, BillingIncrement: job.Duration(h)}, provision.Query{Run: h}, 1, 0, job.Seconds(3600 / math.Ln2), 15},
		"a job that needs no GPU":    {fleet.Offer{Hourly: 6e6}, provision.Query{Run: h, Reference: ref(200)}, 0, 0, h, 6},
		"spot by the second, 1 loss": {fleet.Offer{Hourly: 6e6, Spot: true, LossRate: math.Ln2}, provision.Query{Run: h}, 1, 0, job.Seconds(3600 / math.Ln2), 6 / math.Ln2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.offer.GPU = cmp.Or(c.offer.GPU, "g")
			switch c.offer.TFLOPS {
			case 0:
				c.offer.TFLOPS = 100
			case -1:
				c.offer.TFLOPS = 0
			}

			n := need(1)
			n.Nodes, n.MaxNodes = max(c.nodes, 1), max(c.nodes, 1)
			if c.nodes == 0 {
				n.GPUs, n.MaxGPUs = 0, 0
			}

			c.query.Now, c.query.Objective = noon, job.ObjectiveCost

			peak := func(gpu string, _ job.Bytes) float64 {
				if gpu == "known" {
					return 50
				}

				return 0
			}

			got := provision.NewIndex(fleetOf(c.offer), peak).Fit(n).Options(c.query)
			if len(got) != 1 {
				t.Fatalf("got %d options", len(got))
			}

			o := &got[0]
			late := o.Finish.Sub(noon) - c.finish
			if o.Start.Sub(noon) != c.start || late.Abs() > time.Second ||
				math.Abs(float64(o.Money-c.cost)) > 0.001 || o.Guessed || o.Nodes != n.Nodes {
				t.Errorf("got %+v, want start %s, finish %s, $%g", *o, c.start, c.finish, c.cost)
			}
		})
	}
}

func TestMoreNodesAreTriedAsFarAsTheyHelp(t *testing.T) {
	t.Parallel()
	n := need(1)
	n.MaxNodes = 16
	takes := func(_ *fleet.Offer, nodes, _ int) (time.Duration, bool) {
		return 8 * time.Hour / time.Duration(min(nodes, 4)), nodes <= 8
	}

	counts := func(o fleet.Offer, q provision.Query) []int {
		var all []int
		q.Now, q.Objective = noon, job.ObjectiveCost
		for _, opt := range provision.Options(fleetOf(o), n, q) {
			all = append(all, opt.Nodes)
		}

		slices.Sort(all)

		return all
	}

	plain := fleet.Offer{GPU: "g", Hourly: 1e6}
	few := plain
	few.MaxNodes = 3

	if got := counts(plain, provision.Query{RunTime: takes}); !slices.Equal(got, []int{1, 2, 4}) {
		t.Errorf("tried %v, want up to 4: more is not faster", got)
	}

	if got := counts(few, provision.Query{RunTime: takes}); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("tried %v, want no more than there may be", got)
	}

	if got := counts(plain, provision.Query{}); !slices.Equal(got, []int{1}) {
		t.Errorf("tried %v, want the least where nothing is known", got)
	}

	n.Nodes = 4

	if got := counts(few, provision.Query{RunTime: takes}); len(got) != 0 {
		t.Errorf("tried %v, want nothing: there may be 3", got)
	}
}

func TestWithoutAnEstimateTheCheapestWorkComesFirst(t *testing.T) {
	t.Parallel()
	offers := fleetOf(
		fleet.Offer{GPU: "slow", TFLOPS: 50, Hourly: 1e6},
		fleet.Offer{GPU: "fast", TFLOPS: 500, Hourly: 5e6},
	)

	got := provision.Options(offers, need(1), provision.Query{Now: noon, Objective: job.ObjectiveCost})
	if !slices.Equal(optionNames(got), []string{"x/fast", "x/slow"}) || !got[0].Guessed {
		t.Errorf("got %v", optionNames(got))
	}

	if want := "1× x/fast: start Mar 1 12:00 UTC, $5.00/h"; got[0].String() != want {
		t.Errorf("got %q, want %q", got[0].String(), want)
	}
}

func TestSpotIsWeighedWithWhatItLoses(t *testing.T) {
	t.Parallel()
	offers := fleetOf(
		fleet.Offer{GPU: "g", Hourly: 10e6},
		fleet.Offer{GPU: "g", Hourly: 4e6, Spot: true, LossRate: 0.5, Boot: job.Duration(10 * time.Minute)},
	)

	ask := func(every time.Duration, noSpot bool) []provision.Option {
		return provision.Options(
			offers,
			need(1),
			provision.Query{
				Now:             noon,
				Objective:       job.ObjectiveCost,
				Run:             10 * time.Hour,
				CheckpointEvery: every,
				NoSpot:          noSpot,
			},
		)
	}

	if got := ask(30*time.Minute, false); got[0].Offer.Name != "x/g/spot" || got[0].Losses < 5 {
		t.Errorf("with checkpoints the best is %s", &got[0])
	}

	if got := ask(0, false); got[0].Offer.Name != "x/g" {
		t.Errorf("without checkpoints the best is %s", &got[0])
	}

	if got := ask(30*time.Minute, true); len(got) != 1 || got[0].Offer.Spot {
		t.Errorf("spot was not wanted and came: %v", optionNames(got))
	}

	offers[1].LossRate = 20

	if got := ask(0, false); len(got) != 1 {
		t.Errorf("a job that would never get done on spot is offered it: %v", optionNames(got))
	}
}

// TestTheFormulaOfSpotLossesIsRight compares it with many lives played out.
func TestTheFormulaOfSpotLossesIsRight(t *testing.T) {
	t.Parallel()
	const run, every, boot, restore, rate, nodes = 5.3, 0.5, 0.2, 0.1, 0.4, 2 // hours
	hours := func(h float64) time.Duration { return time.Duration(h * float64(time.Hour)) }
	offers := fleetOf(fleet.Offer{GPU: "g", Hourly: 1e6, Spot: true, LossRate: rate, Boot: job.Duration(hours(boot))})
	n := need(1)
	n.Nodes, n.MaxNodes = nodes, nodes
	takes := func(*fleet.Offer, int, int) (time.Duration, bool) { return hours(run), true }
	got := provision.Options(offers, n, provision.Query{Now: noon, Objective: job.ObjectiveTime, RunTime: takes,
		CheckpointEvery: hours(every), Restore: hours(restore)})[0]

	chance := rand.New(rand.NewPCG(1, 2))
	const lives = 200_000

	var total, losses float64
	for range lives {
		total += boot
		for done := 0.0; done < run; {
			piece := min(every, run-done)
			if next := chance.ExpFloat64() / (rate * nodes); next < piece {
				total += next + boot + restore
				losses++
				continue
			}

			total += piece
			done += piece
		}
	}

	if want, is := total/lives, got.Finish.Sub(noon).Hours(); math.Abs(is/want-1) > 0.01 {
		t.Errorf("it is expected to take %.3f h and takes %.3f h", is, want)
	}

	if want := losses / lives; math.Abs(got.Losses/want-1) > 0.01 {
		t.Errorf("%.3f take-backs are expected and %.3f happen", got.Losses, want)
	}
}

// TestBestIsSortedAndSteady asks in any order of offers and gets the same.
func TestBestIsSortedAndSteady(t *testing.T) {
	t.Parallel()
	offers := manyOffers(200)
	rapid.Check(t, func(t *rapid.T) {
		q := provision.Query{
			Now: noon,
			Objective: rapid.SampledFrom([]job.Objective{job.ObjectiveTime, job.ObjectiveCost, job.ObjectiveBalanced}).
				Draw(t, "objective"),
			HourValue:       money.PerHour(rapid.Float64Range(0, 20).Draw(t, "value")),
			Run:             time.Duration(rapid.IntRange(1, 100_000).Draw(t, "run")) * time.Second,
			Reference:       ref(rapid.Float64Range(1, 5000).Draw(t, "base")),
			CheckpointEvery: time.Duration(rapid.IntRange(0, 7200).Draw(t, "every")) * time.Second,
		}

		n := need(rapid.IntRange(0, 8).Draw(t, "gpus"))
		n.MaxNodes = rapid.IntRange(1, 4).Draw(t, "nodes")
		got := provision.Options(offers, n, q)
		for i := range got {
			o := &got[i]
			if o.Finish.Before(o.Start) || o.Money < 0 || o.GPUs != n.MaxGPUs {
				t.Fatalf("%+v makes no sense", *o)
			}

			if i > 0 && o.Score < got[i-1].Score {
				t.Fatalf("%s comes after %s", o, &got[i-1])
			}
		}

		catalogue := provision.NewIndex(offers, nil).Fit(n)
		if rapid.Bool().Draw(t, "data in one region") {
			q.Stage = func(o *fleet.Offer) (time.Duration, money.Amount) {
				if o.Region == "r2" {
					return 0, 0
				}

				return time.Hour, 5
			}

			got = catalogue.Options(q)
		}

		first, ok := catalogue.Best(q)
		if ok != (len(got) > 0) ||
			ok && (first.Score != got[0].Score || first.Money != got[0].Money || !first.Finish.Equal(got[0].Finish)) {
			t.Fatalf("the first is %s and the best of the list %s", &first, &got[0])
		}

		again := provision.Options(rapid.Permutation(offers).Draw(t, "order"), n, q)
		for i := range got {
			if *got[i].Offer != *again[i].Offer || got[i].Nodes != again[i].Nodes {
				t.Fatalf("%d is %s in one order and %s in another", i, &got[i], &again[i])
			}
		}
	})
}

// TestTheFirstIsAsGoodAsAny gives few offers of like nodes whose terms differ in everything.
func TestTheFirstIsAsGoodAsAny(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		some := func(name string, of ...time.Duration) job.Duration {
			return job.Duration(rapid.SampledFrom(of).Draw(t, name))
		}
		var offers []fleet.Offer
		for i := range rapid.IntRange(2, 5).Draw(t, "offers") {
			o := fleet.Offer{
				GPU:              "g",
				TFLOPS:           100,
				Zone:             string(rune('a' + i)),
				Spot:             rapid.Bool().Draw(t, "spot"),
				Hourly:           job.Money(rapid.IntRange(1, 4).Draw(t, "hourly")) * 1e6,
				Boot:             some("boot", 0, 0, 0, time.Hour),
				BillingIncrement: some("bills", 0, 0, 0, 3*time.Hour),
				MinBilling:       some("least", 0, 0, 0, 5*time.Hour),
				MaxNodes:         rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "most"),
			}

			if o.Spot {
				o.LossRate = rapid.SampledFrom([]float64{0.01, 0.3}).Draw(t, "losses")
			}

			offers = append(offers, o)
		}

		n := need(1)
		n.Nodes = rapid.IntRange(1, 2).Draw(t, "nodes")
		n.MaxNodes = n.Nodes + rapid.IntRange(0, 2).Draw(t, "more nodes")

		q := provision.Query{
			Now: noon,
			Objective: rapid.SampledFrom([]job.Objective{job.ObjectiveTime, job.ObjectiveCost, job.ObjectiveBalanced}).
				Draw(t, "objective"),
			HourValue: rapid.SampledFrom([]money.PerHour{0, 1, 10}).
				Draw(t, "value"),
			Run:    time.Duration(rapid.IntRange(1, 600).Draw(t, "run")) * time.Minute,
			NoSpot: rapid.IntRange(0, 3).Draw(t, "no spot") == 0,
		}

		order := rapid.Permutation(fleetOf(offers...)).Draw(t, "order")
		fit := provision.NewIndex(order, nil).Fit(n)
		all := fit.Options(q)

		first, ok := fit.Best(q)
		if ok != (len(all) > 0) ||
			ok && (first.Score != all[0].Score || first.Money != all[0].Money || !first.Finish.Equal(all[0].Finish)) {
			t.Fatalf("the first is %v and the list %v", first, all)
		}

		without := offers[rapid.IntRange(0, len(offers)-1).Draw(t, "without")].NameOf()
		all = slices.DeleteFunc(all, func(o provision.Option) bool { return o.Offer.Name == without })

		next, ok := fit.BestWithout(without, q)
		if ok != (len(all) > 0) || ok && next != all[0] {
			t.Fatalf("without %s the first is %v and the list %v", without, next, all)
		}
	})
}

func BenchmarkBest(b *testing.B) {
	offers := manyOffers(500)
	needs := []fleet.Need{
		need(1),
		need(2),
		need(8),
		{Nodes: 1, MaxNodes: 1, GPUs: 1, MaxGPUs: 1, Kinds: "A100|H100", GPUMin: 60 * gib, Place: job.PlaceAny},
	}

	q := provision.Query{
		Now:             noon,
		Objective:       job.ObjectiveBalanced,
		HourValue:       1,
		Run:             5 * time.Hour,
		Reference:       job.Reference{GPU: "base", TFLOPS: 312},
		CheckpointEvery: 10 * time.Minute,
	}

	b.Run("catalogue", func(b *testing.B) {
		for b.Loop() {
			provision.NewIndex(offers, nil)
		}
	})

	c := provision.NewIndex(offers, nil)
	b.Run("fit", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			c.Fit(needs[i%len(needs)])
		}
	})

	var fits []*provision.Fit
	for _, n := range needs {
		fits = append(fits, c.Fit(n))
	}

	b.Run("list", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			fits[i%len(fits)].Options(q)
		}
	})

	b.Run("first", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			fits[i%len(fits)].Best(q)
		}
	})
}
