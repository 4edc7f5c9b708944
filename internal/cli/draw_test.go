package cli

import (
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestAmountsAreWrittenForPeople(t *testing.T) {
	t.Parallel()

	for got, want := range map[string]string{
		hours(5400):                    "1.5",
		hours(-7200):                   "-2.0",
		hours(36) + " " + hours(0):     "0.010 0",
		hours(1):                       "<0.001", // it was "0.000" (newcomer 35)
		hours(3600 * 123456):           "123.5K",
		bar(0):                         "····················",
		bar(0.5):                       "██████████··········",
		bar(0.99):                      "███████████████████▊",
		bar(7):                         "████████████████████",
		bar(-1):                        "···················" + "·",
		spark(nil):                     "",
		spark([]float64{0, 0}):         "··",
		spark([]float64{1, 2, 4, 8}):   "▂▃▅█",
		spark(make([]float64, 61)):     "·······························",
		spark([]float64{0, 0.0001, 1}): "·▁█",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestDrawingsHaveTheirWidth(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		if got := utf8.RuneCountInString(bar(rapid.Float64Range(-2, 2).Draw(rt, "rate"))); got != barWidth {
			rt.Fatalf("a bar of %d characters", got)
		}

		values := rapid.SliceOfN(rapid.Float64Range(0, 1e9), 0, 1000).Draw(rt, "values")
		if got := utf8.RuneCountInString(spark(values)); got > sparkWidth || len(values) <= sparkWidth && got != len(values) {
			rt.Fatalf("%d values make %d characters", len(values), got)
		}
	})
}
