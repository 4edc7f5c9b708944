package cloud_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/cloud"
)

func TestDeadlineCountsByTheClockThatNobodyCanSet(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	d := cloud.Moment{Boot: "b1", Since: time.Hour, Wall: noon}.In(30 * time.Minute)

	tests := []struct {
		name string
		now  cloud.Moment
		want time.Duration
	}{
		{"at once", cloud.Moment{Boot: "b1", Since: time.Hour, Wall: noon}, 30 * time.Minute},
		{"later", cloud.Moment{Boot: "b1", Since: 80 * time.Minute, Wall: noon.Add(20 * time.Minute)}, 10 * time.Minute},
		{"over", cloud.Moment{Boot: "b1", Since: 2 * time.Hour, Wall: noon.Add(time.Hour)}, -30 * time.Minute},
		{
			"the wall clock is set a day back",
			cloud.Moment{Boot: "b1", Since: 80 * time.Minute, Wall: noon.Add(-24 * time.Hour)},
			10 * time.Minute,
		},
		{
			"the wall clock is set a day ahead",
			cloud.Moment{Boot: "b1", Since: 80 * time.Minute, Wall: noon.Add(24 * time.Hour)},
			10 * time.Minute,
		},
		{
			"another boot goes by the wall clock",
			cloud.Moment{Boot: "b2", Since: time.Minute, Wall: noon.Add(20 * time.Minute)},
			10 * time.Minute,
		},
		{
			"another boot when it was over",
			cloud.Moment{Boot: "b2", Since: time.Minute, Wall: noon.Add(time.Hour)},
			-30 * time.Minute,
		},
		{
			"another boot with the clock set back",
			cloud.Moment{Boot: "b2", Since: 2 * time.Minute, Wall: noon.Add(-24 * time.Hour)},
			28 * time.Minute,
		},
	}

	for _, tt := range tests {
		if got := d.Remaining(tt.now); got != tt.want {
			t.Errorf("%s: %s left, want %s", tt.name, got, tt.want)
		}
	}
}

func TestDeadlineIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		seconds := func(name string) time.Duration {
			return time.Duration(rapid.Int64Range(0, 1<<32).Draw(t, name)) * time.Second
		}
		want := cloud.Deadline{
			Boot: rapid.StringMatching(`[0-9a-f-]{1,36}`).Draw(t, "boot"), Until: seconds("until"),
			Wall: time.Unix(0, 0).UTC().Add(seconds("wall")), Duration: seconds("given"),
		}

		got, err := cloud.ParseDeadline(want.String())
		if err != nil {
			t.Fatal(err)
		}

		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("read (-want +got):\n%s", diff)
		}
	})
}

func TestNonsenseIsNoDeadline(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"", "\n", "b1", "b1 1 2\n", "b1 x 2 3\n", "b1 1 2 -3\n", "b1 99999999999999999999 2 3\n", "b1 9223372036854775807 2 3\n"} {
		if d, err := cloud.ParseDeadline(text); err == nil {
			t.Errorf("%q is read as %+v", text, d)
		}
	}
}

func TestMomentGoesOn(t *testing.T) {
	t.Parallel()
	first, err := cloud.MomentOf()
	if err != nil {
		t.Fatal(err)
	}

	second, err := cloud.MomentOf()
	if err != nil {
		t.Fatal(err)
	}

	if first.Boot == "" || second.Boot != first.Boot || second.Since < first.Since || first.Since <= 0 {
		t.Errorf("%+v and then %+v", first, second)
	}
}
