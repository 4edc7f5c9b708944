package agentapi

import (
	"slices"
	"testing"
)

func TestReportsThatComeLateAreNotOfAnotherProcess(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		numbers func(i uint64) []uint64 // that come in round i, of 20
		alarm   bool
	}{
		"in order":              {func(i uint64) []uint64 { return []uint64{100 + i} }, false},
		"backwards after a gap": {func(i uint64) []uint64 { return []uint64{1000 - i} }, false},
		"with gaps":             {func(i uint64) []uint64 { return []uint64{100 * i} }, false},
		"without numbers":       {func(uint64) []uint64 { return []uint64{0} }, false},
		"sent again at times": {func(i uint64) []uint64 {
			return slices.Repeat([]uint64{i + 1}, 1+int(i%5)/4)
		}, false},

		"two that count alike":    {func(i uint64) []uint64 { return []uint64{100 + i, 100 + i} }, true},
		"one a little behind":     {func(i uint64) []uint64 { return []uint64{100 + i, 97 + i} }, true},
		"one far behind":          {func(i uint64) []uint64 { return []uint64{5000 + i, 100 + i} }, true},
		"the same one ever again": {func(uint64) []uint64 { return []uint64{7} }, true},
	} {
		s, alarm := newSequences(), false
		for i := range uint64(20) {
			for _, number := range c.numbers(i) {
				alarm = s.doubled("n1", "boot", number) || alarm
			}
		}

		if alarm != c.alarm {
			t.Errorf("%s: alarm %v, want %v", name, alarm, c.alarm)
		}
	}
}

func TestAnEarlierStartMustNotReportAgain(t *testing.T) {
	t.Parallel()
	s := newSequences()

	for i, boot := range []string{"a", "b", "a", "a", "a", "a"} {
		if s.doubled("n1", boot, uint64(i+1)) {
			t.Fatalf("alarm after %d reports", i+1)
		}
	}

	if !s.doubled("n1", "a", 7) {
		t.Error("no alarm about a start that was over")
	}
}
