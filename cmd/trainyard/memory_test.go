package main

import "testing"

func TestALargeHeapMayNotGrowToSeveralTimesItsSize(t *testing.T) {
	t.Parallel()

	for live, want := range map[uint64]int{
		0: 300, 10 << 20: 300, 32 << 20: 300, 33 << 20: 280, 48 << 20: 200, 60 << 20: 160, 96 << 20: 100, 10 << 30: 100,
	} {
		if got := percentOf(live); got != want {
			t.Errorf("with %d MiB that live it grows by %d %%, want %d", live>>20, got, want)
		}
	}

	if liveMemory() == 0 {
		t.Error("what lives is not measured")
	}
}
