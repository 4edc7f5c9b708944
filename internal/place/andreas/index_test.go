package andreas

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestTheShelfFindsTheTightestNode compares with a search of all nodes.
func TestTheShelfFindsTheTightestNode(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes, size := rapid.IntRange(1, 130).Draw(t, "nodes"), rapid.IntRange(1, 8).Draw(t, "size")
		s := newNodeIndex(nodes, size)
		for i := range nodes {
			free := rapid.IntRange(0, size).Draw(t, "free")
			s.put(int32(i), free, rapid.IntRange(0, size-free).Draw(t, "used"))
		}

		for range 20 {
			gpus := rapid.IntRange(1, size).Draw(t, "gpus")
			got, want := s.fit(gpus, nil), int32(-1)
			for i := range nodes {
				at := int32(i)
				if int(s.free[at]) >= gpus && (want < 0 || s.used[at] > 0 && s.used[want] == 0 ||
					(s.used[at] > 0) == (s.used[want] > 0) && s.free[at] < s.free[want]) {
					want = at
				}
			}

			if got != want {
				t.Fatalf("%d GPUs: found node %d, want %d", gpus, got, want)
			}

			if got >= 0 {
				s.move(got, gpus)
			}
		}
	})
}

// TestPartsOfGPUs takes and gives back parts: in the end the index is as it was.
func TestPartsOfGPUs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newNodeIndex(3, 2)
		for i := range 3 {
			s.put(int32(i), 2, 0)
		}

		type held struct {
			part float64
			at   int
		}

		var all []held

		for range rapid.IntRange(1, 30).Draw(t, "parts") {
			part := rapid.SampledFrom([]float64{0.25, 0.5, 0.75}).Draw(t, "part")
			if at := s.share(part, -1); at >= 0 {
				all = append(all, held{part, at})
			}

			sum := 0.0
			for _, h := range all {
				sum += h.part
			}

			used := 0
			for i := range s.used {
				used += int(s.used[i])
			}

			if sum > float64(used)+epsilon {
				t.Fatalf("%g GPUs are held of %d in use", sum, used)
			}
		}

		for _, i := range rapid.Permutation(all).Draw(t, "order") {
			s.unshare(i.part, i.at)
		}

		for i := range s.free {
			if s.free[i] != 2 || s.used[i] != 0 {
				t.Fatalf("node %d has %d free and %d in use", i, s.free[i], s.used[i])
			}
		}
	})
}

func TestOverdue(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct{ by, spread, want float64 }{
		{10, 0, 10}, {-10, 0, 0}, {10, 5, 15}, {0, 5, 5}, {-5, 5, 5 / math.E}, {-1e6, 5, 0},
	} {
		if got := expectedLateness(tc.by, tc.spread); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("overdue(%g, %g) = %g, want %g", tc.by, tc.spread, got, tc.want)
		}
	}
}

// TestEndings has the chances that a job ends, which sum to one.
func TestEndings(t *testing.T) {
	t.Parallel()
	y := &yard{o: &Options{Survival: []float64{0.8, 0.4}}}
	for done, want := range map[float64]float64{0: 1, 0.25: 0.9, 0.5: 0.8, 0.75: 0.6, 1: 0.4, 2: 0.4} {
		if got := y.survival(done); math.Abs(got-want) > 1e-12 {
			t.Errorf("when %g is done %g live on, want %g", done, got, want)
		}
	}
}

func TestMoney(t *testing.T) {
	t.Parallel()

	for f, want := range map[float64]string{0: "$0.00", 12.345: "$12.35", 0.42: "$0.42", 0.0312: "$0.031", 0.000123: "$0.00012", -0.5: "$-0.50"} {
		if got := money(f); got != want {
			t.Errorf("%g is written %s, want %s", f, got, want)
		}
	}
}
