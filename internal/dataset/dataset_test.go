package dataset_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"trainyard/internal/dataset"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
)

// catalogue is a snapshot, because subtests use it at the same time.
func catalogue() *dataset.Catalogue {
	c := dataset.NewCatalogue(dataset.Network{In: 1000, Across: 100, PerGB: 2})
	c.Put(dataset.Dataset{ID: "mri", Rule: job.PlaceLocal, Size: 10_000, Copies: []dataset.Copy{{At: job.PlaceLocal}}})
	c.Put(dataset.Dataset{ID: "web", Rule: job.PlaceAny, Size: 5_000_000_000, Copies: []dataset.Copy{{Node: "n1"}}})
	c.Put(dataset.Dataset{ID: "logs", Rule: job.PlaceCloud, Size: 1000})

	return c.Snapshot()
}

func TestAJobRunsWhereItsPlaceAndAllItsDataAllow(t *testing.T) {
	t.Parallel()
	c := catalogue()
	for name, tc := range map[string]struct {
		place job.Place
		data  []string
		want  job.Place
		code  string
	}{
		"no data":                     {job.PlaceAny, nil, job.PlaceAny, ""},
		"data narrow the place":       {job.PlaceAny, []string{"web", "mri"}, job.PlaceLocal, ""},
		"data agree with the place":   {job.PlaceCloud, []string{"logs", "web"}, job.PlaceCloud, ""},
		"data against the place":      {job.PlaceCloud, []string{"mri"}, "", "place_conflict"},
		"two data against each other": {job.PlaceAny, []string{"mri", "logs"}, "", "place_conflict"},
		"unknown data":                {job.PlaceAny, []string{"mir"}, "", "no_dataset"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := c.PlaceOf(tc.place, tc.data)

			var f *fault.Error
			if tc.code != "" {
				if !errors.As(err, &f) || f.Code != tc.code || f.Remedy == "" {
					t.Errorf("error = %v, want one with code %s and a remedy", err, tc.code)
				}

				return
			}

			if err != nil || got != tc.want {
				t.Errorf("place = %s, %v, want %s", got, err, tc.want)
			}
		})
	}
}

func TestStagingIsFreeWhereACopyIsAndCostsMoreFromTheOtherSide(t *testing.T) {
	t.Parallel()
	c := catalogue()

	cloud := func(n id.Node) bool { return n == "n1" }
	for name, tc := range map[string]struct {
		data  []string
		spot  dataset.Spot
		takes time.Duration
		cost  money.Amount
	}{
		"a copy is there":         {[]string{"mri"}, dataset.Spot{Node: "x"}, 0, 0},
		"from the same side":      {[]string{"web"}, dataset.Spot{Node: "n2", Cloud: true}, 5_000_000 * time.Second, 0},
		"from the other side":     {[]string{"web"}, dataset.Spot{Node: "x"}, 50_000_000 * time.Second, 10},
		"on the node itself":      {[]string{"web"}, dataset.Spot{Node: "n1", Cloud: true}, 0, 0},
		"several add up":          {[]string{"mri", "web"}, dataset.Spot{Node: "n2", Cloud: true}, 5_000_000*time.Second + 100*time.Second, 2e-5},
		"nothing is to be staged": {nil, dataset.Spot{Node: "n2", Cloud: true}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			takes, cost := c.Stage(tc.data, tc.spot, cloud)
			if takes != tc.takes || cost < tc.cost-1e-9 || cost > tc.cost+1e-9 {
				t.Errorf("takes %s and costs %g, want %s and %g", takes, cost, tc.takes, tc.cost)
			}
		})
	}
}

func TestADatasetMustMakeSense(t *testing.T) {
	t.Parallel()
	good := dataset.Dataset{ID: "mri", Rule: job.PlaceLocal, Copies: []dataset.Copy{{Node: "n1"}, {At: job.PlaceLocal}}}
	if err := good.Validate(); err != nil {
		t.Errorf("a good one is refused: %v", err)
	}

	for field, d := range map[string]dataset.Dataset{
		"name":      {ID: "MRI scans", Rule: job.PlaceAny},
		"place":     {ID: "mri", Rule: "moon"},
		"size":      {ID: "mri", Rule: job.PlaceAny, Size: -1},
		"copies[0]": {ID: "mri", Rule: job.PlaceLocal, Copies: []dataset.Copy{{At: job.PlaceCloud}}},
		"copies[1]": {ID: "mri", Rule: job.PlaceAny, Copies: []dataset.Copy{{Node: "a"}, {Node: "b", Pool: "c"}}},
	} {
		var f *fault.Error
		if err := d.Validate(); !errors.As(err, &f) || f.Field != field {
			t.Errorf("error = %v, want one about %s", err, field)
		}
	}

	many := good
	many.Copies = make([]dataset.Copy, 20_000)
	if err := many.Validate(); err == nil || !strings.Contains(err.Error(), "10000") {
		t.Errorf("error = %v, want one that tells the limit", err)
	}
}
