package ledger_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/ledger"
)

func TestSplitGivesWhatIsLeftToTheLargestRemainders(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		total   int64
		weights []int64
		want    []int64
	}{
		"one has all":                   {7, []int64{3}, []int64{7}},
		"nothing is nothing for all":    {0, []int64{1, 2}, []int64{0, 0}},
		"equals: the first has the odd": {10, []int64{1, 1, 1}, []int64{4, 3, 3}},
		"the largest remainder first":   {10, []int64{1, 1, 5}, []int64{2, 1, 7}},
		"no weight, no part":            {5, []int64{0, 1, 0}, []int64{0, 5, 0}},
		"less than one for each":        {1, []int64{1, 2, 1}, []int64{0, 1, 0}},
		"products beyond a word":        {math.MaxInt64, []int64{1, 1 << 40}, []int64{8388608, math.MaxInt64 - 8388608}},
	} {
		if diff := cmp.Diff(tc.want, ledger.Split(tc.total, tc.weights)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestSplitIsExact: parts add up, and each is less than a unit off its exact share.
func TestSplitIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(0, math.MaxInt64).Draw(t, "total")
		weights := rapid.SliceOfN(rapid.Int64Range(0, 1<<50), 1, 40).Draw(t, "weights")
		weights[rapid.IntRange(0, len(weights)-1).Draw(t, "some")]++

		var sum int64
		for _, w := range weights {
			sum += w
		}

		left := total
		for i, got := range ledger.Split(total, weights) {
			left -= got

			// |got·sum - total·w| < sum
			off := new(big.Int).Mul(big.NewInt(got), big.NewInt(sum))
			off.Sub(off, new(big.Int).Mul(big.NewInt(total), big.NewInt(weights[i])))

			if off.CmpAbs(big.NewInt(sum)) >= 0 {
				t.Fatalf("part %d is %d of %d with weight %d of %d", i, got, total, weights[i], sum)
			}
		}

		if left != 0 {
			t.Fatalf("%d units are left over", left)
		}
	})
}

// TestPiecesOfAnEntryAddUp: at any time the lines together have exactly their part of
// the total, no line ever loses anything, and at the end each has all of its own.
func TestPiecesOfAnEntryAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.OneOf(rapid.Int64Range(0, 5), rapid.Int64Range(0, 1<<55))
		lines := make([]ledger.Posting, rapid.IntRange(1, 6).Draw(t, "lines"))

		var total int64
		for i := range lines {
			lines[i].NodeCost = ledger.Nanos(amount.Draw(t, "amount"))
			total += int64(lines[i].NodeCost)
		}

		den := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 1<<40)).Draw(t, "length")
		before := make([]ledger.Amounts, len(lines))

		at := int64(0)
		for at < den {
			at += rapid.Int64Range(1, den-at).Draw(t, "step")
			now := ledger.Until(lines, at, den)

			var sum int64
			for i := range now {
				sum += int64(now[i].NodeCost)

				if now[i].NodeCost < before[i].NodeCost {
					t.Fatalf("line %d has %d of %d after it had %d", i, now[i].NodeCost, lines[i].NodeCost, before[i].NodeCost)
				}
			}

			want := new(big.Int).Mul(big.NewInt(total), big.NewInt(at))
			if want.Div(want, big.NewInt(den)).Int64() != sum {
				t.Fatalf("all lines have %d at %d of %d, want %d of %d", sum, at, den, want, total)
			}

			before = now
		}

		for i := range lines {
			if before[i].NodeCost != lines[i].NodeCost {
				t.Fatalf("line %d has %d at the end, want %d", i, before[i].NodeCost, lines[i].NodeCost)
			}
		}
	})
}

func TestAmountsAreWrittenExactly(t *testing.T) {
	t.Parallel()

	for got, want := range map[string]string{
		ledger.Span(0).String():                        "0",
		ledger.Span(1).String():                        "0.001",
		ledger.Span(90_061_500).String():               "90061.5",
		ledger.Nanos(1_250_000_000).String():           "1.25",
		ledger.Nanos(-5).String():                      "-0.000000005",
		ledger.Nanos(math.MinInt64).String():           "-9223372036.854775808",
		ledger.Nanos(40_000_000_499).Money().String():  "$40",
		ledger.Nanos(40_000_000_500).Money().String():  "$40.000001",
		ledger.Nanos(-40_000_000_500).Money().String(): "$-40.000001",
		ledger.Millijoules(3_600_000).String():         "3600",
	} {
		if got != want {
			t.Errorf("%s is written, want %s", got, want)
		}
	}

	if got := ledger.NanosOf(0.1); got != 100_000_000 {
		t.Errorf("ten cents are %d", got)
	}

	if got := ledger.Span(math.MaxInt64).Duration(); got != math.MaxInt64 {
		t.Errorf("the longest span lasts %s", got)
	}

	if got := ledger.Millijoules(3_600_000_000).KWh(); got != 1 {
		t.Errorf("3.6 MJ are %g kWh", got)
	}
}
