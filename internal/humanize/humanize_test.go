package humanize_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/humanize"
)

func TestWrites(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

	berlin := time.FixedZone("CET", 3600)

	for _, c := range []struct{ got, want string }{
		{humanize.Count(0, "GPU"), "0 GPUs"},
		{humanize.Count(1, "GPU"), "1 GPU"},
		{humanize.Count(12000, "job"), "12,000 jobs"},
		{humanize.Count(2, "more node"), "2 more nodes"},
		{humanize.Plural(2, "policy"), "policies"},
		{humanize.Plural(2, "day"), "days"},
		{humanize.Plural(2, "batch"), "batches"},
		{humanize.Plural(2, ""), ""},
		{humanize.Integer(-1234567), "-1,234,567"},
		{humanize.Integer(math.MinInt64), "-9,223,372,036,854,775,808"},

		{humanize.Dollars(0.0), "$0.00"},
		{humanize.Dollars(0.81), "$0.81"},
		{humanize.Dollars(1234.5), "$1,234.50"},
		{humanize.Dollars(-1234.5), "-$1,234.50"},
		{humanize.Dollars(0.004), "<$0.01"},
		{humanize.Dollars(-0.001), "$0.00"},
		{humanize.Dollars(math.Inf(1)), "unlimited"},
		{humanize.Dollars(math.NaN()), "$?"},
		{humanize.Rate(1.25), "$1.25/h"},
		{humanize.Rate(0.0042), "$0.0042/h"},
		{humanize.Rate(0.05), "$0.05/h"},
		{humanize.Rate(0.0), "$0.00/h"},

		{humanize.Percent(0.375), "38%"},
		{humanize.Percent(1), "100%"},
		{humanize.Percent(0), "0%"},
		{humanize.Percent(0.001), "<1%"},
		{humanize.Percent(0.999), ">99%"},

		{humanize.Size(int64(0)), "0 B"},
		{humanize.Size(int64(1023)), "1023 B"},
		{humanize.Size(int64(24 << 30)), "24 GB"},
		{humanize.Size(int64(512 << 20)), "512 MB"},
		{humanize.Size(int64(16750372454)), "15.6 GB"},
		{humanize.Size(int64(1<<30 - 1)), "1 GB"},

		{humanize.List(), ""},
		{humanize.List("a"), "a"},
		{humanize.List("a", "b", "c"), "a, b and c"},
		{humanize.Or("a", "b", "c"), "a, b or c"},
		{humanize.ListUpTo(2, "a", "b", "c", "d"), "a, b and 2 more"},
		{humanize.ListUpTo(3, "a", "b"), "a and b"},

		{humanize.Time(now.Add(2*time.Hour), now), "14:00 UTC"},
		{humanize.Time(now.Add(2*time.Hour), now.In(berlin)), "15:00 CET"},
		{humanize.Time(now.Add(26*time.Hour), now), "Mar 2 14:00 UTC"},
		{humanize.Time(now.AddDate(1, 0, 0), now), "Mar 1 2027 12:00 UTC"},
		{humanize.Date(now, now), "Mar 1"},
		{humanize.Date(now.AddDate(1, 0, 0), now), "Mar 1 2027"},
		// Rounded, not cut off: a token that was just made for 30 days expired "in 29 days" (newcomer 28).
		{humanize.Ago(now.Add(-90*time.Second), now), "2 minutes ago"},
		{humanize.Ago(now.Add(119*time.Minute), now), "in 2 hours"},
		{humanize.Ago(now.Add(30*24*time.Hour-3*time.Second), now), "in 30 days"},
		{humanize.Ago(now.Add(time.Hour-2*time.Second), now), "in 1 hour"},
		{humanize.Ago(now.Add(-58*time.Minute), now), "58 minutes ago"},
		{humanize.Ago(now.Add(23*time.Hour), now), "in 23 hours"},
		{humanize.Ago(now.Add(-1600*time.Millisecond), now), "2 seconds ago"},
		{humanize.Ago(now.Add(2*time.Hour), now), "in 2 hours"},
		{humanize.Ago(now, now), "now"},
		{humanize.Ago(time.Time{}, now), ""},

		{humanize.Duration(90 * time.Minute), "1h30m"},
		{humanize.Duration(2 * time.Hour), "2h"},
		{humanize.Duration(12 * time.Second), "12s"},
		{humanize.Duration(1500 * time.Millisecond), "1.5s"},
		{humanize.Duration(time.Duration(0)), "0s"},
		{humanize.Duration(59*time.Minute + 59900*time.Millisecond), "1h"},
		{humanize.Duration(23*time.Hour + 59*time.Minute + 40*time.Second), "1d"},
		{humanize.Duration(52*time.Hour + 50*time.Minute), "2d5h"},
		{humanize.Duration(-90 * time.Minute), "-1h30m"},
		{humanize.Seconds(5400), "1h30m"},
		{humanize.Seconds(math.Inf(1)), "forever"},
		{humanize.Seconds(math.NaN()), "unknown"},

		{humanize.GPUs(8, "NVIDIA A100-SXM4-80GB", int64(80<<30)), "8× A100 80GB"},
		{humanize.GPUs(3, "NVIDIA A100-SXM4-80GB (fake)", int64(80<<30)), "3× A100 80GB (fake)"},
		{humanize.GPUs(1, "NVIDIA H100 80GB HBM3", int64(81559<<20)), "1× H100 80GB"},
		{humanize.GPUs(2, "NVIDIA GeForce RTX 4090", int64(24564<<20)), "2× RTX 4090 24GB"},
		{humanize.GPUs(4, "Tesla V100-PCIE-32GB", int64(0)), "4× V100"},
		{humanize.GPUs(4, "", int64(0)), "4 GPUs"},
		{humanize.GPUs(4, "", int64(24<<30)), "4× GPU 24GB"},
		{humanize.GPUs(0, "A100", int64(0)), "no GPU"},
		{humanize.GPUs(1, "Tesla", int64(0)), "1× Tesla"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestDurationsNeverReadAsTheNextUnit(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64().Draw(t, "length"))

		for _, wrong := range []string{"60s", "60m", "24h"} {
			if humanize.Duration(d) == wrong {
				t.Fatalf("%d is written %s", d, wrong)
			}
		}
	})
}
