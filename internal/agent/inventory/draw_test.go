package inventory

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDrawIsTheMeanByGPUsInUse(t *testing.T) {
	t.Parallel()
	var m meter
	if got := m.draw(start); len(got) != 0 {
		t.Errorf("before any reading: %v", got)
	}

	for _, watts := range []float64{90, 110, 100} {
		m.add(0, watts)
	}

	m.add(2, 700)

	if diff := cmp.Diff([]float64{100, 0, 700}, m.draw(start)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDrawIsToldAnewSeldom(t *testing.T) {
	t.Parallel()
	var m meter

	steps := []struct {
		after time.Duration
		watts float64
		want  float64
	}{
		{0, 100, 100},
		{time.Minute, 104, 100},        // the mean is 102: too little
		{2 * time.Minute, 156, 120},    // far from what was told
		{3 * time.Minute, 124, 120},    // 121
		{13 * time.Minute, 121, 121},   // ten minutes later
		{13 * time.Minute, 121, 121},   //
		{14 * time.Minute, 2000, 389},  // a jump
		{15 * time.Minute, 389.4, 389}, // unchanged in whole watts
	}

	for i, s := range steps {
		m.add(0, s.watts)

		if got := m.draw(start.Add(s.after)); got[0] != s.want {
			t.Errorf("step %d: %g, want %g (mean %g)", i, got[0], s.want, m.mean[0])
		}
	}
}

func TestDrawForgetsOldReadings(t *testing.T) {
	t.Parallel()
	var m meter
	for range 1000 {
		m.add(1, 100)
	}

	for range 1000 {
		m.add(1, 300)
	}

	if m.mean[1] < 299 {
		t.Errorf("the mean is %g long after the change", m.mean[1])
	}
}
