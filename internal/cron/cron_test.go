package cron_test

import (
	"strings"
	"testing"
	"time"

	"trainyard/internal/cron"
	"trainyard/test/fuzzing"
)

func TestNext(t *testing.T) {
	t.Parallel()

	const layout = "2006-01-02 15:04:05"
	for _, tt := range []struct{ text, from, want string }{
		{"* * * * *", "2026-11-16 10:00:00", "2026-11-16 10:01:00"},
		{"* * * * *", "2026-11-16 10:00:59", "2026-11-16 10:01:00"},
		{"0 3 * * *", "2026-11-16 03:00:00", "2026-11-17 03:00:00"},
		{"0 3 * * *", "2026-11-16 02:59:30", "2026-11-16 03:00:00"},
		{"*/15 9-17 * * mon-fri", "2026-11-13 17:45:00", "2026-11-16 09:00:00"}, // a Friday
		{"5/20 * * * *", "2026-11-16 10:05:00", "2026-11-16 10:25:00"},
		{"30 23 31 * *", "2026-11-16 00:00:00", "2026-12-31 23:30:00"},
		{"0 0 29 2 *", "2026-11-16 00:00:00", "2028-02-29 00:00:00"},
		{"0 0 29 2 *", "2096-02-29 00:00:00", "2104-02-29 00:00:00"},   // 2100 is not a leap year
		{"0 0 13 * fri", "2026-11-16 00:00:00", "2026-11-20 00:00:00"}, // the 13th, or a Friday
		{"0 0 */2 * 7", "2026-11-16 00:00:00", "2026-11-29 00:00:00"},  // a Sunday with an odd date
		{"0 0 1 jan,jul *", "2026-11-16 00:00:00", "2027-01-01 00:00:00"},
		{"@daily", "2026-12-31 00:00:01", "2027-01-01 00:00:00"},
		{"@hourly", "2026-11-16 10:59:59", "2026-11-16 11:00:00"},
	} {
		r, err := cron.Parse(tt.text)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}

		from, err := time.Parse(layout, tt.from)
		if err != nil {
			t.Fatal(err)
		}

		if got := r.Next(from).Format(layout); got != tt.want {
			t.Errorf("%s after %s: %s, want %s", tt.text, tt.from, got, tt.want)
		}
	}

	at := time.Date(2026, 11, 16, 10, 0, 0, 5, time.UTC)
	if got := cron.Every(6 * time.Hour).Next(at); !got.Equal(at.Add(6 * time.Hour)) {
		t.Errorf("every 6h after %s: %s", at, got)
	}

	daily, err := cron.Parse("@daily")
	if err != nil {
		t.Fatal(err)
	}

	// Wherever the server is, the fields are in UTC.
	if got := daily.Next(at.In(time.FixedZone("", 19800))); !got.Equal(time.Date(2026, 11, 17, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("every day after %s: %s", at, got)
	}

	if got := (cron.Recurrence{}).Next(at); !got.IsZero() {
		t.Errorf("never: %s", got)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"":                "needs five fields",
		"* * * *":         "has 4",
		"60 * * * *":      `the minute must be between 0 and 59, got "60"`,
		"* 24 * * *":      "the hour must be",
		"* * 0 * *":       "the day of the month must be",
		"* * * 13 *":      "the month must be",
		"* * * * 8":       "the day of the week must be",
		"* * * * mun":     "the day of the week must be",
		"5-1 * * * *":     "the range of the minute must go up",
		"*/0 * * * *":     "the step of the minute must be",
		"*/x * * * *":     "the step of the minute must be",
		"0 0 30 feb *":    "no year has this day",
		"1,,2 * * * *":    "the minute must be",
		"@yearly":         "needs five fields",
		"-1 * * * *":      "the minute must be",
		"0 0 * * mon-sun": "must go up",
	} {
		if r, err := cron.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %q", text, r, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"* * * * *", "*/15 9-17 * * mon-fri", "@daily", "0 0 29 2 *", "1,2-3/4 * * * 7", "x"} {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		defer fuzzing.Bounded(t)()

		r, err := cron.Parse(text)
		if err != nil {
			return
		}

		at := time.Date(2026, 11, 16, 10, 0, 0, 0, time.UTC)
		for range 3 {
			next := r.Next(at)
			if !next.After(at) {
				t.Fatalf("%q after %s: %s", text, at, next)
			}

			at = next
		}
	})
}
