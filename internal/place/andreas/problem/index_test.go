package problem

import (
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
			got, want := s.Fit(gpus, nil), int32(-1)
			for i := range nodes {
				at := int32(i)
				if int(s.Free[at]) >= gpus && (want < 0 || s.Used[at] > 0 && s.Used[want] == 0 ||
					(s.Used[at] > 0) == (s.Used[want] > 0) && s.Free[at] < s.Free[want]) {
					want = at
				}
			}

			if got != want {
				t.Fatalf("%d GPUs: found node %d, want %d", gpus, got, want)
			}

			if got >= 0 {
				s.Move(got, gpus)
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
			for i := range s.Used {
				used += int(s.Used[i])
			}

			if sum > float64(used)+Epsilon {
				t.Fatalf("%g GPUs are held of %d in use", sum, used)
			}
		}

		for _, i := range rapid.Permutation(all).Draw(t, "order") {
			s.unshare(i.part, i.at)
		}

		for i := range s.Free {
			if s.Free[i] != 2 || s.Used[i] != 0 {
				t.Fatalf("node %d has %d free and %d in use", i, s.Free[i], s.Used[i])
			}
		}
	})
}
